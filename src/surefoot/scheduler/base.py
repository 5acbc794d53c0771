"""The seam to whoever places work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from surefoot.model.job import Job, JobSpec, JobStatus


@dataclass(frozen=True)
class Retried:
    """A job that was submitted again."""

    job: Job
    reason: str
    """What happened to the one before, and what is different now."""


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

    def reap(self, folder: Path) -> bool:
        """End the job of this folder that another, dead process submitted; True when nothing of it runs."""

    def close(self) -> None:
        """Cancel what this object started and is still there. Called once, at the end."""
