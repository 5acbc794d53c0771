"""A job: one submission to a scheduler. JobSpec → Job → JobState, and done.json as its own witness."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from surefoot.model.base import Record


class JobState(StrEnum):
    """Where a job is. LOST: no witness knows it any more, which proves nothing about its work."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    LOST = "LOST"

    @property
    def final(self) -> bool:
        """True when the state will not change any more."""
        return self not in (JobState.PENDING, JobState.RUNNING)


class ExpectedExit(Record):
    """How every rank of a job is expected to end. The default: exit code 0."""

    exit_code: int | None = 0
    signal: int | None = None


class JobSpec(Record):
    """What is asked of a scheduler. Everything a rank needs travels in `request` and `env`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    argv: tuple[str, ...] = Field(min_length=1)
    """The command of each rank, never a shell line."""
    folder: str
    """Absolute folder on shared storage for the job's evidence; exists before submission."""
    env: dict[str, str] = {}
    request: dict[str, Any] = {}
    """Written as ``request.json`` into the folder: the program's parameters."""
    nodes: int = Field(default=1, ge=1)
    ranks_per_node: int = Field(default=1, ge=1)
    cpus_per_rank: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=0, ge=0)
    exclusive: bool = False
    """Nothing else of this climb runs beside it: for jobs that measure."""
    time_limit_s: int = Field(default=600, ge=1)
    expect: ExpectedExit = ExpectedExit()

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.nodes * self.ranks_per_node


class Job(Record):
    """A submitted job."""

    id: str
    """The scheduler's own id."""
    spec: JobSpec
    submitted_at: float
    """Unix time; tells a re-used id apart."""


class RankExit(Record):
    """How one rank ended. One of the two is set; neither for a rank that could not be ended."""

    rank: int = Field(ge=0)
    host: str = Field(min_length=1)
    exit_code: int | None = None
    signal: int | None = None


class JobDone(Record):
    """``done.json``: what the job says of itself, as the last thing it does."""

    id: str
    name: str
    state: JobState
    reason: str = ""
    started_at: float
    ended_at: float
    ranks: tuple[RankExit, ...]


class JobStatus(Record):
    """A scheduler's answer to a poll."""

    state: JobState
    reason: str = ""
    """Why it waits or why it ended, in words."""
    done: JobDone | None = None
