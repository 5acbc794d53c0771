"""What rungs share when they read and judge: reports of ranks that fit their job, and checks in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet, RankReport, parse_record
from surefoot.model.base import Record
from surefoot.model.check import Check, Evidence, Value
from surefoot.model.job import Job, JobDone
from surefoot.model.status import Status

D = TypeVar("D", bound=Record)

CLOCK_SLACK_S = 60.0
"""Clocks of two machines may differ by this much before times of one and the other contradict."""
ONE_CLOCK_S = 1.0
"""How far durations of one process on one host may exceed what its own start and end say: the wall
clock is slewed a little while the monotonic one is not."""
OLDEST_TIME = 1_577_836_800.0
"""2020-01-01: a time before it comes from no clock that is set."""


@dataclass(frozen=True)
class Said(Generic[D]):
    """One rank's report, with its data as the record that its program promises."""

    report: RankReport
    """Its own `data` is empty: it was read into the record, and a fleet's is not kept twice."""
    data: D
    file: str

    @property
    def rank(self) -> int:
        return self.report.rank

    @property
    def where(self) -> str:
        """``rank 1 on node-b``: how a check names it."""
        return f"rank {self.report.rank} on {self.report.host}"


class RankData(Record):
    """What every program's data begins with: the rank that wrote it, so that swapped data shows."""

    rank: int


R = TypeVar("R", bound=RankData)


def said(evidence: EvidenceSet, job: str, kind: type[R], *, any_code: bool = False) -> tuple[Said[R], ...]:
    """Reports of all ranks of `job`, in order of rank, each cross-checked with the job's own files.

    Raises EvidenceError where a report is missing, malformed, another rank's or another job's, of
    other code than was pushed (unless `any_code`: the caller judges that), or where its times do not
    fit between submission and end of the job.
    """
    submitted, reports = reported(evidence, job, any_code=any_code)
    done_file = f"raw/{job}/done.json"
    done = evidence.record(JobDone, done_file)
    if (done.name, done.id) != (job, submitted.id):
        raise EvidenceError(f"is of job {done.name!r} ({done.id}), not {job!r} ({submitted.id})", file=done_file)
    begin = max(OLDEST_TIME, submitted.submitted_at - CLOCK_SLACK_S)
    if submitted.submitted_at < OLDEST_TIME or not begin <= done.started_at <= done.ended_at:
        first = done.ranks[0].host if done.ranks else "its node"
        apart_s = abs(done.started_at - submitted.submitted_at)
        problem = (
            f"the job's times contradict: submitted ≤ started ≤ ended does not hold; between the clock here and "
            f"that of {first} lie {apart_s:.0f} s"
        )
        raise EvidenceError(problem, file=done_file)
    # Each report is let go as soon as it is read: of a thousand nodes both forms at once are half a gigabyte.
    waiting = list(reversed(reports))
    del reports
    found = []
    while waiting:
        report = waiting.pop()
        found.append(_one(report, kind, file=evidence.rank_file(job, report.rank), done=done))
    return tuple(found)


def reported(
    evidence: EvidenceSet, job: str, *, any_code: bool = False, element: int | None = None
) -> tuple[Job, tuple[RankReport, ...]]:
    """A job as it was submitted, and the reports of its ranks, or of those of one `element` of an array.

    Each is of the job that the plan asked for; how that ended is not looked at. Raises EvidenceError.
    """
    reports = evidence.ranks(job, any_code=any_code, element=element)
    submitted = evidence.record(Job, f"raw/{job}/job.json")
    if submitted.spec != evidence.job(job):
        raise EvidenceError("is not the job that the plan asked for", file=f"raw/{job}/job.json")
    if evidence.json(f"raw/{job}/request.json") != submitted.spec.request:
        raise EvidenceError("is not what the plan asked for", file=f"raw/{job}/request.json")
    identity = submitted.id if element is None else f"{submitted.id}_{element}"
    for report in reports:
        file = evidence.rank_file(job, report.rank, element)
        if report.job_id != identity:
            raise EvidenceError(f"is of job id {report.job_id}, not {identity}", file=file)
        if report.pid < 1 or not report.host:
            raise EvidenceError(f"host {report.host!r}, pid {report.pid}: no such process", file=file)
    return submitted, reports


def _one(report: RankReport, kind: type[R], *, file: str, done: JobDone) -> Said[R]:
    """One rank's report, held against how its job ended. Raises EvidenceError."""
    earliest, latest = done.started_at - CLOCK_SLACK_S, done.ended_at + CLOCK_SLACK_S
    if not earliest <= report.started_at <= report.ended_at <= latest:
        first = done.ranks[0].host if done.ranks else "the job's first node"
        problem = f"the rank's times lie outside its job's: the clock of {report.host} is not that of {first}"
        raise EvidenceError(problem, file=file)
    ended_on = next((rank.host for rank in done.ranks if rank.rank == report.rank), None)
    if report.host != ended_on:
        raise EvidenceError(f"says host {report.host!r}, and the job that it ended on {ended_on!r}", file=file)
    data = parse_record(kind, report.data, file=file)
    if data.rank != report.rank:
        raise EvidenceError(f"holds the data of rank {data.rank}", file=file)
    return Said(report=report.model_copy(update={"data": {}}), data=data, file=file)


def decide(
    identifier: str,
    claim: str,
    ok: bool,
    *,
    evidence: tuple[Evidence, ...],
    expected: Value = None,
    actual: Value = None,
    unit: str = "",
    derivation: str = "",
    next_action: str = "",
    nodes: Iterable[str] = (),
) -> Check:
    """A check that PASSED when `ok`, else FAILED. `next_action` and `nodes` (at fault) are kept only where it FAILED."""
    return Check(
        id=identifier,
        claim=claim,
        status=Status.PASSED if ok else Status.FAILED,
        expected=expected,
        actual=actual,
        unit=unit,
        evidence=evidence,
        derivation=derivation,
        next_action="" if ok else next_action,
        nodes=() if ok else tuple(dict.fromkeys(nodes)),
    )


def blamed(checks: Iterable[Check], node: str) -> list[Check]:
    """Checks about one node: those that FAILED show it to be at fault."""
    return [check.model_copy(update={"nodes": (node,)}) if check.status is Status.FAILED else check for check in checks]


def unproved(
    identifier: str,
    claim: str,
    *,
    evidence: tuple[Evidence, ...],
    expected: Value = None,
    actual: Value = None,
    unit: str = "",
    derivation: str = "",
    next_action: str = "",
) -> Check:
    """A check that the evidence does not settle: INCONCLUSIVE."""
    return Check(
        id=identifier,
        claim=claim,
        status=Status.INCONCLUSIVE,
        expected=expected,
        actual=actual,
        unit=unit,
        evidence=evidence,
        derivation=derivation,
        next_action=next_action,
    )


def summed_up(checks: Sequence[Check], passed: str, *, anyway: str) -> str:
    """One line for the ladder's view: `passed` only where every check did, else `anyway` and what did not pass."""
    open_ones = [check.id for check in checks if check.status is not Status.PASSED]
    return f"{anyway}; not so: {shorten(open_ones, 2)}" if open_ones or not checks else passed


def shorten(items: list[str], most: int = 4) -> str:
    """``a; b; c and 3 more``; empty for none."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + more
