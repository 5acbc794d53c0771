"""A job: one submission to a scheduler. JobSpec → Job → JobState, and done.json as its own witness."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

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


class EndCause(StrEnum):
    """Why a job ended badly, as far as the scheduler knows: what decides whether it is tried again."""

    EXIT = "exit"
    """A rank ended with another code than 0, or by a signal."""
    TIME = "time"
    MEMORY = "memory"
    NODE = "node"
    """A node failed, or could not start the job."""
    LAUNCH = "launch"
    """Slurm could not start it: folder, interpreter, output file."""
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    WAITED = "waited"
    """It waited longer than it may, or could never start: Surefoot cancelled it."""
    LOST = "lost"


SchedulerWord = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:@+=*%&|!()\[\]/-]*$")]
"""Text that is handed to a scheduler as an option: no blanks, quotes or line breaks."""


class ExpectedExit(Record):
    """How every rank of a job is expected to end. The default: exit code 0."""

    exit_code: int | None = 0
    signal: int | None = None
    state: JobState | None = None
    """A state in which the job is to end by another's hand (TIMEOUT, CANCELLED): then no rank may end with 0,
    and `exit_code` and `signal` say nothing."""

    @property
    def final_state(self) -> JobState:
        """The state in which a job that ended like this is."""
        if self.state is not None:
            return self.state
        return JobState.COMPLETED if (self.exit_code, self.signal) == (0, None) else JobState.FAILED

    def fits(self, rank: RankExit) -> bool:
        """Whether a rank ended like this."""
        return (rank.exit_code, rank.signal) == (self.exit_code, self.signal)


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
    memory_mib_per_node: int | None = Field(default=None, ge=1)
    """None: the scheduler's own default."""
    partition: SchedulerWord = ""
    """This and what follows is for schedulers that have it. Empty: the cluster's, else the scheduler's own."""
    qos: SchedulerWord = ""
    account: SchedulerWord = ""
    reservation: SchedulerWord = ""
    constraint: SchedulerWord = ""
    hosts: SchedulerWord = ""
    """Hostlist: these nodes and no others."""
    exclude_hosts: SchedulerWord = ""
    """Hostlist: any nodes but these."""
    array: str = Field(default="", pattern=r"^[0-9,:%-]*$")
    """Elements as Slurm writes them (``0-7%4``): the job once for each, in ``array-<i>/`` of its folder."""
    dependency: SchedulerWord = ""
    signal: str = Field(default="", pattern=r"^(([RB]+:)?[A-Z0-9]+(@\d{1,5})?)?$")
    """``USR1@60``: sent to the ranks that many seconds before the time limit. Schedulers are coarse here."""
    requeue: bool = False
    """Put back into the queue after preemption or a node's failure."""
    launch: Literal["ranks", "torchrun"] = "ranks"
    """One task for each rank, or one for each node that runs torchrun (by the interpreter that `argv` begins with)."""
    cpu_bind: SchedulerWord = "cores"
    directives: tuple[Annotated[str, Field(pattern=r"^--[a-z][a-z-]*(=[^\s\"'\\#]*)?$")], ...] = ()
    """More options for the scheduler, as they are: ``--licenses=scratch:1``."""

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
    word: str = ""
    """Why it waits, in the scheduler's own word (``Resources``)."""
    done: JobDone | None = None
    cause: EndCause | None = None
    """Why it ended badly; None while it has not."""
    nodes: str = ""
    """Hostlist of where it runs or ran."""
    elapsed_s: float | None = None
    expected_start: float | None = None
    """Unix time at which the scheduler means to start it; None: it doesn't say."""
