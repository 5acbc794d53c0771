"""The seam to whoever places work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from surefoot.model.job import Job, JobSpec, JobStatus
from surefoot.model.listed import TaggedJob


@dataclass(frozen=True)
class Retried:
    """A job that was submitted again."""

    job: Job
    reason: str
    """What happened to the one before, and what is different now."""


@dataclass(frozen=True)
class Waiting:
    """What a job waits for."""

    held_by: str = ""
    """Jobs that hold the nodes it waits for, in words; empty where none is seen."""
    down: str = ""
    """Nodes that do not work, with the reason that the scheduler has; empty while enough others work."""
    free: int = 0
    """Nodes that fit and do nothing."""


class Scheduler(Protocol):
    """Places jobs. Every method raises SchedulerError when the scheduler cannot be reached or refuses."""

    def submit(self, spec: JobSpec) -> Job:
        """Hand over a job. Its folder exists; ``job.json`` is written there before anything starts."""

    def poll(self, jobs: Sequence[Job]) -> Mapping[str, JobStatus]:
        """State of each job by id, in one question whatever their number."""

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End these jobs and all their processes. A job that ended already is left as it is."""

    def try_again(self, job: Job, status: JobStatus) -> Retried | None:
        """Submit a job again that ended because a node failed, without that node.

        None where something else was the cause, or it was tried often enough: see the scheduler.
        """

    def why_waiting(self, job: Job) -> Waiting:
        """What holds the nodes that a job waits for. A question or two more: not for every poll."""

    def move(self, job: Job, partition: str, reason: str) -> Job:
        """Cancel a job that waits, and submit it to another partition; `reason` is recorded with it."""

    def tagged(self, runs: Path) -> Sequence[TaggedJob]:
        """Jobs of this user that some climb submitted, this one or another, and that are not over.

        `runs`: folder of the runs, for a scheduler that keeps no list of its jobs.
        """

    def end(self, jobs: Sequence[TaggedJob]) -> Sequence[TaggedJob]:
        """Cancel jobs of others and wait a while for them to be gone. Those that are still there."""

    def reap(self, folder: Path) -> bool:
        """End the job of this folder that another, dead process submitted; True when nothing of it runs."""

    def close(self) -> None:
        """Cancel what this object started and is still there. Called once, at the end."""
