"""NCCL's log of a job as rungs use it: read once, and what it settles as checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from surefoot.benchmarks.nccl_claims import Finding, direct, finding, named
from surefoot.benchmarks.nccl_log import NcclLog, read_log
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.benchmarks.nccl_rails import PortBytes, available, port_name, rails
from surefoot.errors import EvidenceError
from surefoot.hostlist import expand
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.judging import RankData, Said, shorten
from surefoot.rungs.rail_counters import Witness

R = TypeVar("R", bound=RankData)

LOG_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,BOOTSTRAP,ENV"}
"""Of a job whose log is to be read."""


def wants_sockets(cluster: Cluster) -> bool:
    """Whether the cluster file itself sends NCCL over TCP."""
    return cluster.env.get("NCCL_NET", "").lower() == "socket" or cluster.env.get("NCCL_IB_DISABLE", "0") == "1"


def network_asked(cluster: Cluster) -> dict[str, Any]:
    """For a plan's `expect`: the RDMA devices that carry, and whether GPUDirect is claimed.

    Devices are those of `rails` where all node groups declare the same ones, each by its `hca`. Where groups
    differ, as ``groups``, those of each group that names its hosts and all its devices. Of other hosts every port
    that NCCL had to choose from is to carry. GPUDirect is claimed where every group says so; where only some do, of
    the nodes that these name, as ``gpudirect_hosts``; ``hosts`` are then those of every group.
    """
    groups = cluster.node_groups
    direct_ones = [group for group in groups if group.gpudirect == "expected"]
    devices = {tuple(rail.hca for rail in group.rails) for group in groups}
    same = devices.pop() if len(devices) == 1 else ()
    differ = [group for group in groups if devices and group.hosts and group.rails]
    some = [group.hosts for group in direct_ones if group.hosts and direct_ones != list(groups)]
    return {
        "rails": list(same) if all(same) else [],
        "groups": [
            {"hosts": group.hosts, "rails": [rail.hca for rail in group.rails]}
            for group in differ
            if all(rail.hca for rail in group.rails)
        ],
        "gpudirect": len(direct_ones) == len(groups),
        "gpudirect_hosts": some,
        "hosts": [group.hosts for group in groups if group.hosts] if some else [],
    }


def declared(asked: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, list[str]]:
    """Host → the devices that are declared to carry there, of those for which any are. `asked`: of `network_asked`."""
    names = sorted(set(hosts))
    if asked["rails"]:
        return dict.fromkeys(names, asked["rails"])
    of = {host: group["rails"] for group in asked.get("groups", ()) for host in _short([group["hosts"]])}
    return {name: of[name.split(".")[0]] for name in names if name.split(".")[0] in of}


def network_findings(
    log: NcclLog,
    expect: Mapping[str, Any],
    hosts: Iterable[str],
    *,
    seen: Witness | None = None,
    least: Mapping[str, PortBytes] | None = None,
) -> list[Finding]:
    """What the log settles of the rails between nodes; none where `hosts` is one node, TCP is wanted or nothing was asked.

    `expect`: the plan's, with ``sockets`` and, as ``network``, what `network_asked` gave. `hosts`: one for each rank.
    `seen`: what the ports' counters tell; None where they were not asked for: then ports made one NIC count as one. `least`: host → bytes that the job must have
    moved through the node.
    """
    names = set(hosts)
    if not between_nodes(expect, names):
        return []
    asked = expect["network"]
    counters = seen.counters if seen is not None else None
    found = rails(log, expected=declared(asked, names), counters=counters, least=least, merged_as_one=seen is None)
    if seen is not None and (gaps := seen.gaps(carriers(log, asked, names))):
        found = replace(found, derivation=f"{found.derivation}; by the log alone: {shorten(gaps)}")
    if asked["gpudirect"]:
        return [found, direct(log)]
    here, expecting = {name.split(".")[0] for name in names}, _short(asked.get("gpudirect_hosts", ()))
    of = sorted(expecting & here)
    judged = f"judged on {named(of)} alone" if of else "which is not judged"
    found = replace(found, derivation=f"{found.derivation}; GPUDirect, {judged}: {gpudirect_seen(log)}")
    strangers = sorted(here - _short(asked.get("hosts", ()))) if expecting else []
    return [found, *([direct(log, of)] if of else []), *([_unplaced(strangers)] if strangers else [])]


def _short(hosts: Iterable[str]) -> set[str]:
    """Lists of hosts → each, up to its first dot."""
    return {host.split(".")[0] for text in hosts for host in expand(text)}


def _unplaced(hosts: Sequence[str]) -> Finding:
    """Only some groups expect GPUDirect, and these hosts are in none by the name that NCCL knows them by."""
    return finding(
        "gdr_groups", "every host of the job is in a node group, which says whether GPUDirect is expected of it", None,
        expected="each in node_groups[].hosts", shown=f"{named(hosts)} in none", lines=(),
        next_action="write these hosts' own names (`hostname`) into hosts of their node_groups",
    )  # fmt: skip


def between_nodes(expect: Mapping[str, Any], hosts: Iterable[str]) -> bool:
    """Whether anything is claimed of the network between nodes. Evidence of a version before this claim has no `network`."""
    return expect.get("network") is not None and not expect["sockets"] and len(set(hosts)) > 1


def carriers(log: NcclLog, asked: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Host up to its first dot → ports that are to carry: those declared, else all that NCCL had to choose from."""
    named = {host.split(".")[0]: tuple(map(port_name, ports)) for host, ports in declared(asked, hosts).items()}
    return {**available(log), **named}


def gpudirect_seen(log: NcclLog) -> str:
    """What the log shows of GPUDirect, for people: where the cluster file does not expect it, nothing is judged by it."""
    found = direct(log)
    if found.status is Status.PASSED:
        return f"{found.shown} connections over the network go straight to GPU memory"
    return found.shown if found.status is Status.FAILED else f"not known: {found.shown}"


def process_of(rank: Said[R]) -> Process:
    """A rank's process, as NCCL names it."""
    return Process(rank.report.host.split(".")[0], rank.report.pid)


def job_log(view: View, job: str, processes: Iterable[Process]) -> NcclLog:
    """NCCL's log in the job's output. Raises EvidenceError where it is damaged, or of none of the job's `processes`."""
    files = [blob for blob in view.evidence.under(f"raw/{job}") if blob.name.endswith(".out")]
    log = read_log({blob.name: blob.text() for blob in files})
    known = set(processes)
    for process, line in log.processes.items():
        if process not in known:
            raise EvidenceError(
                f"is of {process}, which is no rank of this job", file=line.file, line=line.number, text=line.text
            )
    return log


def as_check(prefix: str, found: Finding, view: View, *, otherwise: tuple[Evidence, ...] = (), name: str = "") -> Check:
    """The finding as a check, ``prefix.name``. `otherwise`: what to look at where no line shows it."""
    lines = tuple(view.evidence.ref(line.file, line=line.number, text=line.text) for line in found.lines)
    return Check(
        id=f"{prefix}.{name or found.name}",
        claim=found.claim,
        status=found.status,
        expected=found.expected,
        actual=found.shown,
        evidence=lines or otherwise,
        derivation=found.derivation,
        next_action=found.next_action,
    )
