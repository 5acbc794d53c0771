"""What Slurm's states mean, and which of three witnesses is believed. Pure.

The witnesses of a job are the queue (squeue), the accounting (sacct) and ``done.json``, which the
job itself writes last. Each may lag, forget or be silent; `reconcile` is the one place that says
what follows.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.errors import RequestError
from surefoot.hostlist import expand
from surefoot.model.job import EndCause, JobDone, JobState, JobStatus

ACTIVE: dict[str, JobState] = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
}
FINAL: dict[str, tuple[JobState, EndCause | None, str]] = {
    "COMPLETED": (JobState.COMPLETED, None, ""),
    "FAILED": (JobState.FAILED, EndCause.EXIT, "failed"),
    "CANCELLED": (JobState.CANCELLED, EndCause.CANCELLED, "cancelled"),
    "REVOKED": (JobState.CANCELLED, EndCause.CANCELLED, "revoked: another cluster of the federation runs it"),
    "TIMEOUT": (JobState.TIMEOUT, EndCause.TIME, "time limit"),
    "DEADLINE": (JobState.TIMEOUT, EndCause.TIME, "its deadline passed"),
    "OUT_OF_MEMORY": (JobState.FAILED, EndCause.MEMORY, "out of memory"),
    "NODE_FAIL": (JobState.FAILED, EndCause.NODE, "a node failed"),
    "BOOT_FAIL": (JobState.FAILED, EndCause.NODE, "a node did not boot"),
    "RECONFIG_FAIL": (JobState.FAILED, EndCause.NODE, "a node could not be reconfigured"),
    "LAUNCH_FAILED": (JobState.FAILED, EndCause.LAUNCH, "could not be started"),
    "PREEMPTED": (JobState.CANCELLED, EndCause.PREEMPTED, "preempted"),
}

CLOCK_SLACK_S = 60.0
"""Clocks of the nodes, the controller and this machine may differ by this much."""
DONE_GRACE_S = 60.0
"""Shared storage may show a new file this late: NFS keeps what it knows of a folder for up to 60 s (acdirmax)."""
BAD_END_GRACE_S = 10.0
"""The same for a job that Slurm says ended badly: there it is only told why, later."""
LOST_AFTER_S = 120.0
"""A job that no witness knows for this long is lost. Accounting was seen to lag by seconds."""


@dataclass(frozen=True)
class QueueRow:
    """One job as squeue shows it. Times are Unix times; None: not given."""

    id: str
    state: str
    reason: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    """Of a pending job: when Slurm means to start it."""
    elapsed_s: float | None = None
    limit_s: float | None = None
    nodes: str = ""
    name: str = ""
    tag: str = ""


@dataclass(frozen=True)
class AccountingRow:
    """One job, or one of its lives, as sacct shows it."""

    id: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    nodes: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Witnesses:
    """What is known of one job at one moment."""

    job_id: str
    submitted_at: float
    """When we handed it over: an accounting row from well before it is of an older job with this id."""
    now: float
    answered: bool
    """The queue answered; False: the controller was silent, and `queue` says nothing."""
    queue: QueueRow | None = None
    accounting: Sequence[AccountingRow] = ()
    done: JobDone | None = None
    ranks: int = 0
    """How many were asked for; 0: not known."""
    requeue: bool = False
    silent_since: float | None = None
    """When it was first seen that the queue does not know it as active."""
    before: JobStatus | None = None


def reconcile(seen: Witnesses) -> JobStatus:
    """The job's state.

    - A job that the queue has as active is as the queue says, whatever accounting remembers of an
      earlier life (preempted, then requeued), and whatever lies in its folder while its ranks run.
    - Then ``done.json`` alone is enough. Slurm's verdict adds the cause, never a success.
    - Success needs ``done.json``: what Slurm calls COMPLETED without it is LOST.
    - No answer changes nothing. Not being known is LOST only after a while.
    """
    done = _own_done(seen)
    row = seen.queue if seen.answered else None
    if row is not None and row.state not in FINAL:
        state = ACTIVE.get(row.state, JobState.RUNNING)
        # Only once the batch script has ended: while ranks run, they could have written it themselves.
        if done is not None and row.state == "COMPLETING" and not _of_earlier_life(done, row.started_at):
            return _slurm_knows_why(seen, done, row.nodes) or _with_done(done, None, row.nodes)
        return _active(row, state)
    return _over(seen, row, done)


def _over(seen: Witnesses, row: QueueRow | None, done: JobDone | None) -> JobStatus:
    """A job that the queue does not have as active, or of which it says nothing."""
    if not seen.answered:
        return _silent(seen)
    if row is not None and row.state == "PREEMPTED" and seen.requeue and done is None and not _waited(seen):
        return JobStatus(state=JobState.PENDING, reason="preempted; Slurm puts it back into the queue")
    ended = _ending(seen, row)
    if done is not None and not (ended and _of_earlier_life(done, ended.started_at, ended.word)):
        hold = None if ended else _slurm_knows_why(seen, done, "")
        return hold or _with_done(done, ended, ended.nodes if ended else "")
    if ended is not None:
        return _without_done(seen, ended)
    return _unknown(seen)


@dataclass(frozen=True)
class _Ended:
    """Slurm's verdict on a job that is over."""

    word: str
    nodes: str
    reason: str
    started_at: float | None
    detail: str = ""

    @property
    def started(self) -> bool:
        return self.nodes not in ("", "None assigned")

    @property
    def meaning(self) -> tuple[JobState, EndCause | None, str]:
        state, cause, words = FINAL[self.word]
        if self.word != "FAILED":
            return state, cause, words
        if self.detail == _LAUNCH_DETAIL:
            return (
                state,
                EndCause.LAUNCH,
                f"Slurm could not start it on {_first(self.nodes)}: folder, output file or user there",
            )
        if self.detail in _NO_INTERPRETER:
            words = f"the cluster file's python {_NO_INTERPRETER[self.detail]} on {_first(self.nodes)}"
            return state, EndCause.LAUNCH, words
        if self.detail:
            return state, cause, f"failed with exit code and signal {self.detail}"
        if raised := _RAISED.fullmatch(self.reason):
            words = f"failed: its batch script ended with signal {raised.group(1)} ({raised.group(2)})"
        elif self.reason == "JobLaunchFailure":
            words = "Slurm could not start it, or its batch script was killed by a signal"
        return state, cause, words


_NO_INTERPRETER = {"126:0": "cannot be run (exit code 126)", "127:0": "is not there (exit code 127)"}
"""How the batch script ends, on the first node of the job, where the launcher's interpreter does not start."""
_RAISED = re.compile(r"RaisedSignal:(\d+)\((.*)\)")
"""Squeue's reason since 24.11 at the latest; 20.11 calls the same JobLaunchFailure."""
_LAUNCH_DETAIL = "0:53"
"""Slurm's own ending for a job whose output file it could not open."""


def _first(nodes: str) -> str:
    """The node that the batch script runs on: the first."""
    try:
        return expand(nodes)[0]
    except (RequestError, IndexError):
        return f"the first node of {nodes or 'the job'}"


def _own_done(seen: Witnesses) -> JobDone | None:
    """``done.json`` if it is this job's: not of an older job with this id, nor of another."""
    done = seen.done
    if done is None or done.id != seen.job_id or done.started_at < seen.submitted_at - CLOCK_SLACK_S:
        return None
    return done


def _of_earlier_life(done: JobDone, started_at: float | None, word: str = "") -> bool:
    """Whether ``done.json`` ended before Slurm started the job's last life.

    A node's clock may be behind the controller's: within the slack it counts where Slurm's last `word`
    says the same of success. (A launcher removes what an earlier life left, so one that COMPLETED has
    written its own.)
    """
    if started_at is None or done.ended_at >= started_at - 1:
        return False
    agree = (word == "COMPLETED") == (done.state is JobState.COMPLETED)
    return not (word and agree and done.ended_at >= started_at - CLOCK_SLACK_S)


def _ending(seen: Witnesses, row: QueueRow | None) -> _Ended | None:
    """The queue's last word, else accounting's on the last life of this job; None where there is none."""
    mine = [
        entry
        for entry in seen.accounting
        if entry.id == seen.job_id
        and (entry.submitted_at is None or entry.submitted_at >= seen.submitted_at - CLOCK_SLACK_S)
    ]
    last = max(enumerate(mine), key=lambda item: (*_moments(item[1]), item[0]))[1] if mine else None
    detail = f"{last.exit_code}:{last.signal}" if last is not None and last.exit_code is not None else ""
    if row is not None:
        same = last is not None and last.state == row.state
        return _Ended(row.state, row.nodes, row.reason, row.started_at, detail if same else "")
    if last is None or last.state not in FINAL:
        return None
    return _Ended(last.state, last.nodes, last.reason, last.started_at, detail)


def _moments(entry: AccountingRow) -> tuple[float, float]:
    return entry.submitted_at or 0, entry.started_at or 0


def _active(row: QueueRow, state: JobState) -> JobStatus:
    reason = "" if row.reason in ("None", "") else row.reason
    if row.state not in ("PENDING", "RUNNING"):
        word = row.state.lower().replace("_", " ")
        known = word if row.state in ACTIVE else f"Slurm says {row.state!r}, which this version does not know"
        reason = f"{known} ({reason})" if reason else known
    return JobStatus(
        state=state,
        reason=reason,
        nodes=row.nodes,
        elapsed_s=row.elapsed_s if state is JobState.RUNNING else None,
        expected_start=row.started_at if state is JobState.PENDING else None,
    )


def _with_done(done: JobDone, ended: _Ended | None, nodes: str) -> JobStatus:
    """The job's own word; where it did not go well, with Slurm's for the cause."""
    state, reason = done.state, done.reason
    cause: EndCause | None = None
    if state is JobState.TIMEOUT:
        cause = EndCause.TIME
    elif state is JobState.CANCELLED:
        cause = EndCause.CANCELLED
    elif state is not JobState.COMPLETED:
        cause = EndCause.EXIT
    if ended is not None and state is not JobState.COMPLETED and ended.word not in ("COMPLETED", "FAILED"):
        slurm_state, cause, words = ended.meaning
        # The job knows that it was asked to end; Slurm knows why.
        state = slurm_state
        reason = f"{words}; the job says: {reason}" if reason and reason != words else words
    elif ended is not None and state is JobState.COMPLETED and ended.word != "COMPLETED":
        reason = f"every rank ended with 0; Slurm says {ended.word}"
    return JobStatus(
        state=state, reason=reason, done=done, cause=cause, nodes=nodes, elapsed_s=done.ended_at - done.started_at
    )


def _slurm_knows_why(seen: Witnesses, done: JobDone, nodes: str) -> JobStatus | None:
    """A job may not know why it ended: Slurm's word is then waited for, for a while. None: no need, or it is over.

    - Slurm asked it to end (cancelled, its limit was changed, preempted). Slurm tells the ranks before
      it tells the batch script: where a TERM was quick, the job only knows that a rank died of it.
    - A rank said nothing: its node may have failed. Srun then ends, with 0 even, and Slurm says so only
      when it has cleaned up.
    """
    told = done.state is JobState.CANCELLED
    felt = done.state is JobState.FAILED and any(rank.signal == signal.SIGTERM for rank in done.ranks)
    mute = done.state is JobState.FAILED and len(done.ranks) < seen.ranks
    if not (told or felt or mute) or seen.now - done.ended_at > (DONE_GRACE_S if mute else BAD_END_GRACE_S):
        return None
    said = "a rank of it said nothing" if mute else "Slurm asked it to end"
    return _waiting(seen, nodes, f"{said}, and Slurm has not said why yet")


def _without_done(seen: Witnesses, ended: _Ended) -> JobStatus:
    state, cause, words = ended.meaning
    if state is JobState.COMPLETED:
        if _silent_for(seen) < DONE_GRACE_S:
            return _waiting(seen, ended.nodes, "it ended; its done.json is not to be seen yet")
        return JobStatus(
            state=JobState.LOST,
            reason=_too_old(seen, ended)
            or f"Slurm says COMPLETED, but for {DONE_GRACE_S:g} s there was no done.json: that proves nothing",
            cause=EndCause.LOST,
            nodes=ended.nodes,
        )
    if ended.started and _silent_for(seen) < BAD_END_GRACE_S:
        return _waiting(seen, ended.nodes, f"{words}; its done.json is not to be seen yet")
    return JobStatus(state=state, reason=f"{words}; it left no done.json", cause=cause, nodes=ended.nodes)


def _too_old(seen: Witnesses, ended: _Ended) -> str:
    """Why a ``done.json`` that is there does not count: it is of before the job started. Empty where there is none."""
    done, started_at = _own_done(seen), ended.started_at
    if done is None or started_at is None:
        return ""
    host = done.ranks[0].host if done.ranks else "its first node"
    return (
        f"Slurm says COMPLETED, and done.json ended {started_at - done.ended_at:.0f} s before Slurm started the job: "
        f"the clock of {host} is behind the controller's, or it is of an earlier life of the job"
    )


def _unknown(seen: Witnesses) -> JobStatus:
    if _silent_for(seen) < LOST_AFTER_S:
        return _waiting(seen, "", "it left the queue; neither accounting nor done.json tell how it ended yet")
    return JobStatus(
        state=JobState.LOST,
        reason=f"for {LOST_AFTER_S:g} s neither the queue nor accounting nor done.json knew it",
        cause=EndCause.LOST,
    )


def _silent(seen: Witnesses) -> JobStatus:
    before = seen.before or JobStatus(state=JobState.PENDING)
    return before.model_copy(update={"reason": "Slurm's controller does not answer; as last seen"})


def _waiting(seen: Witnesses, nodes: str, reason: str) -> JobStatus:
    """Over, as it seems, but not known how: it stays what it was, never PENDING again once it ran."""
    state = JobState.RUNNING
    if seen.before is not None and seen.before.state is JobState.PENDING and not nodes:
        state = JobState.PENDING
    return JobStatus(state=state, reason=reason, nodes=nodes)


def _silent_for(seen: Witnesses) -> float:
    return 0.0 if seen.silent_since is None else seen.now - seen.silent_since


def _waited(seen: Witnesses) -> bool:
    return _silent_for(seen) >= DONE_GRACE_S


_WORST = (JobState.LOST, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED, JobState.COMPLETED)


def combine(elements: Sequence[JobStatus]) -> JobStatus:
    """An array's state from its elements': over when all are, and then as bad as the worst."""
    assert elements
    states = [element.state for element in elements]
    if not all(state.final for state in states):
        waiting = all(state is JobState.PENDING for state in states)
        over = sum(state.final for state in states)
        reason = next((e.reason for e in elements if e.reason and not e.state.final), "")
        return JobStatus(
            state=JobState.PENDING if waiting else JobState.RUNNING,
            reason=f"{over} of {len(states)} over{'; ' + reason if reason else ''}",
        )
    worst = next(state for state in _WORST if state in states)
    first = states.index(worst)
    bad = sum(state is not JobState.COMPLETED for state in states)
    reason = f"{bad} of {len(states)} not completed; the first: {elements[first].reason}" if bad else ""
    return elements[first].model_copy(update={"reason": reason, "done": None})
