"""NCCL's log as a witness: who took part, over what they are connected, which NICs there are. 2.14 to 2.30. Pure.

`read_log` takes the files of one job (its output, or one a process by ``NCCL_DEBUG_FILE``) as they are;
lines are read in ``nccl_log_lines``, what they say in ``nccl_log_ranks``, ``_links``, ``_net`` and
``_notes``; what follows from it is judged in ``nccl_claims`` and ``nccl_rails``. With ``NCCL_DEBUG=INFO``
and ``NCCL_DEBUG_SUBSYS=INIT,NET,BOOTSTRAP,ENV`` a job writes all that the claims need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from surefoot.benchmarks.nccl_log_lines import Line, Process, read_lines
from surefoot.benchmarks.nccl_log_links import Connection, connections
from surefoot.benchmarks.nccl_log_net import Networks, networks
from surefoot.benchmarks.nccl_log_notes import Notes, notes
from surefoot.benchmarks.nccl_log_ranks import Member, members

WHOLE_JOB = ""
"""Name of the communicator whose ranks have no commId (2.15 and earlier), where it is the only one that can be."""


@dataclass(frozen=True)
class NcclLog:
    """All that the log of one job tells. Empty where NCCL wrote nothing: that proves nothing."""

    processes: Mapping[Process, Line]
    """Every process that wrote, with its first line."""
    members: tuple[Member, ...]
    connections: tuple[Connection, ...]
    networks: Mapping[Process, Networks]
    notes: Notes
    cut: tuple[str, ...]
    """Files that end in the middle of one of NCCL's lines."""
    groups: Mapping[str, tuple[Member, ...]]
    """Communicators, by their identity, each with its ranks in order."""
    mine: Mapping[Process, tuple[Member, ...]]
    """Process → the ranks that it is, one for each communicator and GPU."""
    places: Mapping[tuple[str, int], frozenset[Process]]
    """Communicator and rank → its process; several where two claim to be it."""

    @property
    def versions(self) -> frozenset[str]:
        """NCCL's version, of every process that says so: ``2.28.9``."""
        return frozenset(self.notes.versions.values())

    def made_by(self, connection: Connection) -> tuple[Member, ...]:
        """The ranks that can have made it: several where a process is the same rank of several communicators."""
        return tuple(member for member in self.mine.get(connection.process, ()) if _fits(member, connection))

    def holders(self, connection: Connection, rank: int) -> frozenset[Process]:
        """Processes that `rank` of the connection's communicator can be; empty where the log does not tell."""
        found: set[Process] = set()
        for member in self.made_by(connection):
            there = frozenset() if member.group is None else self.places.get((member.group, rank), frozenset())
            if not there:
                return frozenset()
            found |= there
        return frozenset(found)

    def gaps(self) -> tuple[str, ...]:
        """What the log should tell and does not: where there are any, what it does not show may still be so."""
        found = [f"{file} ends in the middle of a line" for file in self.cut]
        for group in self.groups.values():
            absent = sorted(set(range(group[0].nranks)) - {member.rank for member in group})
            if absent:
                more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
                found.append(f"no line of rank {absent[0]}{more} of {group[0].nranks}")
        told = {(link.process, link.own_device) for link in self.connections}
        for member in self.members:
            own = ((member.process, device) for device in _devices(member))
            if member.nranks > 1 and not any(key in told for key in own):
                found.append(f"no connection of {member.process}, {member.where}")
        if not self.members and self.connections:
            found.append("no line of any rank")
        return tuple(dict.fromkeys(found))

    def hosts(self, connection: Connection, rank: int) -> frozenset[str]:
        """Hosts that `rank` of the connection's communicator can be on; empty where the log does not tell."""
        return frozenset(process.host for process in self.holders(connection, rank))


def read_log(texts: Mapping[str, str]) -> NcclLog:
    """Read the files of one job: name → content.

    Raises EvidenceError for a line that tells of a rank, a connection or a NIC and cannot be read, or
    contradicts the others.
    """
    found = read_lines(texts)
    ranks = _grouped(members(found.lines))
    links = connections(found.lines)
    mine: dict[Process, list[Member]] = {}
    for member in ranks:
        mine.setdefault(member.process, []).append(member)
    processes: dict[Process, Line] = {}
    for line in found.lines:
        processes.setdefault(line.process, line)
    groups: dict[str, list[Member]] = {}
    places: dict[tuple[str, int], set[Process]] = {}
    for member in ranks:
        if member.group is not None:
            groups.setdefault(member.group, []).append(member)
            places.setdefault((member.group, member.rank), set()).add(member.process)
    log = NcclLog(
        processes=processes,
        members=ranks,
        connections=links,
        networks=networks(found.lines),
        notes=notes(found.lines, texts.values()),
        cut=found.cut,
        groups={name: tuple(sorted(group, key=lambda each: each.rank)) for name, group in groups.items()},
        mine={process: tuple(own) for process, own in mine.items()},
        places={place: frozenset(there) for place, there in places.items()},
    )
    _agree(log)
    return log


def _grouped(found: tuple[Member, ...]) -> tuple[Member, ...]:
    """Members without an identity made one communicator, where each process has one of them and all are of one size."""
    nameless = [member for member in found if member.group is None and not member.split]
    once = len({(member.process, member.cuda_device) for member in nameless}) == len(nameless)
    if not nameless or len(nameless) != len(found) or not once or len({member.nranks for member in nameless}) != 1:
        return found
    return tuple(_named(member) for member in found)


def _named(member: Member) -> Member:
    fields = {name: getattr(member, name) for name in Member.__dataclass_fields__}
    return Member(**{**fields, "group": WHOLE_JOB})


def _fits(member: Member, connection: Connection) -> bool:
    """Whether the member can have made the connection."""
    if member.rank != connection.own:
        return False
    if any(rank is not None and rank >= member.nranks for rank in (connection.peer, connection.proxy)):
        return False
    return connection.own_device is None or connection.own_device in _devices(member)


def _devices(member: Member) -> set[str]:
    """What may stand in brackets for the member's GPU."""
    own = {member.bus_id, str(member.cuda_device)}
    return own if member.nvml_device is None else {*own, str(member.nvml_device)}


def _agree(log: NcclLog) -> None:
    """Raises EvidenceError where lines contradict each other: then one of them is not what NCCL wrote."""
    for member in log.members:
        if member.rank >= member.nranks:
            raise member.line.wrong("has a rank that its communicator does not have")
    fitting: dict[tuple[Process, int, str | None, int], bool] = {}
    for connection in log.connections:
        own = log.mine.get(connection.process)
        if own is None and log.mine:
            raise connection.line.wrong(f"is of {connection.process}, and no line tells which rank that is")
        if own is None:
            continue
        farthest = max(connection.own, connection.peer or 0, connection.proxy or 0)
        key = (connection.process, connection.own, connection.own_device, farthest)
        if key not in fitting:
            fitting[key] = any(_fits(member, connection) for member in own)
        if not fitting[key]:
            raise connection.line.wrong(f"{connection.process} has no such rank in any of its communicators")


def by_process(found: Iterable[Connection]) -> dict[Process, list[Connection]]:
    """Process → its connections."""
    grouped: dict[Process, list[Connection]] = {}
    for connection in found:
        grouped.setdefault(connection.process, []).append(connection)
    return grouped
