"""Scheduler smoke on Slurm: arrays, time limits, cancelling, and what is left on the nodes. Checks."""

from __future__ import annotations

from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.judging import decide, shorten, unproved
from surefoot.rungs.scheduler_slurm import ARRAY, LIMIT_S, LONGER_S, SlurmFacts
from surefoot.rungs.slurm_view import named_hosts

LATE_S = 15.0
"""From the limit to the end: 5 s from TERM to KILL, and what a busy node takes."""
EARLY_S = 1.0
"""A limit is counted from the job's own start; its clock may be slewed meanwhile."""


def job_checks(facts: SlurmFacts, view: View) -> list[Check]:
    """Checks about jobs and where they ran. Raises EvidenceError for a missing reference."""
    return [_placed(facts, view), _array(facts, view), _limit(facts, view), _cancelled(facts, view), _gone(facts, view)]


def _placed(facts: SlurmFacts, view: View) -> Check:
    """One rank on each node, and the nodes are those that the cluster file names."""
    nodes, wanted = [rank.data.node for rank in facts.ranks], named_hosts(view.inputs.cluster)
    job = view.evidence.job("nodes")
    known = {node.name for node in facts.nodes}
    problems = [f"no rank ran on {host}" for host in wanted if host not in nodes] if job.hosts else []
    problems += [
        f"{node} is not among the hosts of the cluster file" for node in nodes if wanted and node not in wanted
    ]
    problems += [f"{node} is not known to Slurm" for node in nodes if node not in known]
    if len({rank.report.host for rank in facts.ranks}) != job.nodes:
        problems.append(f"{job.nodes} ranks on {len({rank.report.host for rank in facts.ranks})} hosts")
    return decide(
        "scheduler.slurm.placed",
        "one rank ran on every node that this rung is about",
        not problems,
        expected=job.hosts or f"{job.nodes} nodes",
        actual=shorten(problems, 6) or ", ".join(sorted(nodes)[:16]),
        evidence=tuple(
            view.evidence.ref(rank.file, text=f"{rank.data.node}: {rank.report.host}") for rank in facts.ranks[:8]
        ),
        next_action="compare node_groups[].hosts with `sinfo -N`, and look for a wrapper that drops --nodelist",
    )


def _array(facts: SlurmFacts, view: View) -> Check:
    processes = {(report.host, report.pid) for report in facts.elements.values()}
    return decide(
        "scheduler.array",
        f"every element of an array ({ARRAY}) ran, as a process of its own with an id of its own",
        len(processes) == len(facts.elements) >= 2,
        expected=len(facts.elements),
        actual=len(processes),
        unit="processes",
        evidence=tuple(
            view.evidence.ref(
                view.evidence.rank_file("array", 0, number), text=f"{report.job_id}: pid {report.pid} on {report.host}"
            )
            for number, report in facts.elements.items()
        ),
        next_action="a wrapper of sbatch drops --array, or runs its elements as one: compare `squeue --array`",
    )


def _limit(facts: SlurmFacts, view: View) -> Check:
    """That it ended as TIMEOUT is the engine's check; this is when."""
    ended, claim = facts.ended["limit"], f"a job with a time limit of {LIMIT_S} s is ended when it is over"
    words = {"expected": f"{LIMIT_S} to {LIMIT_S + LATE_S:g}", "unit": "s"}
    if ended.done is None:
        return unproved(
            "scheduler.limit", claim, **words, actual="it could not tell when it ended",
            evidence=(view.evidence.ref(ended.file),), next_action="see the job's folder: its launcher was killed too",
        )  # fmt: skip
    ran_s = ended.done.ended_at - ended.done.started_at
    return decide(
        "scheduler.limit",
        claim,
        LIMIT_S - EARLY_S <= ran_s <= LIMIT_S + LATE_S,
        expected=words["expected"],
        actual=round(ran_s, 1),
        unit="s",
        evidence=(view.evidence.ref("raw/limit/done.json", text=f"{ended.done.state}: {ended.done.reason}"),),
        derivation=f"its rank would have waited {LONGER_S} s; from TERM to KILL it has 5 s",
        next_action=f"see what held {ended.report.host}: a process that ignores KILL hangs in a file system or driver",
    )


def _cancelled(facts: SlurmFacts, view: View) -> Check:
    """That it ended as CANCELLED is the engine's check; this is that it ran, and that cancelling ended it."""
    ended = facts.ended["cancelled"]
    ran_s = None if ended.done is None else ended.done.ended_at - ended.report.ended_at
    references = [view.evidence.ref(ended.file, text=f"pid {ended.report.pid} on {ended.report.host}")]
    if ended.done is not None:
        references.append(view.evidence.ref("raw/cancelled/done.json", text=f"{ended.done.state}: {ended.done.reason}"))
    return decide(
        "scheduler.cancelled",
        "a job that runs is ended by cancelling it",
        ran_s is None or -1 <= ran_s < LONGER_S - 1,
        expected=f"long before the {LONGER_S} s that it would have run",
        actual="it ended without a word of its own" if ran_s is None else f"{ran_s:.1f} s after its rank had reported",
        evidence=tuple(references),
        next_action="try `scancel` by hand; a process that ignores KILL hangs in a file system or driver",
    )


def _gone(facts: SlurmFacts, view: View) -> Check:
    """No process of any job of this rung is left on the nodes, and they were looked for where those jobs ran."""
    looked = {rank.report.host for rank in facts.ranks}
    ran = {ended.report.host for ended in facts.ended.values()} | {r.host for r in facts.elements.values()}
    left = [
        f"pid {process.pid} of job {process.job} on {rank.data.node} ({process.command[:60]})"
        for rank in facts.ranks
        for process in rank.data.left_behind
    ]
    claim = "nothing of a job is left on the nodes looked at when it has ended, been cancelled or run into its limit"
    references = tuple(view.evidence.ref(rank.file, text=rank.report.host) for rank in facts.ranks[:8])
    unseen = ", ".join(sorted(ran - looked))
    if not ran & looked:
        return unproved(
            "scheduler.gone", claim, expected="0 processes", actual=f"its jobs ran on {unseen}, where nobody looked",
            evidence=references, next_action="name the hosts in the cluster file and set `nodes: all` for this rung",
        )  # fmt: skip
    return decide(
        "scheduler.gone",
        claim,
        not left,
        expected="0 processes",
        actual=shorten(left) or f"0 processes{f'; nobody looked on {unseen}' if unseen else ''}",
        evidence=references,
        derivation="processes whose environment has this attempt's nonce and the name of a job that was over",
        next_action="end them by hand. ProctrackType=proctrack/cgroup lets none escape; pgid and linuxproc do",
    )
