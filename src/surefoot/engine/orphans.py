"""Jobs in the scheduler that climbs submitted, and which of them nobody waits for any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from surefoot.connection.base import Connection
from surefoot.engine.claims import Owner
from surefoot.engine.connect import connect
from surefoot.engine.resolve import home_of, resolve_cluster
from surefoot.engine.store import load_manifest, read_record
from surefoot.errors import EvidenceError
from surefoot.model.cluster import Cluster
from surefoot.model.listed import TaggedJob
from surefoot.paths import RootPaths, RunPaths
from surefoot.scheduler.base import Scheduler

PATIENCE_S = 120.0
"""How long a controller that is too busy to answer is asked again."""


class Climber(StrEnum):
    """What is known of the climb that a job belongs to."""

    ALIVE = "climbs"
    GONE = "gone"
    """Known to be: the job is an orphan."""
    ELSEWHERE = "elsewhere"
    """It ran on another host, which cannot be asked from here."""
    UNKNOWN = "unknown here"
    """This machine has no such run."""
    DONE = "done"
    """It has what it wanted of the job, which is on its way out."""


@dataclass(frozen=True)
class FoundJob:
    """A job, and what became of its climb."""

    job: TaggedJob
    climber: Climber
    why: str
    """What shows it, in words."""

    @property
    def orphan(self) -> bool:
        """Whether nobody waits for it, as far as this machine can know."""
        return self.climber is Climber.GONE


@dataclass
class Jobs:
    """The jobs of a cluster. A context manager that leaves the connection closed."""

    connection: Connection
    scheduler: Scheduler
    home: RootPaths
    """Where this machine keeps runs."""
    lifeline: bool = False
    """Jobs of this scheduler end by themselves when their climb is killed."""
    take_over: bool = False
    """The user says that climbs on other hosts, and of runs that are unknown here, are gone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def found(self, run: str | None = None) -> list[FoundJob]:
        """All jobs, or those of one run. Raises SchedulerError where the scheduler does not answer."""
        jobs = self.scheduler.tagged(self.home.runs)
        return [FoundJob(job, *self._climber(job)) for job in jobs if run in (None, job.run)]

    def reap(self, orphans: Sequence[FoundJob]) -> list[FoundJob]:
        """End these and wait for them to be gone. Those that are still there. Raises SchedulerError."""
        left = {job.id for job in self.scheduler.end([found.job for found in orphans])}
        return [found for found in orphans if found.job.id in left]

    def _climber(self, job: TaggedJob) -> tuple[Climber, str]:
        climber, why = climber_of(job, self.home)
        if self.take_over and climber in (Climber.ELSEWHERE, Climber.UNKNOWN):
            return Climber.GONE, f"{why}; gone, by --take-over"
        return climber, why


def climber_of(job: TaggedJob, home: RootPaths) -> tuple[Climber, str]:
    """What became of the climb that submitted a job, from the run's folder on this machine.

    An attempt is collected by one process, which its ``owner.json`` names. Once it is sealed,
    nobody waits for its jobs. A copy of the run (the one on shared storage, of a climb from another
    machine) has no such file, and says nothing of who is alive.
    """
    run = home.run(job.run)
    if not job.run or not run.manifest.exists():
        return Climber.UNKNOWN, f"no run {job.run!r} below {home.root}"
    if not job.rung or job.attempt is None:
        return Climber.UNKNOWN, "its folder is not one of a run"
    attempt = run.rung(job.rung).attempt(job.attempt)
    if attempt.collection.exists():
        ending = job.state == "COMPLETING"
        return (Climber.DONE if ending else Climber.GONE), "its attempt has ended"
    try:
        owner = read_record(Owner, attempt.owner)
    except EvidenceError as error:
        return Climber.UNKNOWN, f"{attempt.folder} does not say who collects it: {error}"
    who = f"collected by process {owner.pid} on {owner.host}"
    if owner.elsewhere:
        return Climber.ELSEWHERE, f"{who}, which cannot be asked from here"
    return (Climber.ALIVE, who) if owner.may_live() else (Climber.GONE, f"{who}, which is gone")


def jobs_of(cluster: Cluster, root: str | None, *, take_over: bool = False) -> Jobs:
    """The jobs of a declared cluster. Raises RequestError for one that cannot be reached."""
    resolved = resolve_cluster(cluster, root=root)
    return _made(resolved, home_of(resolved, root), take_over)


def jobs_of_run(paths: RunPaths, *, take_over: bool = False) -> Jobs:
    """The jobs of the cluster that a run was climbed on. Raises RunNotFoundError, RequestError."""
    return _made(load_manifest(paths).inputs.cluster, paths.root, take_over)


def _made(cluster: Cluster, home: RootPaths, take_over: bool) -> Jobs:
    connection, scheduler = connect(cluster, patience_s=PATIENCE_S)
    return Jobs(connection, scheduler, home, lifeline=cluster.scheduler.kind == "local", take_over=take_over)
