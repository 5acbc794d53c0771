"""Why a job waits, in words; whether it can ever run; and when waiting is over. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf

from surefoot.model.job import JobSpec
from surefoot.scheduler.slurm.hostlist import compress, expand
from surefoot.scheduler.slurm.parse import NodeRow, Partition
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


def explain(reason: str, expected_start: float | None = None, now: float | None = None) -> str:
    """Slurm's reason in words, with what Slurm said in brackets where that tells more."""
    word = reason.split(",", maxsplit=1)[0].split("(", maxsplit=1)[0].strip()
    words = WORDS.get(word) or next((text for start, text in _LIMITS.items() if word.startswith(start)), "")
    text = f"{words} [{reason}]" if words and word not in ("None", "") else words or reason
    if expected_start is not None and now is not None and expected_start > now:
        text += f"; Slurm means to start it {_when(expected_start, now)}"
    return text


def _when(moment: float, now: float) -> str:
    ahead = int(moment - now)
    at = time.strftime("%H:%M" if ahead < 72_000 else "%Y-%m-%d %H:%M", time.localtime(moment))
    return (
        f"at {at}, in {ahead // 3600} h {ahead % 3600 // 60} min" if ahead >= 3600 else f"at {at}, in {ahead // 60} min"
    )


@dataclass(frozen=True)
class PendingPolicy:
    """How long a rung's job may wait, and what then."""

    max_wait_s: float = inf
    then: str = "cancel"
    """``cancel``, ``shrink`` (to `min_nodes`) or ``move`` (to `partition`)."""
    min_nodes: int = 1
    partition: str = ""


@dataclass(frozen=True)
class PendingStep:
    """What to do with a job that has waited too long: cancel it, and submit `again` where that is not None."""

    reason: str
    again: JobSpec | None


def overdue(spec: JobSpec, policy: PendingPolicy, waited_s: float, reason: str) -> PendingStep | None:
    """None while waiting is all right. A job that can never start is overdue at once."""
    word = reason.split(",", maxsplit=1)[0].split("(", maxsplit=1)[0].strip()
    never = word in NEVER
    if not never and waited_s <= policy.max_wait_s:
        return None
    said = f"{'never starts' if never else f'waited {waited_s:.0f} s of {policy.max_wait_s:.0f}'}: {explain(reason)}"
    if policy.then == "move" and policy.partition and policy.partition != spec.partition:
        again = spec.model_copy(update={"partition": policy.partition})
        return PendingStep(f"{said}; moved to partition {policy.partition}", again)
    if policy.then == "shrink" and spec.nodes > policy.min_nodes:
        fewer = max(policy.min_nodes, spec.nodes // 2)
        return PendingStep(f"{said}; shrunk to {fewer} of {spec.nodes} nodes", spec.model_copy(update={"nodes": fewer}))
    return PendingStep(f"{said}; cancelled", None)


def never_runs(spec: JobSpec, partition: str, nodes: Sequence[NodeRow], partitions: Sequence[Partition]) -> list[str]:
    """Why this request can never run as the cluster is now; empty when it may.

    `partition` is the one that will be asked for; empty: the default one. Nodes that are down or
    drained count as missing only where they are asked for by name.
    """
    name = partition or next((node.partition for node in nodes if node.default), "")
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
    excluded = set(expand(spec.exclude_hosts))
    asked = set(expand(spec.hosts)) or pool.keys()
    fit = [node for node in pool.values() if node.name in asked - excluded and not _lacks(spec, node)]
    if len(fit) < spec.nodes and not problems:
        problems.append(_too_few(spec, name, list(pool.values()), fit))
    return problems


def stranded(spec: JobSpec, partition: str, nodes: Sequence[NodeRow]) -> tuple[str, str]:
    """(Hostlist of the nodes that are out, why the job can't start without them); both empty when it may start.

    Too few of the nodes that fit take jobs at all: that is no queue, and time alone does not mend it.
    Asked of a job that waits; `partition` as in `never_runs`.
    """
    name = partition or next((node.partition for node in nodes if node.default), "")
    excluded, asked = set(expand(spec.exclude_hosts)), set(expand(spec.hosts))
    pool = [node for node in nodes if node.partition in name.split(",") and (not asked or node.name in asked)]
    fit = {node.name: node for node in pool if node.name not in excluded and not _lacks(spec, node)}
    out = [node for node in fit.values() if not node.usable]
    if not out or len(fit) - len(out) >= spec.nodes:
        return "", ""
    why = "; ".join(f"{node.name} is {node.state}{f' ({node.reason})' if node.reason else ''}" for node in out[:4])
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
        elif not pool[host].usable:
            why = f": {pool[host].reason}" if pool[host].reason else ""
            problems.append(f"node {host!r} was asked for and is {pool[host].state}{why}")
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


def _too_few(spec: JobSpec, name: str, pool: list[NodeRow], fit: list[NodeRow]) -> str:
    lacking: dict[str, list[str]] = {}
    for node in pool:
        if lack := _lacks(spec, node):
            lacking.setdefault(lack, []).append(node.name)
    why = "; ".join(f"too little for {lack}: {compress(hosts)}" for lack, hosts in list(lacking.items())[:3])
    return f"{spec.nodes} nodes are asked for, and {len(fit)} of the {len(pool)} of partition {name!r} fit{': ' + why if why else ''}"
