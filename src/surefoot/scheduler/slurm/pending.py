"""Why a job waits, in words; whether it can ever run; and when waiting is over. Pure."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Literal

from surefoot.hostlist import compress, expand
from surefoot.model.job import JobSpec, JobStatus
from surefoot.model.ladder import Pending
from surefoot.scheduler.base import Waiting
from surefoot.scheduler.slurm.parse import Holder, NodeRow, Partition
from surefoot.scheduler.slurm.script import minutes

WORDS: dict[str, str] = {
    "Priority": "jobs of higher priority wait before it",
    "Resources": "it is next, and waits for nodes that other jobs hold",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "the job that it waits for failed: it will never start",
    "BeginTime": "its begin time is not reached; a requeued job waits about two minutes",
    "JobHeldUser": "held by its user: scontrol release",
    "JobHeldAdmin": "held by an administrator",
    "Reservation": "it waits for its reservation to begin",
    "ReqNodeNotAvail": "a node that it asks for is down, drained or reserved",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows, or has",
    "PartitionTimeLimit": "its time limit is above the partition's",
    "PartitionConfig": "the partition can't give what it asks for",
    "BadConstraints": "no node has what it asks for: it will never start",
    "Licenses": "it waits for licences",
    "NodeDown": "a node that it needs is down",
    "Nodes required for job are DOWN": "nodes that it needs are down, drained or reserved",
    "JobArrayTaskLimit": "as many elements of its array run as it allows itself",
    "AssociationJobLimit": "the account's limit of jobs is reached",
    "InvalidAccount": "the account is unknown",
    "InvalidQOS": "the QOS is unknown",
    "Cleaning": "its earlier life is being cleaned up",
    "Prolog": "the prolog runs",
    "None": "the scheduler has not looked at it yet",
}
_LIMITS = {
    "QOSMax": "the QOS's limit is reached",
    "AssocMax": "the account's or user's limit is reached",
    "QOSGrp": "the limit of all jobs of the QOS is reached",
    "AssocGrp": "the limit of all jobs of the account is reached",
    "MaxJobs": "the limit of running jobs is reached",
}
NEVER = frozenset(
    {
        "DependencyNeverSatisfied",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
    }
)
"""Reasons that time does not mend."""
UNAVAILABLE = frozenset({"ReqNodeNotAvail", "NodeDown", "Nodes required for job are DOWN"})
"""Reasons behind which nodes that are down may stand, or only reserved ones."""


def explain(reason: str) -> str:
    """Slurm's reason in words, with what Slurm said in brackets where that tells more."""
    word = word_of(reason)
    words = WORDS.get(word) or next((text for start, text in _LIMITS.items() if word.startswith(start)), "")
    return f"{words} [{reason}]" if words and word not in ("None", "") else words or reason


def word_of(reason: str) -> str:
    """Slurm's reason without what follows it: ``ReqNodeNotAvail, UnavailableNodes:n3`` → ``ReqNodeNotAvail``."""
    return reason.split(",", maxsplit=1)[0].split("(", maxsplit=1)[0].replace("_", " ").strip()


def when(moment: float, now: float) -> str:
    """``at 17:10, in 3 h 2 min``, by this machine's clock."""
    ahead = moment - now
    at = time.strftime("%H:%M" if ahead < 72_000 else "%Y-%m-%d %H:%M", time.localtime(moment))
    return f"at {at}, in {span(ahead)}"


@dataclass(frozen=True)
class Overdue:
    """A job that is not waited for any longer, and what becomes of it."""

    then: Literal["cancel", "shrink", "move"]
    reason: str
    """How long it waited, and for what."""
    nodes: int = 0
    """To shrink to."""


def overdue(policy: Pending | None, waited_s: float, word: str) -> bool:
    """Whether waiting is over: at once for what can never start, else as the policy says. `word`: Slurm's reason."""
    return word in NEVER or (policy is not None and waited_s > policy.wait_at_most_s)


def what_then(
    spec: JobSpec, policy: Pending | None, waited_s: float, status: JobStatus, seen: Waiting, *, moved: bool, now: float
) -> Overdue:
    """What becomes of a job that is overdue. `moved`: it waits already where its policy would move it to.

    A time limit or a size that the partition refuses may be all right in another one, so that a job
    which never starts is moved as well; to fewer nodes it is shrunk only where it waits for nodes.
    """
    never = status.word in NEVER
    most = f" of at most {policy.wait_at_most_s}" if policy is not None else ""
    began = "can never start" if never else f"waited {waited_s:.0f} s{most} for {_nodes(spec.nodes)}"
    reason = f"{began}: {what_for(status, seen, now)}"
    if policy is not None and policy.then == "move" and not moved:
        return Overdue("move", reason)
    least = policy.min_nodes if policy is not None and policy.then == "shrink" else None
    if least is not None and spec.nodes > least and not never:
        return Overdue("shrink", reason, nodes=min(max(least, seen.free), spec.nodes - 1))
    return Overdue("cancel", reason)


def what_for(status: JobStatus, seen: Waiting, now: float) -> str:
    """All that is known of what a job waits for, in words."""
    parts = [status.reason or "Slurm does not say why", seen.down, f"held: {seen.held_by}" if seen.held_by else ""]
    if status.expected_start is not None and status.expected_start > now:
        parts.append(f"Slurm means to start it {when(status.expected_start, now)}")
    return "; ".join(part for part in parts if part)


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


SHOWN = 4
"""Jobs that hold nodes, that are named one by one."""
FREE = ("idle", "planned")
"""From 21.08 on Slurm calls an idle node planned, once it means to start a job there: this one, most likely."""


def waits_for(spec: JobSpec, partition: str, nodes: Sequence[NodeRow], holders: Sequence[Holder]) -> Waiting:
    """What keeps the nodes of `partition` (empty: the default one) from a job."""
    name = partition or _default(nodes)
    pool = _fitting(spec, name, nodes)
    return Waiting(
        held_by=_held_by(pool.keys(), holders),
        down=stranded(spec, partition, nodes)[1],
        free=sum(node.state in FREE and node.responds for node in pool.values()),
    )


def _default(nodes: Sequence[NodeRow]) -> str:
    """The partition that Slurm takes where none is asked for; empty where it has none."""
    return next((node.partition for node in nodes if node.default), "")


def _fitting(spec: JobSpec, name: str, nodes: Sequence[NodeRow]) -> dict[str, NodeRow]:
    """Nodes of the partition that a job may run on, up or down, by name."""
    excluded, asked = set(expand(spec.exclude_hosts)), set(expand(spec.hosts))
    pool = [node for node in nodes if node.partition in name.split(",") and (not asked or node.name in asked)]
    return {node.name: node for node in pool if node.name not in excluded and not _lacks(spec, node)}


def _held_by(pool: Collection[str], holders: Sequence[Holder]) -> str:
    """The jobs that hold nodes of `pool`, the one with least time left first."""
    found = []
    for job in sorted(holders, key=lambda job: inf if job.left_s is None else job.left_s):
        hosts = [host for host in expand(job.nodes) if host in pool]
        if hosts:
            left = "no time limit" if job.left_s is None else f"{span(job.left_s)} left"
            found.append(f"{compress(hosts)} by job {job.id} of {job.user} ({job.name}, {left})")
    more = f" and {len(found) - SHOWN} more jobs" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def span(seconds: float) -> str:
    """``3 h 10 min``, ``12 min``, ``40 s``."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min" if whole >= 60 else f"{whole} s"


def never_runs(spec: JobSpec, partition: str, nodes: Sequence[NodeRow], partitions: Sequence[Partition]) -> list[str]:
    """Why this request can never run as the cluster is now; empty when it may.

    `partition` is the one that will be asked for; empty: the default one. Nodes that are down or
    drained count as missing only where they are asked for by name.
    """
    name = partition or _default(nodes)
    wanted = [part for part in name.split(",") if part]
    known = {part.name for part in partitions} | {node.partition for node in nodes}
    unknown = [part for part in wanted if part not in known]
    if unknown:
        return [f"partition {unknown[0]!r} does not exist; there are {', '.join(sorted(known)) or 'none'}"]
    if len(wanted) != 1:
        return []  # several: Slurm takes the first that can
    problems = _beyond_limits(spec, name, partitions)
    pool = {node.name: node for node in nodes if node.partition == name}
    problems += _named_nodes(spec, name, pool)
    fit = len(_fitting(spec, name, nodes))
    if fit < spec.nodes and not problems:
        problems.append(_too_few(spec, name, list(pool.values()), fit))
    return problems


def stranded(spec: JobSpec, partition: str, nodes: Sequence[NodeRow]) -> tuple[str, str]:
    """(Hostlist of the nodes that are out, why the job can't start without them); both empty when it may start.

    Too few of the nodes that fit take jobs at all: that is no queue, and time alone does not mend it.
    Asked of a job that waits; `partition` as in `never_runs`.
    """
    name = partition or _default(nodes)
    fit = _fitting(spec, name, nodes)
    out = [node for node in fit.values() if not node.usable]
    if not out or len(fit) - len(out) >= spec.nodes:
        return "", ""
    why = "; ".join(node.told for node in out[:4])
    more = f" and {len(out) - 4} more" if len(out) > 4 else ""
    return compress(node.name for node in out), (
        f"it wants {spec.nodes} nodes, and {len(fit) - len(out)} of the {len(fit)} that fit take jobs: {why}{more}"
    )


def _beyond_limits(spec: JobSpec, name: str, partitions: Sequence[Partition]) -> list[str]:
    problems = []
    for part in partitions:
        if part.name != name:
            continue
        if part.state in ("DOWN", "INACTIVE", "DRAIN"):
            problems.append(f"partition {name!r} is {part.state}: it starts no jobs")
        if not isinf(part.max_time_s) and minutes(spec.time_limit_s) * 60 > part.max_time_s:
            problems.append(
                f"time limit {spec.time_limit_s} s is above the {part.max_time_s:.0f} s of partition {name!r}"
            )
        if spec.nodes > part.max_nodes:
            problems.append(
                f"{spec.nodes} nodes are above the {part.max_nodes:.0f} that partition {name!r} allows a job"
            )
    return problems


def _named_nodes(spec: JobSpec, name: str, pool: dict[str, NodeRow]) -> list[str]:
    problems = []
    for host in expand(spec.hosts):
        if host not in pool:
            problems.append(f"node {host!r} is not in partition {name!r}")
        elif pool[host].out:
            problems.append(f"{pool[host].told}, and was asked for by name")
    return problems


def _lacks(spec: JobSpec, node: NodeRow) -> str:
    """What a node has too little of; empty when it fits."""
    cpus = spec.ranks_per_node * spec.cpus_per_rank
    if node.gpus < spec.gpus_per_node:
        return f"{spec.gpus_per_node} GPUs a node (has {node.gpus})"
    if node.cpus < cpus:
        return f"{cpus} CPUs a node (has {node.cpus})"
    if node.memory_mib < (spec.memory_mib_per_node or 0):
        return f"{spec.memory_mib_per_node} MiB a node (has {node.memory_mib})"
    return ""


def _too_few(spec: JobSpec, name: str, pool: list[NodeRow], fit: int) -> str:
    lacking: dict[str, list[str]] = {}
    for node in pool:
        if lack := _lacks(spec, node):
            lacking.setdefault(lack, []).append(node.name)
    why = "; ".join(f"too little for {lack}: {compress(hosts)}" for lack, hosts in list(lacking.items())[:3])
    return f"{spec.nodes} nodes are asked for, and {fit} of the {len(pool)} of partition {name!r} fit{': ' + why if why else ''}"
