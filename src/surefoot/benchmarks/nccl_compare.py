"""Captures of nccl-tests against healthy ones: which part of the curve moved, by how much, and what that means. Pure.

Each collective of the candidate is held against the same one of the baseline, size by size. Floor, knee, plateau,
single sizes and scatter are judged apart (`surefoot.stats.shift`), and NCCL's log beside them, where both have one:
what carries the data, and over how many channels. `surefoot.benchmarks.nccl_causes` puts them together in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from surefoot.benchmarks.nccl_causes import Seen, cause
from surefoot.benchmarks.nccl_curve import Part, points
from surefoot.benchmarks.nccl_log import NcclLog
from surefoot.benchmarks.nccl_log_links import Kind
from surefoot.benchmarks.nccl_shifts import Shifts, compared
from surefoot.benchmarks.nccl_tests import NcclTest, doubts, factors, wrong_values
from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.status import Status, combine
from surefoot.stats.shift import Shift, Verdict
from surefoot.units import format_size

_SLOWER_KINDS = (Kind.SHM, Kind.NET)
_PRINTED = 1e-3
"""Times of one run differ by so much at most between what is printed and what is written as JSON."""


@dataclass(frozen=True)
class Capture:
    """A test, and NCCL's log where it wrote one into the same file."""

    test: NcclTest
    log: NcclLog | None = None


class Finding(Record):
    """One thing that was looked at, of one collective."""

    collective: str
    part: str
    """``floor``, ``knee``, ``plateau``, ``variance``, ``transport``, ``values`` or ``capture``."""
    status: Status
    expected: str
    actual: str
    cause: str = ""
    """What it means and what to look at; empty where nothing moved."""
    file: str = ""
    line: int | None = None


class Comparison(Record):
    """Of all that was looked at. FAILED as soon as one part is; PASSED only where all of them are."""

    status: Status
    findings: tuple[Finding, ...]


def compare(healthy: Sequence[Capture], candidates: Sequence[Capture], unread: Sequence[Finding] = ()) -> Comparison:
    """`unread`: captures that were refused; they prove nothing, so nothing PASSED with one."""
    found = list(unread)
    by_name = [_by_collective(captures) for captures in (healthy, candidates)]
    for name in sorted({*by_name[0], *by_name[1]}):
        known, new = (side.get(name, []) for side in by_name)
        if known and new:
            found += _collective(name, known, new)
        else:
            absent = "candidate" if known else "baseline"
            found.append(_unproved(name, f"captures of {name} on both sides", f"none in the {absent}"))
    return Comparison(status=combine(finding.status for finding in found), findings=tuple(found))


def refused(error: EvidenceError, file: str) -> Finding:
    """A file that is no whole capture: its figures prove nothing."""
    return Finding(
        collective="", part="capture", status=Status.INCONCLUSIVE, expected="a whole capture", actual=error.problem,
        file=file, line=error.line,
    )  # fmt: skip


def _by_collective(captures: Iterable[Capture]) -> dict[str, list[Capture]]:
    found: dict[str, list[Capture]] = {}
    for capture in captures:
        found.setdefault(capture.test.collective or "a collective that is not named", []).append(capture)
    return found


def _unproved(name: str, expected: str, actual: str, capture: Capture | None = None) -> Finding:
    file, line = (capture.test.file, capture.test.line) if capture else ("", None)
    return Finding(
        collective=name, part="capture", status=Status.INCONCLUSIVE, expected=expected, actual=actual, file=file, line=line
    )  # fmt: skip


def _damaged(name: str, wrong: str, test: NcclTest, status: Status) -> Finding:
    return Finding(
        collective=name, part="values", status=status, expected="every element right", actual=wrong,
        cause="data arrives damaged: look at ECC and Xid errors of the GPUs, and run the sweep on each pair of them",
        file=test.file, line=test.line,
    )  # fmt: skip


def _usable(name: str, captures: Sequence[Capture], healthy: bool) -> tuple[list[Capture], list[Finding]]:
    """Captures whose figures count, and what is said of the others."""
    good, found = [], []
    for capture in captures:
        test = capture.test
        said = doubts(test)
        if wrong := wrong_values(test):
            found.append(_damaged(name, wrong, test, Status.INCONCLUSIVE if healthy else Status.FAILED))
        elif said:
            found.append(_unproved(name, "figures that may be used", "; ".join(said), capture))
        else:
            good.append(capture)
    return good, found


def _twice(name: str, captures: Sequence[Capture]) -> Iterator[Finding]:
    """A capture given again, or as log and as JSON, is no repeat: no two runs take the same times at every size."""
    swept = [(points(capture.test), capture) for capture in captures]
    for (one, first), (other, again) in combinations(swept, 2):
        if one.keys() == other.keys() and all(math.isclose(one[at], other[at], rel_tol=_PRINTED) for at in one):
            told = f"the times of {first.test.file}:{first.test.line}"
            yield _unproved(name, "captures of runs of their own", told, again)


def _collective(name: str, healthy: Sequence[Capture], candidates: Sequence[Capture]) -> list[Finding]:
    known, found = _usable(name, healthy, healthy=True)
    new, more = _usable(name, candidates, healthy=False)
    found += [*more, *_twice(name, [*known, *new])]
    if not known or not new:
        return found
    if problem := _unlike([capture.test for capture in (*known, *new)]):
        return [*found, _unproved(name, "the same ranks, type and operation", problem, new[0])]
    factor = min(factors(name, known[0].test.world_size))
    sides = [[points(capture.test) for capture in side] for side in (known, new)]
    try:
        shifts = compared(sides[0], sides[1], factor)
    except ValueError as error:
        return [*found, _unproved(name, "a sweep with a floor and a plateau", str(error), new[0])]
    largest = [min(capture.test.largest.size_bytes for capture in side) for side in (known, new)]
    if largest[1] < largest[0]:
        told = f"it ends at {format_size(largest[1])}"
        found.append(_unproved(name, f"sizes up to {format_size(largest[0])}", told, new[0]))
    transport, seen = _transport(name, known, new)
    seen = replace(seen, slower=shifts.slower, sizes=tuple(shifts.single), unsteady=shifts.unsteady)
    parts = [*_curve(name, shifts, new[0].test), *transport]
    return [
        *found,
        *(one.model_copy(update={"cause": cause(seen)} if one.status is Status.FAILED else {}) for one in parts),
    ]


def _unlike(tests: Sequence[NcclTest]) -> str:
    """What keeps their times from being compared; empty where nothing does."""
    shapes = {
        f"{test.world_size} ranks, {test.rows[0].datatype} {test.rows[0].redop or ''}{', in graphs' if test.options.graph else ''}"
        for test in tests
    }
    return " beside ".join(sorted(shapes)) if len(shapes) > 1 else ""


def _curve(name: str, shifts: Shifts, test: NcclTest) -> Iterator[Finding]:
    """Floor, knee, plateau and variance, with the place of the first candidate."""
    scatter = shifts.scatter
    limit = f"points within {scatter.unsure_from:.0%} of their curve"
    variance = (scatter, limit, f"half of them are off by more than {scatter.value:.0%}")
    judged = {"floor": _floor(shifts), "knee": _knee(shifts), "plateau": _plateau(shifts), "variance": variance}
    for part, (one, expected, actual) in judged.items():
        status = {Verdict.SLOWER: Status.FAILED, Verdict.UNSURE: Status.INCONCLUSIVE}.get(one.verdict, Status.PASSED)
        repeats = f"; {one.more} more healthy repeat{'s'[: one.more != 1]} would tell"
        yield Finding(
            collective=name, part=part, status=status, expected=expected,
            actual=actual + (repeats if one.verdict is Verdict.UNSURE and one.more else ""), file=test.file, line=test.line,
        )  # fmt: skip


def _percent(value: float) -> str:
    return f"{math.expm1(value):+.0%}"


def _floor(shifts: Shifts) -> tuple[Shift, str, str]:
    base, one = shifts.base, shifts.parts[Part.FLOOR]
    most = base.floor_us * math.exp(one.unsure_from)
    expected = f"{base.floor_us:.1f} µs up to {format_size(base.sizes(Part.FLOOR)[-1])}, at most {most:.1f}"
    return one, expected, f"{base.floor_us * math.exp(one.value):.1f} µs ({_percent(one.value)})"


def _plateau(shifts: Shifts) -> tuple[Shift, str, str]:
    base, one, sizes = shifts.base, shifts.parts[Part.PLATEAU], shifts.base.sizes(Part.PLATEAU)
    at = base.busbw(base.times_us, sizes[-1])
    measured = median(base.busbw(sweep, sizes[-1]) for sweep in shifts.candidates)
    expected = f"{at:.1f} GB/s at {format_size(sizes[-1])}, at least {at * math.exp(-one.unsure_from):.1f}"
    return one, expected, f"{measured:.1f} GB/s (time {_percent(one.value)} from {format_size(sizes[0])})"


def _knee(shifts: Shifts) -> tuple[Shift, str, str]:
    """What floor and plateau do not explain: the middle as a whole, or single sizes anywhere."""
    one, single = shifts.parts[Part.KNEE], shifts.single
    expected = f"no size slower than floor and plateau make it, the middle by at most {_percent(one.unsure_from)}"
    if not single:
        return one, expected, _percent(one.value)
    size = max(single, key=lambda at: single[at].value)
    more = f" and {len(single) - 1} more sizes" if len(single) > 1 else ""
    return single[size], expected, f"{_percent(single[size].value)} at {format_size(size)}{more}"


def _transport(name: str, *sides: Sequence[Capture]) -> tuple[list[Finding], Seen]:
    """What NCCL's logs tell, where both the healthy and the candidates have one."""
    logs = [[capture.log for capture in side if capture.log is not None and capture.log.connections] for side in sides]
    if not all(logs):
        return [], Seen()
    ways = [{(link.kind, link.how) for log in side for link in log.connections} for side in logs]
    slow = {way for way in ways[1] - ways[0] if way[0] in _SLOWER_KINDS}
    sockets = any(how.startswith("Socket") for _, how in slow)
    kinds = frozenset(kind for kind, _ in slow) - {kind for kind, _ in ways[0]}
    counts = [max((said.get("coll", 0) for log in side for _, said in log.notes.channels), default=0) for side in logs]
    settings = [
        {f"{key}={value}" for log in side for said in log.notes.settings.values() for key, value in said.items()}
        for side in logs
    ]
    channels = (counts[0], counts[1]) if all(counts) and counts[0] != counts[1] else None
    seen = Seen(kinds=kinds, sockets=sockets, channels=channels, settings=tuple(sorted(settings[1] - settings[0])))
    expected, actual = (", ".join(sorted({kind.value for kind, _ in side})) for side in ways)
    test, fell = sides[1][0].test, bool(kinds or sockets)
    shown = next(
        (link.line for log in logs[1] for link in log.connections if fell and (link.kind, link.how) in slow), None
    )
    # What a log does not show may still be so: of a rank without a line nobody knows which way it took.
    gaps = () if fell else tuple(gap for log in logs[1] for gap in log.gaps())
    status = Status.FAILED if fell else Status.INCONCLUSIVE if gaps else Status.PASSED
    told = f": {shown.message}" if shown else f"; {gaps[0]}" if gaps else ""
    finding = Finding(
        collective=name, part="transport", status=status,
        expected=f"data goes by {expected}", actual=f"by {actual}{told}",
        file=test.file, line=shown.number if shown else test.line,
    )  # fmt: skip
    return [finding], seen
