"""Three witnesses of a job, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surefoot.model.job import EndCause, JobDone, JobState, JobStatus, RankExit
from surefoot.scheduler.slurm.states import (
    ACTIVE,
    BAD_END_GRACE_S,
    DONE_GRACE_S,
    FINAL,
    LOST_AFTER_S,
    AccountingRow,
    QueueRow,
    Witnesses,
    combine,
    reconcile,
)

T = 1_000_000.0
RAN = JobStatus(state=JobState.RUNNING)


def done(state: JobState = JobState.COMPLETED, **changes: object) -> JobDone:
    code = 0 if state is JobState.COMPLETED else 7
    ranks = (RankExit(rank=0, host="n1", exit_code=code),)
    fields = {
        "id": "12",
        "name": "j",
        "state": state,
        "started_at": T + 1,
        "ended_at": T + 9,
        "ranks": ranks,
        **changes,
    }
    return JobDone.model_validate(fields)


def row(state: str, **changes: object) -> QueueRow:
    return replace(QueueRow(id="12", state=state, submitted_at=T, started_at=T + 1, nodes="n1"), **changes)  # type: ignore[arg-type]


def entry(state: str, **changes: object) -> AccountingRow:
    fields = AccountingRow(id="12", state=state, submitted_at=T, started_at=T + 1, ended_at=T + 9, nodes="n1")
    return replace(fields, **changes)  # type: ignore[arg-type]


def seen(**changes: object) -> Witnesses:
    base = Witnesses(job_id="12", submitted_at=T, now=T + 30, answered=True, silent_since=T + 30, before=RAN)
    return replace(base, **changes)  # type: ignore[arg-type]


LONG = T + 30 + LOST_AFTER_S
PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, LOST = JobState

TERMED = done(FAILED, ranks=(RankExit(rank=0, host="n1", signal=15),))
"""Slurm told the rank, and had not told the batch script when that ended."""
CASES: list[tuple[str, Witnesses, JobState, EndCause | None]] = [
    ("waits", seen(queue=row("PENDING", nodes="")), PENDING, None),
    ("runs", seen(queue=row("RUNNING")), RUNNING, None),
    ("runs: a done.json then may be a rank's own", seen(queue=row("RUNNING"), done=done()), RUNNING, None),
    ("its script has ended, and says how", seen(queue=row("COMPLETING"), done=done()), COMPLETED, None),
    ("is being cleaned up after a failure", seen(queue=row("COMPLETING"), done=done(FAILED)), FAILED, EndCause.EXIT),
    ("suspended", seen(queue=row("SUSPENDED")), RUNNING, None),
    ("a state that nobody knows is not an end", seen(queue=row("SOMETHING_NEW")), RUNNING, None),
    ("over, all say so", seen(queue=row("COMPLETED"), accounting=[entry("COMPLETED")], done=done()), COMPLETED, None),
    ("gone from the queue, accounting empty, done is there", seen(done=done()), COMPLETED, None),
    ("done without accounting, failed", seen(done=done(FAILED)), FAILED, EndCause.EXIT),
    ("COMPLETED without done is not believed yet", seen(queue=row("COMPLETED")), RUNNING, None),
    ("nor ever", seen(queue=row("COMPLETED"), now=T + 30 + DONE_GRACE_S), LOST, EndCause.LOST),
    ("the same from accounting", seen(accounting=[entry("COMPLETED")], now=T + 30 + DONE_GRACE_S), LOST, EndCause.LOST),
    ("failed, done may still show", seen(queue=row("FAILED")), RUNNING, None),
    ("failed, no done", seen(queue=row("FAILED"), now=T + 30 + BAD_END_GRACE_S), FAILED, EndCause.EXIT),
    ("out of memory", seen(accounting=[entry("OUT_OF_MEMORY")], now=LONG), FAILED, EndCause.MEMORY),
    ("time limit", seen(accounting=[entry("TIMEOUT")], now=LONG), TIMEOUT, EndCause.TIME),
    ("node failed", seen(queue=row("NODE_FAIL"), now=LONG), FAILED, EndCause.NODE),
    (
        "could not start",
        seen(accounting=[entry("FAILED", exit_code=0, signal=53)], now=LONG),
        FAILED,
        EndCause.LAUNCH,
    ),
    ("cancelled before it started: at once", seen(queue=row("CANCELLED", nodes="")), CANCELLED, EndCause.CANCELLED),
    ("node failed, and the job said so too", seen(queue=row("NODE_FAIL"), done=done(CANCELLED)), FAILED, EndCause.NODE),
    ("asked to end: time limit", seen(queue=row("TIMEOUT"), done=done(CANCELLED)), TIMEOUT, EndCause.TIME),
    ("asked to end, why is not known yet", seen(queue=row("COMPLETING"), done=done(CANCELLED), now=T + 10), RUNNING, None),
    ("a rank died of TERM, why is not known yet", seen(queue=row("COMPLETING"), done=TERMED, now=T + 10), RUNNING, None),
    ("a rank died of TERM: it was cancelled", seen(queue=row("CANCELLED"), done=TERMED), CANCELLED, EndCause.CANCELLED),
    ("a rank died of TERM of its own", seen(queue=row("FAILED"), done=TERMED), FAILED, EndCause.EXIT),
    ("a rank died of TERM, why stays unknown", seen(done=TERMED, now=T + 30), FAILED, EndCause.EXIT),
    ("a rank said nothing, why is not known yet", seen(queue=row("COMPLETING"), done=done(FAILED, ranks=()), ranks=2), RUNNING, None),
    ("a rank said nothing: its node failed", seen(queue=row("NODE_FAIL"), done=done(FAILED, ranks=()), ranks=2), FAILED, EndCause.NODE),
    ("a rank said nothing, why stays unknown",
     seen(queue=row("COMPLETING"), done=done(FAILED, ranks=()), ranks=2, now=T + 30 + DONE_GRACE_S), FAILED, EndCause.EXIT),
    ("asked to end, why stays unknown", seen(done=done(CANCELLED), now=T + 30), CANCELLED, EndCause.CANCELLED),
    ("every rank ended with 0, then the node died", seen(queue=row("NODE_FAIL"), done=done()), COMPLETED, None),
    ("empty accounting just after the end", seen(), RUNNING, None),
    ("purged everywhere", seen(now=LONG), LOST, EndCause.LOST),
    ("accounting lags: still running there", seen(accounting=[entry("RUNNING")]), RUNNING, None),
    ("accounting has it running for ever", seen(accounting=[entry("RUNNING")], now=LONG), LOST, EndCause.LOST),
    ("an older job with this id", seen(accounting=[entry("FAILED", submitted_at=T - 9e5)], now=LONG), LOST, EndCause.LOST),
    ("an older job's done.json with this id", seen(done=done(started_at=T - 900, ended_at=T - 800)), RUNNING, None),
    ("another job's done.json", seen(done=done(id="11")), RUNNING, None),
    ("preempted, then requeued: accounting still says PREEMPTED",
     seen(queue=row("PENDING", nodes=""), accounting=[entry("PREEMPTED")], requeue=True), PENDING, None),
    ("preempted, requeued and running again; done of its earlier life",
     seen(queue=row("RUNNING", started_at=T + 20), done=done(CANCELLED), requeue=True), RUNNING, None),
    ("requeued and waiting; done of its earlier life", seen(queue=row("PENDING"), done=done(FAILED)), PENDING, None),
    ("preempted, the requeue is to come", seen(queue=row("PREEMPTED"), requeue=True), PENDING, None),
    ("preempted for good", seen(queue=row("PREEMPTED"), now=LONG), CANCELLED, EndCause.PREEMPTED),
    ("two lives in accounting: the last counts",
     seen(accounting=[entry("NODE_FAIL"), entry("FAILED", submitted_at=T + 15, started_at=T + 16)], now=LONG),
     FAILED, EndCause.EXIT),
    ("the last life in accounting ended, done is of the first",
     seen(accounting=[entry("FAILED", started_at=T + 20)], done=done(), now=LONG), FAILED, EndCause.EXIT),
    ("controller silent", seen(answered=False), RUNNING, None),
    ("controller silent for long: nothing follows", seen(answered=False, now=LONG), RUNNING, None),
    ("controller silent, done is there: it may run", seen(answered=False, done=done()), RUNNING, None),
    ("controller silent from the start", seen(answered=False, before=None), PENDING, None),
]  # fmt: skip


@pytest.mark.parametrize(("case", "state", "cause"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_of_three_witnesses_this_follows(case: Witnesses, state: JobState, cause: EndCause | None) -> None:
    status = reconcile(case)
    assert (status.state, status.cause) == (state, cause), status


@pytest.mark.parametrize(("case", "state"), [(c[1], c[2]) for c in CASES], ids=[c[0] for c in CASES])
def test_no_job_is_completed_without_its_own_word(case: Witnesses, state: JobState) -> None:
    assert reconcile(replace(case, done=None)).state is not COMPLETED
    if state is COMPLETED:
        assert reconcile(case).done == case.done


def test_every_bad_end_says_why() -> None:
    for _, case, state, _ in CASES:
        if state in (FAILED, TIMEOUT, LOST) and case.done is None:
            assert reconcile(case).reason


@pytest.mark.parametrize("word", sorted(FINAL))
def test_a_final_word_of_slurm_is_never_an_active_one(word: str) -> None:
    assert word not in ACTIVE
    assert reconcile(seen(queue=row(word), now=LONG)).state.final


def test_an_array_is_as_bad_as_its_worst_element_and_over_when_all_are() -> None:
    good, bad = JobStatus(state=COMPLETED), JobStatus(state=TIMEOUT, reason="limit", cause=EndCause.TIME)
    assert combine([good, good]).state is COMPLETED
    assert (combine([good, bad]).state, combine([good, bad]).cause) == (TIMEOUT, EndCause.TIME)
    assert combine([good, bad]).reason == "1 of 2 not completed; the first: limit"
    assert combine([good, RAN]).state is RUNNING
    assert combine([JobStatus(state=PENDING, reason="Priority")] * 2).reason == "0 of 2 over; Priority"


@pytest.mark.parametrize(
    ("code", "nodes", "words"),
    [
        (127, "n[2-3]", "the cluster file's python is not there (exit code 127) on n2; it left no done.json"),
        (126, "n7", "the cluster file's python cannot be run (exit code 126) on n7; it left no done.json"),
        (
            127,
            "n[",
            "the cluster file's python is not there (exit code 127) on the first node of n[; it left no done.json",
        ),
        (1, "n1", "failed with exit code and signal 1:0; it left no done.json"),
    ],
)
def test_a_batch_script_whose_interpreter_did_not_start_is_told_with_its_node(
    code: int, nodes: str, words: str
) -> None:
    last = entry("FAILED", exit_code=code, signal=0, nodes=nodes)
    status = reconcile(seen(accounting=[last], now=T + 30 + BAD_END_GRACE_S))
    assert status.state is FAILED
    assert status.cause is (EndCause.EXIT if code == 1 else EndCause.LAUNCH)
    assert status.reason == words


@pytest.mark.parametrize(
    ("word", "state", "follows"),
    [("COMPLETED", COMPLETED, COMPLETED), ("FAILED", TIMEOUT, TIMEOUT), ("FAILED", COMPLETED, FAILED)],
)
def test_a_done_json_of_a_node_whose_clock_is_behind_counts_where_slurm_says_the_same_of_success(
    word: str, state: JobState, follows: JobState
) -> None:
    early = done(state, started_at=T - 29, ended_at=T - 21)
    status = reconcile(seen(queue=row(word), done=early, now=LONG, silent_since=T + 9))
    assert status.state is follows


def test_a_done_json_of_well_before_the_job_started_is_no_witness_and_the_clock_is_named() -> None:
    early = done(started_at=T - 59, ended_at=T - 61)
    status = reconcile(seen(queue=row("COMPLETED"), done=early, now=LONG, silent_since=T + 9))
    assert status.state is LOST
    assert "done.json ended 62 s before Slurm started the job: the clock of n1 is behind" in status.reason
