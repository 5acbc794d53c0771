"""What ranks of a mesh leave behind, and who of them did not do what the others did. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, model_validator

from surefoot.benchmarks.mesh_steps import ALONE, Phase
from surefoot.model.base import Record

ORDER = tuple(Phase)
SLOW_FACTOR = 3.0
SLOW_LEAST_S = 5.0
"""A rank is slow where it took three times as long as the median, and at least this much longer."""


class PhaseEntry(Record):
    """A phase that a rank began."""

    name: str
    began: float = Field(gt=0)
    """Unix time, by the node's own clock."""
    took_s: float | None = Field(ge=0)
    """None: it never ended."""
    problem: str | None

    @property
    def phase(self) -> Phase:
        return Phase[self.name]


class Trail(Record):
    """What one rank wrote of itself at each step."""

    rank: int = Field(ge=0)
    local_rank: int = Field(ge=0)
    world_size: int = Field(ge=1)
    nonce: str
    job_id: str
    host: str = Field(min_length=1)
    slurm_node: str | None
    pid: int = Field(ge=1)
    facts: dict[str, Any]
    phases: tuple[PhaseEntry, ...]

    @model_validator(mode="after")
    def _phases_in_order(self) -> Self:
        if [entry.name for entry in self.phases] != [phase.name for phase in ORDER[: len(self.phases)]]:
            raise ValueError("phases are not those of a mesh in their order")
        if any(entry.took_s is None or entry.problem for entry in self.phases[:-1]):
            raise ValueError("a phase began before the one before it had ended well")
        return self

    @property
    def where(self) -> str:
        """``rank 3 on n2``."""
        return f"rank {self.rank} on {self.host}"

    @property
    def finished(self) -> bool:
        """Whether it went through all phases."""
        last = self.phases[-1] if self.phases else None
        return len(self.phases) == len(ORDER) and last is not None and last.took_s is not None and not last.problem

    @property
    def stands(self) -> Phase:
        """The phase that it is in, or was in last."""
        return self.phases[-1].phase if self.phases else ORDER[0]

    @property
    def problem(self) -> str:
        """The error that ended it; empty: there was none."""
        return (self.phases[-1].problem or "") if self.phases else ""


@dataclass(frozen=True)
class Stuck:
    """Ranks that kept a mesh from completing, and how."""

    kind: str
    """``absent``, ``failed``, ``hung``."""
    ranks: tuple[int, ...]
    words: str


OWN = ("CUDA error", "Duplicate GPU", "out of memory", "invalid device", "ncclInvalidUsage", "ncclUnhandledCudaError")
"""In the words of torch.distributed and NCCL: what is this rank's own fault."""
FOR_OTHERS = (
    "gloo/",
    "timed out",
    "Timed out",
    "imeout",
    "onnection closed",
    "onnection reset",
    "onnection refused",
    "roken pipe",
)
"""In an error's text: it waited for another rank, or lost one."""


def stuck(trails: Mapping[int, Trail], world_size: int) -> list[Stuck]:
    """Who kept the others waiting, the likeliest cause first; empty where every rank finished.

    A rank that never began, or that failed with an error of its own, explains others that waited in
    vain for it. Where there is none, those that are behind the others do: still in an earlier phase, or
    in the same one without having given up.
    """
    absent = tuple(rank for rank in range(world_size) if rank not in trails)
    unfinished = [trail for trail in trails.values() if not trail.finished]
    own = [trail for trail in unfinished if trail.problem and not waited(trail.problem)]
    gave_up = [trail for trail in unfinished if trail.problem and waited(trail.problem)]
    silent = [trail for trail in unfinished if not trail.problem]
    found = []
    if absent:
        found.append(Stuck("absent", absent, "never began"))
    found += [Stuck("failed", (trail.rank,), f"failed in {trail.stands}: {trail.problem}") for trail in own]
    found += _hung(silent, gave_up, explained=bool(found))
    if not found and gave_up:
        ranks = tuple(trail.rank for trail in gave_up)
        found.append(Stuck("failed", ranks, f"gave up in {gave_up[0].stands}: {gave_up[0].problem}"))
    return found


def waited(problem: str) -> bool:
    """Whether the error tells of waiting for another rank in vain, or of losing one, which then is the one to look at.

    torch.distributed says so by the kind of error (DistStoreError, DistNetworkError, DistBackendError), gloo
    by its source file.
    """
    if any(word in problem for word in OWN):
        return False
    return problem.startswith("Dist") or any(word in problem for word in FOR_OTHERS)


def _hung(silent: Sequence[Trail], gave_up: Sequence[Trail], *, explained: bool) -> list[Stuck]:
    """Ranks without an error that did not finish, where they explain the others rather than the other way round."""
    if not silent:
        return []
    first = min(ORDER.index(trail.stands) for trail in silent)
    furthest = max((ORDER.index(trail.stands) for trail in (*silent, *gave_up)), default=first)
    behind = [trail for trail in silent if ORDER.index(trail.stands) == first]
    if explained and first == furthest:
        return []  # they wait where the others do, for those that are named already
    ranks = tuple(trail.rank for trail in behind)
    return [Stuck("hung", ranks, f"came as far as {ORDER[first]} and no further")]


def slow(trails: Mapping[int, Trail]) -> list[str]:
    """Ranks that took much longer than the others in a phase in which they wait for nobody, in words."""
    found = []
    for phase in ALONE:
        took = {
            trail.where: entry.took_s
            for trail in trails.values()
            for entry in trail.phases
            if entry.phase is phase and entry.took_s is not None
        }
        if len(took) < 2:
            continue
        typical = statistics.median_low(took.values())
        found += [
            f"{where} took {seconds:.1f} s for {phase}, the others {typical:.1f} s"
            for where, seconds in took.items()
            if seconds > SLOW_FACTOR * typical and seconds - typical > SLOW_LEAST_S
        ]
    return found


class ClockRound(Record):
    """One barrier: the rank's clock when it left, and how long it was in it. Seconds."""

    at: float = Field(gt=0)
    within_s: float = Field(ge=0)


def clock_offset(rounds: Sequence[ClockRound], reference: Sequence[ClockRound]) -> tuple[float, float]:
    """Bounds of how far a rank's clock is ahead of the reference's. Seconds; (low, high).

    The last rank to enter a barrier does so at a moment E that lies, for every rank, within its stay.
    By the rank's own clock E is in [at − within, at]; so the offset is within
    [at − within − reference at, at − (reference at − reference within)]. All rounds hold at once.
    An empty interval (low > high): one of the clocks was moved meanwhile.
    """
    pairs = list(zip(rounds, reference, strict=True))
    low = max(own.at - own.within_s - other.at for own, other in pairs)
    high = min(own.at - (other.at - other.within_s) for own, other in pairs)
    return low, high
