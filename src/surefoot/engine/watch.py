"""One poller for all jobs of a climb: the number of questions does not grow with the number of jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from surefoot.errors import MachineryError
from surefoot.model.job import Job, JobState, JobStatus
from surefoot.scheduler.base import Scheduler

_FIRST_POLL_S = 0.05
_SLOWEST_POLL_S = 1.0
PATIENCE_S = 60.0
"""How long a scheduler may fail to answer before the jobs' states count as unknown."""


class JobWatch:
    """Polls the scheduler in a thread of its own and hands each job's states to who waits for it."""

    def __init__(self, scheduler: Scheduler, patience_s: float = PATIENCE_S) -> None:
        self.scheduler = scheduler
        self._patience_s = patience_s
        self._jobs: dict[str, Job] = {}
        self._states: dict[str, JobStatus] = {}
        self._error: MachineryError | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._poll, name="job-watch", daemon=True)
        self._thread.start()

    def wait(
        self,
        jobs: Sequence[Job],
        stop: threading.Event,
        on_change: Callable[[Job, JobStatus], None],
        on_tick: Callable[[Mapping[str, JobStatus]], bool],
    ) -> dict[str, JobStatus]:
        """Until every job is in a final state, `on_tick` says so, or `stop` is set (then states may not be final).

        `on_change` is called for each new state, reason or place, `on_tick` a few times a second
        with what is known of these jobs; True ends the wait. Raises the
        MachineryError that polling kept meeting: a scheduler that fails to answer now and then is
        asked again, and one that answers again is believed again.
        """
        seen: dict[str, JobStatus] = {}
        with self._changed:
            if not self._jobs:
                self._error = None  # it was told to those who waited then
            self._jobs.update({job.id: job for job in jobs})
            self._changed.notify_all()
        try:
            while not stop.is_set():
                with self._changed:
                    self._changed.wait(0.25)
                    if self._error is not None:
                        raise self._error
                    now = {job.id: self._states[job.id] for job in jobs if job.id in self._states}
                for job in jobs:
                    status = now.get(job.id)
                    if status is not None and (job.id not in seen or told(seen[job.id]) != told(status)):
                        on_change(job, status)
                seen = now
                if on_tick(seen):
                    break
                if len(seen) == len(jobs) and all(status.state.final for status in seen.values()):
                    break
            return seen
        finally:
            with self._changed:
                for job in jobs:
                    self._jobs.pop(job.id, None)
                    self._states.pop(job.id, None)

    def close(self) -> None:
        """Stop polling. Does not cancel anything."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(5)

    def _poll(self) -> None:
        pause = _FIRST_POLL_S
        failing_since: float | None = None
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    pause, failing_since, self._error = _FIRST_POLL_S, None, None
                    self._changed.wait()
                if self._closed:
                    return
                jobs = list(self._jobs.values())
            try:
                states = dict(self.scheduler.poll(jobs))
            except Exception as error:  # noqa: BLE001 - a thread that dies here would leave its waiters waiting
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since >= self._patience_s:
                    self._tell(_as_machinery(error))
                pause = min(pause * 2, _SLOWEST_POLL_S)
            else:
                failing_since = None
                news = self._take(states)
                pause = _FIRST_POLL_S if news else min(pause * 1.3, _SLOWEST_POLL_S)
                if all(s.state is JobState.RUNNING for s in states.values()):
                    pause = min(pause, 0.25)
            time.sleep(pause)

    def _tell(self, error: MachineryError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _take(self, states: dict[str, JobStatus]) -> bool:
        """Hand on what was answered; True when something is new."""
        with self._changed:
            self._error = None
            wanted = {i: s for i, s in states.items() if i in self._jobs}
            news = any(self._states.get(i) != s for i, s in wanted.items())
            self._states.update(wanted)
            self._changed.notify_all()
        return news


def told(status: JobStatus) -> tuple[JobState, str, str, int]:
    """What of a job's status is news when it changes: not that it has been running for a second longer."""
    return status.state, status.reason, status.nodes, round((status.expected_start or 0) / 300)


def _as_machinery(error: Exception) -> MachineryError:
    if isinstance(error, MachineryError):
        return error
    return MachineryError(
        f"polling broke: {type(error).__name__}: {error}", next_action="report this with the run folder"
    )
