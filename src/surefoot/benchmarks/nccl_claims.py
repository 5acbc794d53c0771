"""Claims about a job that NCCL's log settles, or does not: each with the lines that show it. Pure.

A line that is not there proves nothing: where NCCL wrote no log, or not of this subsystem, a claim is
INCONCLUSIVE. Rails, which need more than one kind of line, are judged in ``nccl_rails``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.benchmarks.nccl_log import NcclLog
from surefoot.benchmarks.nccl_log_lines import Line, Process
from surefoot.benchmarks.nccl_log_links import Connection, Kind
from surefoot.benchmarks.nccl_log_ranks import Member
from surefoot.hostlist import folded_names
from surefoot.model.status import Status

SWITCH_ON = (
    "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,BOOTSTRAP,ENV for every rank, and see that no "
    "NCCL_DEBUG_FILE, nccl.conf or wrapper takes the log elsewhere"
)
MOST_LINES = 6
"""Lines that a finding names; the report is read by people."""
_TCP_PROVIDERS = ("tcp", "sockets", "udp")


@dataclass(frozen=True)
class Finding:
    """One claim, judged."""

    name: str
    """Last part of a check's id: ``ranks``."""
    claim: str
    status: Status
    expected: str
    shown: str
    """What the log shows, in one line."""
    lines: tuple[Line, ...] = ()
    """Where it shows."""
    derivation: str = ""
    next_action: str = ""
    """Empty where it PASSED."""

    def __post_init__(self) -> None:
        if self.status is Status.PASSED and not self.lines:
            raise ValueError(f"{self.name!r} passed without a line that shows it")


def finding(
    name: str,
    claim: str,
    holds: bool | None,
    *,
    expected: str,
    shown: str,
    lines: Iterable[Line],
    derivation: str = "",
    next_action: str = "",
) -> Finding:
    """A finding: PASSED, FAILED, or INCONCLUSIVE for None. Never PASSED without a line."""
    kept = tuple(dict.fromkeys(lines))[:MOST_LINES]
    status = {True: Status.PASSED, False: Status.FAILED, None: Status.INCONCLUSIVE}[
        holds if kept or not holds else None
    ]
    action = "" if status is Status.PASSED else next_action or SWITCH_ON
    return Finding(name, claim, status, expected, shown, kept, derivation, action)


def named(names: Iterable[str], most: int = 4) -> str:
    """Names as a list, folded where there are many: ``n1, n2``, ``n[1-64]``."""
    kept = sorted(set(names))
    return folded_names(kept) if len(kept) > most else ", ".join(kept)


def job_ranks(log: NcclLog, world: int) -> tuple[Member, ...]:
    """Ranks of the communicator of all `world` ranks, the first there is; empty where there is none."""
    for group in log.groups.values():
        if group[0].nranks == world and not group[0].split:
            return group
    return next((group for group in log.groups.values() if group[0].nranks == world), ())


def ranks(log: NcclLog, world: int, processes: Mapping[Process, int] | None = None) -> Finding:
    """All `world` ranks formed one communicator, and each completed.

    `processes`: which process is which rank of the job, where that is known from elsewhere.
    """
    claim = f"all {world} ranks formed one communicator, and NCCL's log shows each of them complete"
    group = job_ranks(log, world)
    if not group:
        return _no_group(log, world, claim)
    problems, doubts = _problems(log, group, world, processes or {})
    done = [member for member in group if member.completed is not None]
    troubles = [warned for warned in log.notes.warnings if warned.line.warns]
    lines = [problem for _, problem in problems] + [member.line for member in done]
    if problems and troubles:
        lines.insert(1, troubles[0].line)
    shown = "; ".join([*(text for text, _ in problems), *doubts]) or f"{len(done)} ranks on {_places(done)}"
    if problems and troubles:
        shown += f"; NCCL warned: {troubles[0].shown}"
    return finding(
        "ranks",
        claim,
        False if problems else None if doubts else True,
        expected=f"{world} × Init COMPLETE",
        shown=shown,
        lines=lines,
        derivation="lines `comm … rank … nranks … - Init START` and `- Init COMPLETE` of one commId",
        next_action="look at what the named ranks and hosts wrote last, and at the first warning; a rank that never "
        "starts is missed by all others, which then wait" if problems else "",
    )  # fmt: skip


def _problems(
    log: NcclLog, group: tuple[Member, ...], world: int, processes: Mapping[Process, int]
) -> tuple[list[tuple[str, Line]], list[str]]:
    """What disproves that the ranks are there, with its line, and what leaves it open."""
    problems: list[tuple[str, Line]] = []
    doubts = []
    holders: dict[int, list[Member]] = {}
    for member in group:
        holders.setdefault(member.rank, []).append(member)
    for rank, members in holders.items():
        if len(members) > 1:
            text = f"rank {rank} is {' and '.join(str(member.process) for member in members[:2])}"
            problems.append((text, members[1].line))
    for member in group:
        job_rank = processes.get(member.process)
        if job_rank is not None and job_rank != member.rank:
            problems.append((f"rank {job_rank} of the job is {member.where} in NCCL", member.line))
    strangers = [member for member in group if processes and member.process not in processes]
    if strangers:
        doubts.append(f"{strangers[0].process} is no rank of this job")
    unfinished = [member for member in group if member.completed is None]
    ended = [member for member in unfinished if member.line.file not in log.cut]
    if ended:
        hosts = named(member.process.host for member in ended)
        text = f"{_numbers(ended)} on {hosts} started and did not complete"
        problems.append((text, ended[0].line))
    if len(ended) < len(unfinished):
        doubts.append(f"{named(log.cut)} ends in the middle of a line, before {_numbers(unfinished)} completed")
    absent = sorted(set(range(world)) - set(holders))
    if absent:
        doubts.append(f"no line of {_these(absent)}")
    return problems, doubts


def _no_group(log: NcclLog, world: int, claim: str) -> Finding:
    """There is no communicator of that many ranks whose members are known."""
    shared: dict[str, Any] = {"expected": f"{world} × Init COMPLETE", "lines": [member.line for member in log.members]}
    loose = [member for member in log.members if member.nranks == world]
    if loose:
        shown = "ranks of several communicators that cannot be told apart: this NCCL writes no commId"
        return finding("ranks", claim, None, shown=shown, next_action="use NCCL 2.16 or later", **shared)
    if not log.members:
        return finding("ranks", claim, None, shown="no line of any rank", **shared)
    sizes = Counter(group[0].nranks for group in log.groups.values())
    sizes = sizes or Counter(member.nranks for member in log.members)
    text = ", ".join(f"{count} of {size} {'rank' if size == 1 else 'ranks'}" for size, count in sorted(sizes.items()))
    return finding(
        "ranks",
        claim,
        False,
        shown=f"communicators: {text}; none of {world}",
        next_action="every node, or every rank, ran a job of its own: see how ranks are started (WORLD_SIZE, "
        "MASTER_ADDR; nccl-tests without MPI=1)",
        **shared,
    )


def _numbers(members: Iterable[Member]) -> str:
    return _these(sorted(member.rank for member in members))


def _these(numbers: list[int]) -> str:
    """``rank 3``, ``ranks 3, 5``, ``ranks [8-15]``."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {named(map(str, numbers)) if len(numbers) > 4 else ', '.join(map(str, numbers))}"


def _places(members: Iterable[Member]) -> str:
    return named(member.process.host for member in members)


def no_sockets(log: NcclLog, *, allowed: bool = False, processes: Iterable[Process] | None = None) -> Finding:
    """Every rank is connected, and nothing goes over TCP unless that is `allowed`.

    `processes`: those that must have a connection; without it those that the log knows as ranks.
    """
    claim = "NCCL's log shows over what every rank reaches the others, and no TCP socket is in it"
    expected = "P2P, SHM or a network other than Socket"
    if allowed:
        claim, expected = claim.split(", and", maxsplit=1)[0], "NET/Socket is allowed"
    wanted = set(log.mine if processes is None else processes)
    sockets = [link for link in log.connections if link.sockets]
    over_tcp = [
        chosen.line
        for process in log.networks.values()
        for chosen in process.providers
        if chosen.name.split(";")[0] in _TCP_PROVIDERS
    ]
    first = {link.way: link.line for link in reversed(log.connections)}
    shared = {
        "expected": expected,
        "derivation": "lines `Channel … via …`; NET/Socket is a fall-back to TCP, and so is libfabric's provider tcp",
    }
    ways = ways_of(log.connections)
    if (sockets or over_tcp) and not allowed:
        hosts = named([link.process.host for link in sockets] + [line.process.host for line in over_tcp])
        return finding(
            "sockets", claim, False, shown=f"{ways}; TCP on {hosts}",
            lines=[*{link.process.host: link.line for link in reversed(sockets)}.values(), *over_tcp, *_why(log)],
            next_action="RDMA is not used there: look in the log for `NET/IB : No device found`, then at NCCL_IB_HCA, "
            "NCCL_IB_DISABLE, the container's /dev/infiniband and ulimit -l",
            **shared,
        )  # fmt: skip
    silent = sorted(wanted - {link.process for link in log.connections})
    missing = [f"none of {process}" for process in silent[:4]] or open_ends(log)
    if not wanted or missing:
        missing += [] if wanted else ["no rank"]
        shown = "; ".join([ways or "no connection", *missing])
        return finding("sockets", claim, None, shown=shown, lines=first.values(), **shared)
    return finding("sockets", claim, True, shown=ways, lines=first.values(), **shared)


def ways_of(connections: Iterable[Connection]) -> str:
    """``8 × P2P/CUMEM, 4 × NET/IB``."""
    counts = Counter(link.way for link in connections)
    return ", ".join(f"{count} × {way}" for way, count in sorted(counts.items()))


def _why(log: NcclLog) -> list[Line]:
    """Lines that tell why a better network was not taken, one for each host."""
    return list({line.process.host: line for found in log.networks.values() for line in found.missing[:1]}.values())


def open_ends(log: NcclLog) -> list[str]:
    """Why what the log shows may not be all there is, at most a few; empty where it is."""
    apart = _unreached(log)
    return [*([f"no connection from {named(apart)} to another node"] if apart else []), *log.gaps()][:4]


def _unreached(log: NcclLog) -> list[str]:
    """Hosts whose ranks share a communicator with another host's and have no connection that can reach one."""
    reaching = {
        link.process.host for link in log.connections
        if link.kind in (Kind.NET, Kind.COLLNET) or link.way == "P2P/MNNVL"
    }  # fmt: skip
    spread = set()
    for group in log.groups.values():
        hosts = {member.process.host for member in group}
        if len(hosts) > 1:
            spread |= hosts
    return sorted(spread - reaching)


def inside_nodes(log: NcclLog, expected: Kind = Kind.P2P) -> Finding:
    """Ranks of one node reach each other as expected: by P2P, not through the host's memory or a network."""
    claim = f"ranks of one node reach each other by {expected}"
    inside, unknown = _inside(log)
    wrong = [link for link in inside if link.kind is not expected]
    shared = {"expected": str(expected), "derivation": "lines `Channel … via …` between ranks of one host"}
    if wrong:
        by_host = {link.process.host: link for link in reversed(wrong)}
        action = (
            "peer access is off between these GPUs: NCCL_P2P_DISABLE or NCCL_P2P_LEVEL, `nvidia-smi topo -p2p r`, "
            "ACS or IOMMU, one GPU per container without a shared /dev/shm"
        )
        return finding(
            "inside_nodes", claim, False, shown=f"{ways_of(inside)}; on {named(by_host)}",
            lines=[link.line for link in by_host.values()], next_action=action, **shared,
        )  # fmt: skip
    shown_on = {link.process.host for link in inside}
    many = _hosts_of_many(log)
    silent = sorted(many - shown_on)
    lines = {link.process.host: link.line for link in reversed(inside)}
    if not many:
        shown = "no two ranks of one node: nothing to show" if log.mine else "no line of any rank"
        return finding("inside_nodes", claim, None, shown=shown, lines=lines.values(), **shared)
    gaps = list(log.gaps()[:4])
    if silent or unknown or gaps:
        rest = [f"nothing between the ranks of {named(silent)}"] if silent else gaps
        rest += [f"{len(unknown)} × {unknown[0].way} to ranks on unknown hosts"] if unknown else []
        shown = "; ".join([ways_of(inside) or "no connection", *rest])
        return finding("inside_nodes", claim, None, shown=shown, lines=lines.values(), **shared)
    return finding("inside_nodes", claim, True, shown=ways_of(inside), lines=lines.values(), **shared)


def _inside(log: NcclLog) -> tuple[list[Connection], list[Connection]]:
    """Connections within a node, and those over a network to who knows where."""
    inside, unknown = [], []
    for link in log.connections:
        if link.kind is Kind.COLLNET or link.way == "P2P/MNNVL" or link.peer is None:
            continue
        if link.kind is not Kind.NET:
            inside.append(link)
            continue
        hosts = log.hosts(link, link.peer)
        if not hosts or (len(hosts) > 1 and link.process.host in hosts):
            unknown.append(link)
        elif link.process.host in hosts:
            inside.append(link)
    return inside, unknown


def _hosts_of_many(log: NcclLog) -> set[str]:
    """Hosts on which two ranks of one communicator are."""
    found = set()
    for group in log.groups.values():
        counts = Counter(member.process.host for member in group)
        found |= {host for host, count in counts.items() if count > 1}
    return found


def direct(log: NcclLog, hosts: Collection[str] | None = None) -> Finding:
    """Every connection over an RDMA network reads and writes GPU memory (GPUDirect), none bounces through the host's.

    `hosts`: those (up to the first dot) whose own ends are judged; None: all. Each has to have such a connection.
    """
    claim = "every connection over the network goes straight to GPU memory (GPUDirect RDMA)"
    claim += f" on {named(hosts)}" if hosts is not None else ""
    over = [
        link for link in log.connections
        if link.kind in (Kind.NET, Kind.COLLNET) and not link.sockets and (hosts is None or link.process.host in hosts)
    ]  # fmt: skip
    bounced = [link for link in over if not link.gdr]
    shared = {
        "expected": "/GDRDMA in each",
        "derivation": "lines `via NET/…/GDRDMA`; without it data goes through the host's memory",
    }
    if bounced:
        hosts = Counter(link.process.host for link in bounced)
        first = {link.process.host: link for link in reversed(bounced)}
        notes = [
            note.line for link in first.values() if link.process in log.networks
            for note in log.networks[link.process].direct if not note.enabled
        ]  # fmt: skip
        action = (
            "load nvidia-peermem (or a kernel and driver with DMA-BUF); see `GPU Direct RDMA Disabled` in the log "
            "for the reason, NCCL_NET_GDR_LEVEL for the distance that is allowed, and ACS on the PCIe switches"
        )
        return finding(
            "gdr", claim, False, shown=f"{len(bounced)} of {len(over)} bounce through the host, on {named(hosts)}",
            lines=[*(link.line for link in first.values()), *notes[:2]], next_action=action, **shared,
        )  # fmt: skip
    if not over:
        return finding("gdr", claim, None, shown="no connection over an RDMA network", lines=(), **shared)
    silent = sorted(set(hosts or ()) - {link.process.host for link in over})
    missing = [*([f"no connection of {named(silent)} over an RDMA network"] if silent else []), *open_ends(log)]
    if missing:
        return finding("gdr", claim, None, shown="; ".join(missing), lines=(), **shared)
    first_lines = {link.process.host: link.line for link in reversed(over)}
    return finding("gdr", claim, True, shown=f"{len(over)} of {len(over)}", lines=first_lines.values(), **shared)


def bootstrap(log: NcclLog, expected: Mapping[str, Iterable[str]]) -> Finding:
    """On each host the bootstrap goes over one of the interfaces that are `expected` there.

    A process that does not tell of its bootstrap (BOOTSTRAP is a subsystem of its own from 2.23 on) may
    tell over what NET/IB speaks out of band: NCCL chooses both in the same way.
    """
    claim = "NCCL's bootstrap goes over the interface that was asked for"
    wanted = {host.split(".")[0]: set(names) for host, names in expected.items()}
    seen: dict[str, dict[str, Line]] = {}
    for process, found in log.networks.items():
        for interface in found.bootstrap or found.oob:
            seen.setdefault(process.host, {}).setdefault(interface.name, interface.line)
    wrong = [
        (host, name, line) for host, names in wanted.items() for name, line in seen.get(host, {}).items()
        if name not in names
    ]  # fmt: skip
    shared = {
        "expected": "; ".join(f"{host}: {named(names)}" for host, names in list(wanted.items())[:4]),
        "derivation": "lines `Bootstrap: Using …`, or `OOB` of `NET/IB : Using …`",
    }
    if wrong:
        shown = "; ".join(f"{host} uses {name}, not {named(wanted[host])}" for host, name, _ in wrong[:4])
        return finding(
            "bootstrap", claim, False, shown=shown, lines=[line for _, _, line in wrong],
            next_action="set NCCL_SOCKET_IFNAME on the named hosts (a name is a prefix: `=eth0` is exact), and see "
            "that it reaches every rank",
            **shared,
        )  # fmt: skip
    lines = [line for host in wanted for line in list(seen.get(host, {}).values())[:1]]
    silent = sorted(set(wanted) - set(seen))
    if silent or not wanted:
        shown = f"no line of {named(silent)}" if silent else "no interface was asked for"
        return finding("bootstrap", claim, None, shown=shown, lines=lines, **shared)
    names = {name for host in wanted for name in seen[host]}
    return finding("bootstrap", claim, True, shown=f"{named(names)} on {named(wanted)}", lines=lines, **shared)
