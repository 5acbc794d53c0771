"""How far the parts of a curve have shifted against healthy repeats: floor, knee, plateau, single sizes, scatter. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from surefoot.benchmarks.nccl_curve import Baseline, Deviation, Part, Point, baseline
from surefoot.stats.shift import Allowance, Shift, Verdict, shift

ALLOWED = {
    Part.FLOOR: Allowance(effect=0.20, between=0.40, gross=0.9),
    Part.KNEE: Allowance(effect=0.15, between=0.10, gross=0.7),
    Part.PLATEAU: Allowance(effect=0.025, between=0.01, gross=0.15),
}
"""Learned from six repeats on two H200: floors differ by 45 % between processes, plateaus by less than 1 %."""
ONE_SIZE = {
    Part.FLOOR: Allowance(effect=0.5, between=0.2, gross=1.2),
    Part.KNEE: Allowance(effect=0.5, between=0.2, gross=1.2),
    Part.PLATEAU: Allowance(effect=0.10, between=0.05, gross=0.4),
}
"""For a size that stands out of its part, in both placements."""
SCATTER = Allowance(effect=0.10, between=0.05, gross=0.3)
_OVER: Mapping[Part, Callable[[Iterable[float]], float]] = {Part.FLOOR: max, Part.KNEE: median, Part.PLATEAU: median}
"""Of several repeats: of two values that a floor has by chance, only the higher one shows that both are higher."""


@dataclass(frozen=True)
class Shifts:
    """Candidates against healthy repeats."""

    base: Baseline
    candidates: tuple[Mapping[Point, float], ...]
    parts: Mapping[Part, Shift]
    single: Mapping[int, Shift]
    """Sizes that are slower on their own."""
    scatter: Shift

    @property
    def slower(self) -> dict[Part, float]:
        """Parts that are, with the logarithm of by how much."""
        return {part: one.value for part, one in self.parts.items() if one.verdict is Verdict.SLOWER}

    @property
    def unsteady(self) -> bool:
        """Whether single points lie further from their curve than they did."""
        return self.scatter.verdict is Verdict.SLOWER

    @property
    def verdict(self) -> Verdict:
        """Of all of it: the worst."""
        found = {one.verdict for one in (*self.parts.values(), *self.single.values(), self.scatter)}
        return next((one for one in (Verdict.SLOWER, Verdict.UNSURE) if one in found), Verdict.SAME)


def compared(
    healthy: Sequence[Mapping[Point, float]], candidates: Sequence[Mapping[Point, float]], factor: float
) -> Shifts:
    """Sweeps (time in µs of each size and placement) against healthy ones, at the sizes that all of them have.

    `factor`: busbw / algbw. Raises ValueError where these sizes show no floor and no plateau.
    """
    base = baseline(healthy, set.intersection(*(set(sweep) for sweep in (*healthy, *candidates))), factor)
    known, new = ([base.deviation(sweep) for sweep in sweeps] for sweeps in (healthy, candidates))

    def of(
        figure: Callable[[Deviation], float], allowed: Allowance, over: Callable[[Iterable[float]], float] = median
    ) -> Shift:
        return shift(over([figure(one) for one in new]), [figure(one) for one in known], allowed)

    sizes = {
        size: of(lambda off, at=size: off.sizes[at], ONE_SIZE[part])  # type: ignore[misc]
        for size, part in sorted(base.part_of.items())
    }
    return Shifts(
        base=base,
        candidates=tuple(candidates),
        parts={part: of(lambda off, p=part: off.parts[p], ALLOWED[part], _OVER[part]) for part in Part},  # type: ignore[misc]
        single={size: one for size, one in sizes.items() if one.verdict is Verdict.SLOWER},
        scatter=of(lambda off: off.scatter, SCATTER),
    )
