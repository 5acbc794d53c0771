"""The sweep's evidence as records, and figures computed from its times. Pure.

The time of an iteration is that of its slowest rank; the time at a size is the median over
iterations. Bandwidths follow `surefoot.benchmarks.collective_sizes`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from surefoot.benchmarks.collective_sizes import algbw_gb_s, busbw_factor, result_count
from surefoot.benchmarks.device import Device
from surefoot.benchmarks.links import LinkTimes
from surefoot.errors import EvidenceError
from surefoot.model.base import Record


class Point(Record):
    """One collective at one size, on one rank."""

    collective: str
    size_bytes: int = Field(ge=1)
    times_us: tuple[float, ...]
    block_us: float = Field(gt=0)
    """Wall time of all iterations together: they add up to it."""
    wrong: int = Field(ge=0)
    checked: int = Field(ge=1)


class Sweep(Record):
    """What ``surefoot.node.collectives`` reports of one rank."""

    rank: int
    backend: str
    world_size: int
    device: Device
    free_bytes: int = Field(gt=0)
    cap_bytes: int = Field(gt=0)
    points: tuple[Point, ...]
    links: tuple[LinkTimes, ...]


SHORTEST_US = 0.5
"""No two processes meet in less: a CUDA event resolves half a microsecond, a system call takes about that."""
FILLED = 0.8
"""Share of the time around the iterations that they fill at least; they leave nothing between them."""
AROUND_US = 200.0
"""What the host may need beyond that to see that a device is done: its wake-up and the clocks' difference."""
LATE_US = 20_000.0
"""What a host may need now and then that has few CPUs for the threads of a rank: some time slices. On an H200
whose rank was bound to one CPU it was 1.1 ms, twice in sixty sweeps."""
LATE_SHARE = 0.1
"""Share of a rank's points at which that may be: beyond it, and beyond two, device and host do not agree."""
ALIKE = 1000.0
"""How far below the median an iteration may lie. A busy CPU stretches some to a time slice
(milliseconds) beside others of tens of microseconds; what lies further off was not measured."""


def impossible_times(times_us: Sequence[float], block_us: float, around_us: float = AROUND_US) -> str:
    """Why iterations cannot have taken these times within `block_us` by the host's clock; empty when they can.

    `around_us`: how late the host may have seen their end.
    """
    total, shortest, median = sum(times_us), min(times_us), statistics.median(times_us)
    if shortest < SHORTEST_US:
        return f"a time of {shortest:g} µs is none: a collective takes {SHORTEST_US:g} µs at least"
    if shortest < median / ALIKE:
        return f"a time of {shortest:g} µs beside a median of {median:g} µs was not measured"
    if total > 1.01 * block_us + AROUND_US:
        return f"iterations add up to {total:.1f} µs, more than the {block_us:.1f} µs around them"
    if total < FILLED * block_us - around_us:
        return f"iterations add up to {total:.1f} µs only, within {block_us:.1f} µs of nothing else"
    return ""


@dataclass(frozen=True)
class Figure:
    """One collective at one size, over all ranks."""

    collective: str
    size_bytes: int
    time_us: float
    algbw_gb_s: float
    busbw_gb_s: float


def complete_points(
    sweep: Sweep, asked: Mapping[str, Sequence[int]], iterations: int, file: str
) -> dict[tuple[str, int], Point]:
    """The points of one rank by collective and size: exactly those asked for that fit under the cap.

    Raises EvidenceError where one is missing, doubled or not asked for, where the number of
    iterations or of checked elements is not what was asked, or where a time cannot be.
    """
    wanted = [(name, size) for name, sizes in asked.items() for size in sizes if size <= sweep.cap_bytes]
    found: dict[tuple[str, int], Point] = {}
    late = []
    for point in sweep.points:
        key = (point.collective, point.size_bytes)
        if key in found:
            raise EvidenceError(f"{key[0]} at {key[1]} B stands twice", file=file)
        if key not in wanted:
            raise EvidenceError(f"{key[0]} at {key[1]} B was not asked for", file=file)
        problem = _refuse_impossible(point, sweep, iterations, file)
        late += [problem] if problem else []
        found[key] = point
    for key in wanted:
        if key not in found:
            raise EvidenceError(f"{key[0]} at {key[1]} B is missing", file=file)
    if len(late) > max(2, LATE_SHARE * len(wanted)):
        raise EvidenceError(f"{late[0]}; so it is at {len(late)} of {len(wanted)} points", file=file)
    return found


def _refuse_impossible(point: Point, sweep: Sweep, iterations: int, file: str) -> str:
    """What is odd but may be once in a while: a host that saw late that its device was done. Empty: nothing is."""
    where = f"{point.collective} at {point.size_bytes} B"
    if len(point.times_us) != iterations:
        raise EvidenceError(f"{where}: {len(point.times_us)} times, {iterations} iterations were asked for", file=file)
    # A device keeps its own time. On a CPU one clock takes both, and nothing can come between.
    around_us = LATE_US if sweep.device.kind == "cuda" else AROUND_US
    problem = impossible_times(point.times_us, point.block_us, around_us)
    if problem:
        raise EvidenceError(f"{where}: {problem}", file=file)
    checked = 2 * result_count(point.collective, point.size_bytes, sweep.world_size)
    if point.checked != checked:
        raise EvidenceError(
            f"{where}: {point.checked} elements were checked, {checked} are twice its result", file=file
        )
    odd = impossible_times(point.times_us, point.block_us)
    return f"{where}: {odd}" if odd else ""


def figure(collective: str, size_bytes: int, points: Sequence[Point], world_size: int) -> Figure:
    """Time and bandwidths of one collective at one size from all ranks' times."""
    slowest = [max(times) for times in zip(*(point.times_us for point in points), strict=True)]
    time_us = statistics.median(slowest)
    algbw = algbw_gb_s(size_bytes, time_us)
    return Figure(collective, size_bytes, time_us, algbw, algbw * busbw_factor(collective, world_size))
