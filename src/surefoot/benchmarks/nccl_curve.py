"""A sweep as a curve: floor, knee and plateau of many like ones, and by how much one of them is off in each. Pure.

At small sizes a collective takes its latency, at large ones its bandwidth; between them NCCL changes
protocols (LL, LL128, Simple) and algorithms. A fault moves one part and leaves the others, so each is
compared on its own, as the natural logarithm of time over the baseline's median time at the same size and
placement: 0.1 is 10 % slower, whatever the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from statistics import median

from surefoot.benchmarks.nccl_tests import PLACEMENTS, NcclTest

FLAT = 1.5
"""A size belongs to the floor as long as no size up to it takes longer than this × the smallest ones' time."""
HIGH = 0.8
"""A size belongs to the plateau where it, and all above it, reach this share of the highest bandwidth."""
_SMALLEST = 5
"""Sizes whose median time is the floor's."""

Point = tuple[int, str]
"""Size in bytes, placement."""


class Part(StrEnum):
    """Of a curve."""

    FLOOR = "floor"
    KNEE = "knee"
    PLATEAU = "plateau"


def points(test: NcclTest) -> dict[Point, float]:
    """Time of each size and placement, µs. Of a size that came twice (too small to be shared) the first."""
    found: dict[Point, float] = {}
    for row in test.rows:
        for placement, timing in zip(PLACEMENTS, row.placements, strict=True):
            if row.size_bytes:
                found.setdefault((row.size_bytes, placement), timing.time_us)
    return found


@dataclass(frozen=True)
class Deviation:
    """One sweep against the baseline: logarithms of time / expected time."""

    parts: Mapping[Part, float]
    sizes: Mapping[int, float]
    """Of each size the smaller of both placements': a hiccup is in one of them."""
    scatter: float
    """Median distance of single points from their part's deviation."""


@dataclass(frozen=True)
class Baseline:
    """Median of several sweeps at the sizes that all of them, and the candidate, have."""

    times_us: Mapping[Point, float]
    part_of: Mapping[int, Part]
    factor: float
    """busbw / algbw."""

    @property
    def floor_us(self) -> float:
        """Median time of the sizes of the floor."""
        return median(time for (size, _), time in self.times_us.items() if self.part_of[size] is Part.FLOOR)

    def sizes(self, part: Part) -> list[int]:
        """Those of a part, from the smallest."""
        return [size for size in sorted(self.part_of) if self.part_of[size] is part]

    def busbw(self, times_us: Mapping[Point, float], size: int) -> float:
        """Best of both placements at a size, GB/s."""
        return max(size / 1e3 / time * self.factor for (at, _), time in times_us.items() if at == size)

    def deviation(self, times_us: Mapping[Point, float]) -> Deviation:
        """How far a sweep is off in each part; of the knee, what floor and plateau do not explain."""
        off = {point: math.log(times_us[point] / expected) for point, expected in self.times_us.items()}
        parts = {part: median(self._of(off, part)) for part in (Part.FLOOR, Part.PLATEAU)}
        left = {point: off[point] - self._explained(point, parts) for point in off}
        middle = self._of(left, Part.KNEE)
        parts[Part.KNEE] = median(middle) if middle else 0.0
        # A size that lost no more than the plateau did does not stand out.
        apart = {point: min(left[point], off[point] - max(0.0, parts[Part.PLATEAU])) for point in off}
        sizes = {size: min(value for (at, _), value in apart.items() if at == size) for size in self.part_of}
        centred = [
            *self._of(left, Part.FLOOR),
            *self._of(left, Part.PLATEAU),
            *(one - parts[Part.KNEE] for one in middle),
        ]
        return Deviation(parts, sizes, median(map(abs, centred)))

    def _of(self, values: Mapping[Point, float], part: Part) -> list[float]:
        return [value for (size, _), value in values.items() if self.part_of[size] is part]

    def _explained(self, point: Point, parts: Mapping[Part, float]) -> float:
        """What floor and plateau make of a point: in the middle, time is latency and size / bandwidth."""
        own, expected = self.part_of[point[0]], self.times_us[point]
        if own is not Part.KNEE:
            return parts[own]
        longer, slower = (math.exp(max(0.0, parts[part])) for part in (Part.FLOOR, Part.PLATEAU))
        latency = min(expected, self.floor_us)
        return math.log((longer * latency + slower * (expected - latency)) / expected)


def baseline(sweeps: Sequence[Mapping[Point, float]], common: set[Point], factor: float) -> Baseline:
    """Of one or more sweeps. Raises ValueError where the sizes are too few to tell a floor from a plateau."""
    if not sweeps or not common:
        raise ValueError("no size that all captures have")
    times = {point: median(sweep[point] for sweep in sweeps) for point in sorted(common)}
    sizes = sorted({size for size, _ in times})
    typical = {size: median(time for (at, _), time in times.items() if at == size) for size in sizes}
    floor_us = median(typical[size] for size in sizes[:_SMALLEST])
    rates = {size: size / typical[size] for size in sizes}
    high = HIGH * max(rates.values())
    flat = _leading(sizes, lambda size: typical[size] <= FLAT * floor_us)
    top = _leading(sizes[::-1], lambda size: rates[size] >= high)
    if len(flat) < 2 or len(top) < 2 or set(flat) & set(top):
        raise ValueError(
            f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]} bytes show no floor and no plateau: sweep from 8 bytes "
            "to where the bandwidth no longer rises"
        )
    part_of = {size: Part.FLOOR if size in flat else Part.PLATEAU if size in top else Part.KNEE for size in sizes}
    return Baseline(times, part_of, factor)


def _leading(sizes: Sequence[int], holds: Callable[[int], bool]) -> list[int]:
    """Sizes up to the first that it does not hold for."""
    return list(takewhile(holds, sizes))
