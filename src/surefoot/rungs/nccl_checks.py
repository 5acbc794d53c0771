"""NCCL's log of a job as rungs use it: read once, and what it settles as checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from surefoot.benchmarks.nccl_claims import Finding, direct
from surefoot.benchmarks.nccl_log import NcclLog, read_log
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.benchmarks.nccl_rails import rails
from surefoot.errors import EvidenceError
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster
from surefoot.rungs.base import View
from surefoot.rungs.judging import RankData, Said

R = TypeVar("R", bound=RankData)

LOG_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,BOOTSTRAP,ENV"}
"""Of a job whose log is to be read."""


def wants_sockets(cluster: Cluster) -> bool:
    """Whether the cluster file itself sends NCCL over TCP."""
    return cluster.env.get("NCCL_NET", "").lower() == "socket" or cluster.env.get("NCCL_IB_DISABLE", "0") == "1"


def network_asked(cluster: Cluster) -> dict[str, Any]:
    """For a plan's `expect`: the RDMA devices that carry, and whether GPUDirect is claimed.

    Devices are those of `rails` where all node groups declare the same ones, each by its `hca`; otherwise
    none, and every port that NCCL had to choose from is to carry. GPUDirect is claimed where every group says so.
    """
    groups = cluster.node_groups
    devices = {tuple(rail.hca for rail in group.rails) for group in groups}
    same = devices.pop() if len(devices) == 1 else ()
    return {
        "rails": list(same) if all(same) else [],
        "gpudirect": all(group.gpudirect == "expected" for group in groups),
    }


def network_findings(log: NcclLog, expect: Mapping[str, Any], hosts: Iterable[str]) -> list[Finding]:
    """What the log settles of the rails between nodes; none where `hosts` is one node, TCP is wanted or nothing was asked.

    `expect`: the plan's, with ``sockets`` and, as ``network``, what `network_asked` gave. `hosts`: one for each rank.
    """
    asked, names = expect.get("network"), set(hosts)
    if asked is None or expect["sockets"] or len(names) < 2:
        return []  # evidence of a version before this claim has no `network`
    found = [rails(log, expected=dict.fromkeys(sorted(names), asked["rails"]) if asked["rails"] else None)]
    return [*found, direct(log)] if asked["gpudirect"] else found


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
