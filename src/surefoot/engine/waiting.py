"""Jobs that wait in the scheduler's queue: what they wait for is told, and waiting ends as the rung's policy says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from surefoot.errors import MachineryError, SchedulerError
from surefoot.model.events import Event, Note
from surefoot.model.job import EndCause, Job, JobState, JobStatus
from surefoot.model.ladder import Pending
from surefoot.model.run import Shrunk
from surefoot.scheduler.base import Scheduler, Waiting
from surefoot.scheduler.slurm.pending import UNAVAILABLE, overdue, what_for, what_then

EXPLAIN_AFTER_S = 20.0
"""A job that has waited so long is told of, with what holds its nodes."""
LOOK_AGAIN_S = 60.0
"""How often it is asked whether enough nodes work at all."""
NODES_DOWN_S = 60.0
"""Without a policy, nodes that do not work are waited for this long: one that reboots comes back."""


class ShrinkError(Exception):
    """The attempt is to be made again with fewer nodes. Not an error of anybody's: a way out of a step."""

    def __init__(self, shrunk: Shrunk) -> None:
        super().__init__(shrunk.reason)
        self.shrunk = shrunk


@dataclass
class _Wait:
    """One submission's wait."""

    since: float
    look_at: float
    down_since: float | None = None
    told: bool = False
    told_down: str = ""


@dataclass
class Patience:
    """Watches how long the jobs of one step wait. Used by one thread."""

    scheduler: Scheduler
    rung: str
    policy: Pending | None
    emit: Callable[[Event], None]
    clock: Callable[[], float] = time.monotonic
    given_up: dict[str, JobStatus] = field(default_factory=dict)
    """By id: jobs that were cancelled because they waited, and what is recorded of them."""
    _waits: dict[str, _Wait] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)

    def tick(self, jobs: Mapping[str, Job], states: Mapping[str, JobStatus]) -> list[Job]:
        """Look at the jobs (by name) that wait. Jobs that were submitted in the place of one that was moved.

        Raises ShrinkError where the whole step is to be asked anew, MachineryError.
        """
        moved = []
        for job in jobs.values():
            status = states.get(job.id)
            if status is None or job.id in self.given_up:
                continue
            if status.state is not JobState.PENDING:
                self._waits.pop(job.id, None)  # one that is requeued begins to wait anew
                continue
            again = self._look(job, status)
            if again is not None:
                moved.append(again)
        return moved

    def _look(self, job: Job, status: JobStatus) -> Job | None:
        now = self.clock()
        first = EXPLAIN_AFTER_S if status.word not in UNAVAILABLE else 0.0
        wait = self._waits.setdefault(job.id, _Wait(now, now + first))
        if status.word in UNAVAILABLE and not wait.told:
            wait.look_at = min(wait.look_at, now)
        waited_s = now - wait.since
        if overdue(self.policy, waited_s, status.word):
            return self._end_waiting(job, status, waited_s)
        if now >= wait.look_at:
            self._explain(job, status, wait)
        return None

    def _explain(self, job: Job, status: JobStatus, wait: _Wait) -> None:
        """Tell once what it waits for, and of nodes that are down as soon as they are why."""
        now = self.clock()
        seen = self._ask(job)
        if seen is None:
            wait.look_at = now + LOOK_AGAIN_S / 4
            return
        wait.look_at = now + (LOOK_AGAIN_S if not seen.down else LOOK_AGAIN_S / 4)
        wait.down_since = (wait.down_since or now) if seen.down else None
        if not wait.told or (seen.down and seen.down != wait.told_down):
            wait.told, wait.told_down = True, seen.down
            self._say(job, f"waits: {what_for(status, seen, time.time())}")
        down_s = now - wait.down_since if wait.down_since is not None else 0.0
        if self.policy is None and seen.down and down_s >= NODES_DOWN_S:
            reason = f"given up after {now - wait.since:.0f} s: {what_for(status, seen, time.time())}"
            self._give_up(job, reason, EndCause.NODE)

    def _end_waiting(self, job: Job, status: JobStatus, waited_s: float) -> Job | None:
        seen = self._ask(job) or Waiting()
        moved = job.spec.name in self._moved
        step = what_then(job.spec, self.policy, waited_s, status, seen, moved=moved, now=time.time())
        if step.then == "shrink":
            raise ShrinkError(Shrunk(nodes=step.nodes, reason=f"job {job.spec.name!r} ({job.id}) {step.reason}"))
        reason = step.reason
        if step.then == "move":
            assert self.policy is not None
            try:
                return self._move(job, self.policy.partition, reason)
            except SchedulerError as error:
                reason = f"{reason}; it could not be moved to partition {self.policy.partition!r}: {error.message}"
        self._give_up(job, reason, EndCause.NODE if seen.down else EndCause.WAITED)
        return None

    def _move(self, job: Job, partition: str, reason: str) -> Job:
        again = self.scheduler.move(job, partition, f"{reason}; moved to partition {partition}")
        self._moved.add(job.spec.name)
        self._waits.pop(job.id, None)
        self._say(job, f"{reason}; moved to partition {partition} as job {again.id}")
        return again

    def _give_up(self, job: Job, reason: str, cause: EndCause) -> None:
        self.given_up[job.id] = JobStatus(state=JobState.CANCELLED, reason=f"{reason}; cancelled", cause=cause)
        self._say(job, f"{reason}; cancelled")
        self.scheduler.cancel([job])

    def _ask(self, job: Job) -> Waiting | None:
        """None where the scheduler does not answer: then there is less to tell."""
        with contextlib.suppress(MachineryError):
            return self.scheduler.why_waiting(job)
        return None

    def _say(self, job: Job, text: str) -> None:
        self.emit(Note.now(f"{self.rung}: job {job.spec.name!r} ({job.id}) {text}"))
