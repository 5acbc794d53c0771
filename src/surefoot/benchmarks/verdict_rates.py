"""How often `surefoot nccl compare` is right: healthy sweeps replayed with noise, and with faults put in. Pure.

A trial takes one collective, a number of healthy repeats for a baseline, and a candidate. Each repeat is one of the
recorded sweeps, by chance, with noise on every point; the noise of a size is what the recorded placements differ by.
What processes differ by as a whole (the floor's two values) is that of the sweeps themselves: the rates hold for
machines like those of the recordings, and say nothing of what these never showed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from surefoot.benchmarks.nccl_curve import Part, Point, baseline
from surefoot.benchmarks.nccl_shifts import Shifts, compared
from surefoot.stats.intervals import wilson
from surefoot.stats.shift import ENOUGH, Verdict

FEWEST_SWEEPS = 4
"""Of one collective: fewer say nothing of how processes differ."""
_ROBUST = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""

Sweep = Mapping[Point, float]


@dataclass(frozen=True)
class Fault:
    """What is done to a candidate."""

    name: str
    part: Part | None
    """The part that it is to be found in; None for nothing done."""
    slower: float
    """Time becomes this × what it was."""
    repeats: int = 1
    """Of the candidate."""
    target: float = 0.99
    """How often it must be found, or, of nothing done, how seldom it may be: 1 − target."""

    def on(self, part: Part) -> float:
        """What the times of a part are multiplied by."""
        return self.slower if self.part is part else 1.0


FAULTS = (
    Fault("healthy", None, 1.0),
    Fault("healthy, three repeats", None, 1.0, repeats=3),
    Fault("plateau 5 % lower", Part.PLATEAU, 1 / 0.95),
    Fault("plateau 10 % lower", Part.PLATEAU, 1 / 0.9),
    Fault("knee 50 % slower", Part.KNEE, 1.5),
    Fault("floor 50 % higher, six repeats", Part.FLOOR, 1.5, repeats=6, target=0.95),
    Fault("floor 50 % higher, one repeat", Part.FLOOR, 1.5, target=0.0),
    Fault("floor twice as high", Part.FLOOR, 2.0, target=0.95),
)
"""The last but one has no target: one process with the lower floor, made 50 % slower, is a healthy one with the higher."""


@dataclass(frozen=True)
class Rate:
    """Of the trials of one fault."""

    fault: Fault
    trials: int
    failed: int
    unsure: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the share that FAILED."""
        return wilson(self.failed, self.trials)

    @property
    def reached(self) -> bool | None:
        """Whether the target is: False where the interval excludes it, None while the interval holds it."""
        low, high = self.interval
        if self.fault.part is None:
            low, high = 1 - high, 1 - low
        return True if low >= self.fault.target else False if high < self.fault.target else None


def noise(sweeps: Sequence[Sweep]) -> dict[int, float]:
    """Size → standard deviation of one point's logarithm, by what both placements of the sweeps differ by beyond the usual."""
    found: dict[int, list[float]] = {}
    for sweep in sweeps:
        for size in {size for size, _ in sweep}:
            found.setdefault(size, []).append(math.log(sweep[size, "in_place"] / sweep[size, "out_of_place"]))
    return {
        size: _ROBUST / math.sqrt(2) * median(abs(one - median(each)) for one in each) for size, each in found.items()
    }


@dataclass(frozen=True)
class Recorded:
    """Healthy sweeps of one collective."""

    sweeps: Sequence[Sweep]
    factor: float
    """busbw / algbw."""
    noise: Mapping[int, float]
    part_of: Mapping[int, Part]

    @classmethod
    def of(cls, sweeps: Sequence[Sweep], factor: float) -> Recorded:
        """Raises ValueError for too few sweeps, or sizes that show no floor and no plateau."""
        if len(sweeps) < FEWEST_SWEEPS:
            raise ValueError(f"{len(sweeps)} healthy sweeps; {FEWEST_SWEEPS} of a collective are needed")
        common = set.intersection(*map(set, sweeps))
        return cls(sweeps, factor, noise(sweeps), baseline(sweeps, common, factor).part_of)

    def again(self, chance: random.Random, fault: Fault | None = None) -> Sweep:
        """One of the processes once more, with or without a fault."""
        sweep = chance.choice(self.sweeps)
        return {
            (size, placement): time
            * math.exp(chance.gauss(0, self.noise[size]))
            * (fault.on(self.part_of[size]) if fault else 1.0)
            for (size, placement), time in sweep.items()
            if size in self.part_of
        }

    def trial(self, chance: random.Random, fault: Fault, healthy: int) -> Shifts:
        """One judgement: every repeat on both sides is one of the recorded processes, by chance, with noise of its own."""
        known = [self.again(chance) for _ in range(healthy)]
        return compared(known, [self.again(chance, fault) for _ in range(fault.repeats)], self.factor)


def rates(
    recorded: Sequence[Recorded],
    *,
    trials: int,
    seed: int,
    healthy: int = ENOUGH,
    faults: Sequence[Fault] = FAULTS,
    progress: Callable[[], None] = lambda: None,
) -> list[Rate]:
    """Replay every fault so many times. `healthy`: repeats of a baseline; `progress` is called after each trial."""
    chance = random.Random(seed)
    found = []
    for fault in faults:
        verdicts = []
        for _ in range(trials):
            verdicts.append(chance.choice(recorded).trial(chance, fault, healthy).verdict)
            progress()
        found.append(Rate(fault, trials, verdicts.count(Verdict.SLOWER), verdicts.count(Verdict.UNSURE)))
    return found
