"""Running the jobs of one step: submit, wait, try again what a node failed, leave nothing behind, bring home."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.connection.base import Connection
from surefoot.engine.store import write_record
from surefoot.engine.waiting import Patience
from surefoot.engine.watch import JobWatch, told
from surefoot.errors import MachineryError
from surefoot.model.events import Event, JobChanged, Note, Progress
from surefoot.model.job import EndCause, Job, JobState, JobStatus
from surefoot.model.ladder import Pending
from surefoot.model.run import JobsStep
from surefoot.paths import AttemptPaths
from surefoot.scheduler.base import Scheduler

_READ_SHARE = 0.03
"""Reading progress may take this share of the time, so that a slow link isn't busy with it."""
CANCEL_ANYWAY_S = 60.0
"""A job that is to be cancelled, and has been running so long without progress, is cancelled all the same."""


@dataclass
class JobsRunner:
    """Runs steps of jobs for one rung."""

    connection: Connection
    watch: JobWatch
    emit: Callable[[Event], None]
    stop: threading.Event
    rung: str
    pending: Pending | None = None
    """How long its jobs may wait."""

    def run(self, step: JobsStep, paths: AttemptPaths, jobs: list[Job]) -> bool:
        """Every job of `step` to its end; True when all ended as expected.

        `jobs` gets each submission, also of what was tried again. Whatever happens, nothing keeps
        running, and what the jobs left lies in `paths`. Raises MachineryError, and ShrinkError where
        the step is to be asked anew with fewer nodes.
        """
        current: dict[str, Job] = {}
        states: dict[str, JobStatus] = {}
        try:
            for spec in step.jobs:
                if self.stop.is_set():
                    return False
                current[spec.name] = self.watch.scheduler.submit(spec)
                jobs.append(current[spec.name])
            self._wait(current, states, jobs, _Cancelling(self.watch.scheduler, step.cancel))
        finally:
            self._end(list(current.values()), states, paths)
        if self.stop.is_set():
            return False
        self._refuse_lost(list(current.values()), states)
        return all(as_expected(job, states[job.id]) for job in current.values())

    def _wait(
        self, current: dict[str, Job], states: dict[str, JobStatus], jobs: list[Job], cancelling: _Cancelling
    ) -> None:
        """Until everything is over. `current` holds the last submission of each job."""
        progress = _ProgressReader(self.connection, self.rung, list(current.values()), self.emit)
        patience = Patience(self.watch.scheduler, self.rung, self.pending, self.emit)
        announced: dict[str, object] = {}
        open_jobs = set(current)

        def tick(now: Mapping[str, JobStatus]) -> bool:
            states.update(now)
            progress.tick()
            cancelling.tick(current, progress.seen)
            moved = patience.tick({name: current[name] for name in open_jobs}, now)
            for job in moved:
                current[job.spec.name] = job
                jobs.append(job)
            return bool(moved) or any(status.cause is EndCause.NODE for status in now.values())

        def changed(job: Job, status: JobStatus) -> None:
            if announced.get(job.id) != told(status):  # it is told of again each time that waiting begins
                announced[job.id] = told(status)
                self._announce(job, status)
                cancelling.changed(job, status)

        while open_jobs:
            waited = self.watch.wait([current[name] for name in sorted(open_jobs)], self.stop, changed, tick)
            states.update(waited)
            if self.stop.is_set():
                return
            over = {name for name in open_jobs if (s := states.get(current[name].id)) is not None and s.state.final}
            for name in sorted(over):
                again = self._after(current[name], states, patience)
                if again is not None:
                    current[name] = again
                    jobs.append(again)
                else:
                    open_jobs.discard(name)

    def _after(self, job: Job, states: dict[str, JobStatus], patience: Patience) -> Job | None:
        """What follows when a job is over: its next try, or nothing."""
        given_up = patience.given_up.get(job.id)
        if given_up is not None and states[job.id].state is JobState.CANCELLED:
            states[job.id] = given_up
            return None
        retried = self.watch.scheduler.try_again(job, states[job.id])
        if retried is None:
            return None
        self.emit(Note.now(f"{self.rung}: job {job.spec.name!r} ({job.id}): {retried.reason}, as job {retried.job.id}"))
        return retried.job

    def _end(self, submitted: Sequence[Job], states: Mapping[str, JobStatus], paths: AttemptPaths) -> None:
        """Nothing keeps running into a folder that is sealed; then what there is comes home, of each job.

        Raises MachineryError, the first, after all has been tried.
        """
        left = [job for job in submitted if job.id not in states or not states[job.id].state.final]
        broken: list[MachineryError] = []
        try:
            if left:
                self.watch.scheduler.cancel(left)
        except MachineryError as error:
            broken.append(error)
        for job in submitted:
            try:
                self._keep(job, states.get(job.id), paths)
            except MachineryError as error:
                broken.append(error)
        if broken:
            raise broken[0]

    def _keep(self, job: Job, status: JobStatus | None, paths: AttemptPaths) -> None:
        """The scheduler's word on a job, where it says more than the job's own, and what the job left."""
        if status is not None and status.state.final and not _told_by_done(status):
            write_record(paths.job_status(job.spec.name), status.model_copy(update={"done": None}))
        bring_home(self.connection, Path(job.spec.folder), paths.job(job.spec.name))

    def _refuse_lost(self, jobs: Sequence[Job], states: Mapping[str, JobStatus]) -> None:
        for job in jobs:
            if states[job.id].state is JobState.LOST:
                raise MachineryError(
                    f"job {job.spec.name!r} ({job.id}) is lost: {states[job.id].reason}",
                    next_action=f"see what it left in {job.spec.folder}, then resume the run",
                )

    def _announce(self, job: Job, status: JobStatus) -> None:
        self.emit(
            JobChanged(
                rung=self.rung,
                job=job.spec.name,
                job_id=job.id,
                state=status.state,
                reason=status.reason,
                nodes=status.nodes,
                elapsed_s=status.elapsed_s,
                limit_s=job.spec.time_limit_s,
                expected_start=status.expected_start,
                at=time.time(),
            )
        )


def _told_by_done(status: JobStatus) -> bool:
    """Whether the scheduler knows nothing that ``done.json`` does not say."""
    return status.done is not None and status.cause in (None, EndCause.EXIT)


def bring_home(connection: Connection, there: Path, here: Path) -> None:
    """What a job left, into the run's own folder. Raises MachineryError.

    Where both are one folder, a file made and removed in it makes a network file system forget the
    listing that it has cached: what a node wrote a moment ago would be missing in it.
    """
    if connection.remote:
        try:
            connection.get_tree(there, here)
        except MachineryError:
            time.sleep(1)  # a process that was just cancelled may have written while it was copied
            connection.get_tree(there, here)
        return
    with contextlib.suppress(OSError):
        look = here / ".listing"
        look.touch()
        look.unlink()


def as_expected(job: Job, status: JobStatus) -> bool:
    """Whether every rank ended as the spec expects, by the job's own word.

    Of a job that is to be ended by another's hand, and of an array, the state is all there is.
    """
    wanted = job.spec.expect
    if status.cause in (EndCause.WAITED, EndCause.NODE):
        return False
    if wanted.state is not None or job.spec.array:
        return status.state is wanted.final_state
    if status.done is None or [rank.rank for rank in status.done.ranks] != list(range(job.spec.world_size)):
        return False
    return all(wanted.fits(rank) for rank in status.done.ranks)


class _Cancelling:
    """Cancels the jobs that a step wants cancelled, once each."""

    def __init__(self, scheduler: Scheduler, names: Sequence[str]) -> None:
        self._scheduler = scheduler
        self._open = set(names)
        self._running_since: dict[str, float] = {}

    def changed(self, job: Job, status: JobStatus) -> None:
        if status.state is JobState.RUNNING:
            self._running_since.setdefault(job.spec.name, time.monotonic())

    def tick(self, current: Mapping[str, Job], shows_progress: Collection[str]) -> None:
        """Cancel what shows that its ranks run; or what has been running so long that it never will."""
        now = time.monotonic()
        for name in sorted(self._open):
            if name in shows_progress or now - self._running_since.get(name, now) > CANCEL_ANYWAY_S:
                self._open.discard(name)
                self._scheduler.cancel([current[name]])


class _ProgressReader:
    """Turns jobs' ``progress.json`` into events. Nothing of it is evidence: damage is passed over."""

    def __init__(self, connection: Connection, rung: str, jobs: list[Job], emit: Callable[[Event], None]) -> None:
        self._connection = connection
        self._rung = rung
        self._files = {Path(job.spec.folder) / "progress.json": job.spec.name for job in jobs}
        self._last: dict[Path, float] = {}
        self.seen: set[str] = set()
        """Names of jobs that have shown progress."""
        self._emit = emit
        self._look_at = 0.0

    def tick(self) -> None:
        began = time.monotonic()
        if began < self._look_at:
            return
        with contextlib.suppress(MachineryError):
            for path, content in self._connection.read_many(self._files).items():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._tell(path, json.loads(content))
        now = time.monotonic()
        self._look_at = now + (now - began) / _READ_SHARE

    def _tell(self, path: Path, state: dict[str, object]) -> None:
        event = Progress(
            rung=self._rung,
            job=self._files[path],
            done=float(str(state["done"])),
            total=float(str(state["total"])),
            text=str(state["text"]),
            at=float(str(state["at"])),
        )
        self.seen.add(event.job)
        if self._last.get(path) != event.at:
            self._last[path] = event.at
            self._emit(event)
