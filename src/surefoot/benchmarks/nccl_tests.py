"""What nccl-tests measured, of any version: records, and what must be true of them. Pure.

`surefoot.benchmarks.nccl_tests_text` reads what it prints, `nccl_tests_json` what ``-J`` writes.

Bandwidths follow nccl-tests' doc/PERFORMANCE.md: algbw = size / time; busbw = algbw × a factor of the
collective and the number of ranks (`surefoot.benchmarks.collective_sizes.busbw_factor`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from statistics import fmean

from pydantic import Field

from surefoot.benchmarks.collective_sizes import busbw_factor
from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.units import format_size

GAPLESS = 64
"""Bytes by which a size may lie below the asked one for each rank: counts are whole and a multiple of the ranks."""

PLACEMENTS = ("out_of_place", "in_place")
"""Each row is timed in both, in this order."""

MOST_SIZES = 100_000
"""More than any sweep has: a banner that asks for more is damaged."""


class Spread(Record):
    """Over iterations, of the slowest process each (``-I 1``)."""

    min_us: float = Field(ge=0)
    max_us: float = Field(ge=0)
    p99_us: float = Field(ge=0)
    cv_percent: float = Field(ge=0)


class Timing(Record):
    """One size in one placement."""

    time_us: float = Field(gt=0)
    """Mean over iterations."""
    algbw_gb_s: float = Field(ge=0)
    busbw_gb_s: float = Field(ge=0)
    wrong: float | None = Field(ge=0)
    """Elements that came out wrong; up to 2.11 the largest difference instead. None: not validated."""
    spread: Spread | None = None


class Row(Record):
    """One size."""

    size_bytes: int = Field(ge=0)
    """0 where it is too small for each rank to have one element."""
    count: int = Field(ge=0)
    datatype: str
    redop: str | None
    root: int | None
    out_of_place: Timing
    in_place: Timing
    line: int = Field(ge=1)
    """On which the row begins; in JSON its number among the results."""

    @property
    def placements(self) -> tuple[Timing, Timing]:
        return self.out_of_place, self.in_place


class TestDevice(Record):
    """A line of ``Using devices``."""

    __test__ = False
    rank: int = Field(ge=0)
    group: int = 0
    pid: int
    host: str
    device: int
    pci: str
    name: str


class Options(Record):
    """The line that begins with ``nThread``."""

    threads: int = Field(ge=1)
    gpus: int = Field(ge=1)
    min_bytes: int = Field(ge=0)
    max_bytes: int = Field(ge=0)
    factor: float | None
    step_bytes: int | None
    warmup: int = Field(ge=0)
    iterations: int = Field(ge=1)
    validated: bool
    graph: int = 0

    def sizes(self, last: int) -> Iterator[int]:
        """The sizes asked for, up to `last`."""
        size = self.min_bytes
        while size <= last:
            yield size
            following = int(size * self.factor) if self.factor else size + (self.step_bytes or 0)
            if following <= size:
                return
            size = following


class NcclTest(Record):
    """One run of one collective: complete, or it is not made."""

    file: str
    line: int
    collective: str | None
    """``all_reduce``…; None where neither the output nor the file's name tells."""
    version: str | None
    """Of nccl-tests; printed since 2.17.4."""
    nccl: str | None
    """The library that was loaded, as its number (``22809``) or version."""
    options: Options
    world_size: int = Field(ge=1)
    """Ranks that took part."""
    devices: tuple[TestDevice, ...]
    """All of them in the text; in JSON one of each process."""
    reduced_to: int | None
    """Bytes to which the sweep was cut for lack of memory."""
    rows: tuple[Row, ...]
    out_of_bounds: int = Field(ge=0)
    average_gb_s: float
    """Over all rows and both placements: good for checking that none is missing, for nothing else."""

    @property
    def largest(self) -> Row:
        return max(self.rows, key=lambda row: row.size_bytes)


COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv", "reduce", "gather", "scatter", "hypercube",
)  # fmt: skip
_FACTORS = {"reduce": 1.0, "scatter": None, "gather": None, "hypercube": None}
"""Besides those that Surefoot measures itself; None: (n − 1) / n."""


def factors(collective: str | None, world_size: int) -> set[float]:
    """What busbw / algbw may be: one value for a known collective, any that occurs for an unknown one."""
    split = (world_size - 1) / world_size
    if collective not in COLLECTIVES:
        return {1.0, split, 2 * split}
    if collective in _FACTORS:
        return {_FACTORS[collective] or split}
    return {busbw_factor(collective, world_size)}


def unfit(size: int, time_us: float, algbw: float, busbw: float) -> ValueError:
    """What is raised where a row's figures contradict each other."""
    return ValueError(
        f"{size} bytes in {time_us:g} µs are not {algbw:g} GB/s, or that is not {busbw:g} GB/s on the bus"
    )


def named_in(text: str) -> str | None:
    """The collective that a program's or file's name tells: ``all_reduce_perf``, ``healthy-1-all_reduce.log``."""
    return next((name for name in COLLECTIVES if name in text), None)


def complete(test: NcclTest) -> NcclTest:
    """The same test. Raises EvidenceError where rows are missing, twice, or do not fit their own arithmetic.

    A sweep that asks for fewer sizes, a reduced one and wrong values are told by `doubts`: they are measured.
    """
    if not test.rows:
        raise EvidenceError("has a header and no row", file=test.file, line=test.line)
    ranks = [device.rank for device in test.devices]
    if len(ranks) == test.world_size and sorted(ranks) != list(range(len(ranks))):
        raise EvidenceError(f"lists ranks {ranks}, not each once from 0", file=test.file, line=test.line)
    last = min(test.options.max_bytes, test.reduced_to or test.options.max_bytes)
    asked = list(islice(test.options.sizes(last), MOST_SIZES))
    room = GAPLESS * max(1, test.world_size)
    if len(asked) != len(test.rows):
        raise EvidenceError(
            f"has {len(test.rows)} sizes of {len(asked)} from {format_size(test.options.min_bytes)} to {format_size(last)}",
            file=test.file, line=test.line,
        )  # fmt: skip
    for size, row in zip(asked, test.rows, strict=True):
        if not size - room < row.size_bytes <= size:
            raise EvidenceError(f"is of {row.size_bytes} bytes where {size} follow", file=test.file, line=row.line)
    mean = fmean(timing.busbw_gb_s for row in test.rows for timing in row.placements)
    if abs(mean - test.average_gb_s) > 0.0051 + 2e-4 * mean:
        raise EvidenceError(
            f"the rows' mean bus bandwidth is {mean:.4f} GB/s, and the footer says {test.average_gb_s:g}: rows were changed",
            file=test.file, line=test.line,
        )  # fmt: skip
    return test


def wrong_values(test: NcclTest) -> str:
    """Which values came out wrong; empty where none did. Data that is wrong disproves, it does not merely fail to prove.

    Versions before 2.13 printed the largest difference, which is a fraction; they count what is out of bounds.
    """
    rows = [row for row in test.rows if any((timing.wrong or 0) >= 1 for timing in row.placements)]
    if rows:
        more = f" and {len(rows) - 1} more sizes" if len(rows) > 1 else ""
        return f"elements came out wrong at {format_size(rows[0].size_bytes)} (line {rows[0].line}){more}"
    return f"{test.out_of_bounds} values were out of bounds" if test.out_of_bounds else ""


def doubts(test: NcclTest, *, ranks: int | None = None) -> list[str]:
    """Why figures of a complete test must not be used as they are; empty where they may. `ranks`: how many were asked for."""
    found = [said] if (said := wrong_values(test)) else []
    if not test.options.validated:
        found.append("values were not validated (-c 0)")
    elif unseen := [row for row in test.rows if all(timing.wrong is None for timing in row.placements)]:
        more = f" and {len(unseen) - 1} more sizes" if len(unseen) > 1 else ""
        found.append(
            f"values at {format_size(unseen[0].size_bytes)} (line {unseen[0].line}){more} were not validated, though that was asked for"
        )
    if test.reduced_to is not None and test.reduced_to < test.options.max_bytes:
        asked = format_size(test.options.max_bytes)
        found.append(f"the sweep ends at {format_size(test.reduced_to)} for lack of memory; {asked} were asked for")
    if test.world_size == 1:
        found.append("one rank only: nothing was communicated (without MPI, every process runs a test of its own)")
    if ranks is not None and ranks != test.world_size:
        found.append(f"{test.world_size} ranks took part, {ranks} were asked for")
    places = [(device.host, device.pci) for device in test.devices]
    if len(set(places)) < len(places):
        found.append("two ranks shared a GPU")
    return found
