"""Captures of nccl-tests against healthy ones: which part of the curve moved, by how much, and what that means. Pure.

Each collective of the candidate is held against the same one of the baseline, size by size. Floor, knee, plateau,
single sizes and scatter are judged apart (`surefoot.stats.shift`), and NCCL's log beside them, where both have one:
what carries the data, and over how many channels. `surefoot.benchmarks.nccl_causes` puts them together in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from surefoot.benchmarks.nccl_causes import Seen, cause
from surefoot.benchmarks.nccl_curve import Baseline, Deviation, Part, Point, baseline, points
from surefoot.benchmarks.nccl_log import NcclLog
from surefoot.benchmarks.nccl_log_links import Kind
from surefoot.benchmarks.nccl_tests import NcclTest, doubts, factors, wrong_values
from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.model.status import Status, combine
from surefoot.stats.shift import Allowance, Shift, Verdict, shift
from surefoot.units import format_size

ALLOWED = {
    Part.FLOOR: Allowance(effect=0.20, between=0.40, gross=0.9),
    Part.KNEE: Allowance(effect=0.15, between=0.10, gross=0.7),
    Part.PLATEAU: Allowance(effect=0.025, between=0.01, gross=0.15),
}
"""Learned from six repeats on two H200: floors differ by 45 % between processes, plateaus by less than 1 %."""
_ONE_SIZE = {
    Part.FLOOR: Allowance(effect=0.5, between=0.2, gross=1.2),
    Part.KNEE: Allowance(effect=0.5, between=0.2, gross=1.2),
    Part.PLATEAU: Allowance(effect=0.10, between=0.05, gross=0.4),
}
_SCATTER = Allowance(effect=0.10, between=0.05, gross=0.3)
_SLOWER_KINDS = (Kind.SHM, Kind.NET)


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


@dataclass(frozen=True)
class _Judged:
    """One collective: the baseline, every healthy repeat against it, and the candidate's."""

    name: str
    base: Baseline
    healthy: tuple[Deviation, ...]
    candidates: tuple[Deviation, ...]
    captures: tuple[tuple[Capture, ...], tuple[Capture, ...]]

    def of(
        self,
        figure: Callable[[Deviation], float],
        allowed: Allowance,
        over: Callable[[Iterable[float]], float] = median,
    ) -> Shift:
        """The candidate's figure, `over` its repeats, against the healthy ones."""
        return shift(over([figure(one) for one in self.candidates]), [figure(one) for one in self.healthy], allowed)

    def finding(self, part: str, verdict: Verdict, expected: str, actual: str, shown: Shift) -> Finding:
        """With the first candidate's place in its file."""
        status = {Verdict.SLOWER: Status.FAILED, Verdict.UNSURE: Status.INCONCLUSIVE}.get(verdict, Status.PASSED)
        repeats = f"{shown.more} more healthy repeat{'s'[: shown.more != 1]}"
        more = f"; {repeats} would tell" if verdict is Verdict.UNSURE and shown.more else ""
        test = self.captures[1][0].test
        return Finding(
            collective=self.name, part=part, status=status, expected=expected, actual=actual + more,
            file=test.file, line=test.line,
        )  # fmt: skip


def _collective(name: str, healthy: Sequence[Capture], candidates: Sequence[Capture]) -> list[Finding]:
    known, found = _usable(name, healthy, healthy=True)
    new, more = _usable(name, candidates, healthy=False)
    found += more
    if not known or not new:
        return found
    if problem := _unlike([capture.test for capture in (*known, *new)]):
        return [*found, _unproved(name, "the same ranks, type and operation", problem, new[0])]
    sides = [[points(capture.test) for capture in side] for side in (known, new)]
    try:
        base = baseline(
            sides[0], set.intersection(*(set(one) for side in sides for one in side)), _factor(known[0].test)
        )
    except ValueError as error:
        return [*found, _unproved(name, "a sweep with a floor and a plateau", str(error), new[0])]
    known_off, new_off = (tuple(base.deviation(one) for one in side) for side in sides)
    judged = _Judged(name, base, known_off, new_off, (tuple(known), tuple(new)))
    largest = [min(capture.test.largest.size_bytes for capture in side) for side in (known, new)]
    if largest[1] < largest[0]:
        told = f"it ends at {format_size(largest[1])}"
        found.append(_unproved(name, f"sizes up to {format_size(largest[0])}", told, new[0]))
    return [*found, *_parts(judged, sides[1])]


def _unlike(tests: Sequence[NcclTest]) -> str:
    """What keeps their times from being compared; empty where nothing does."""
    shapes = {
        f"{test.world_size} ranks, {test.rows[0].datatype} {test.rows[0].redop or ''}{', in graphs' if test.options.graph else ''}"
        for test in tests
    }
    return " beside ".join(sorted(shapes)) if len(shapes) > 1 else ""


def _factor(test: NcclTest) -> float:
    return next(iter(factors(test.collective, test.world_size)))


def _parts(judged: _Judged, sweeps: Sequence[Mapping[Point, float]]) -> list[Finding]:
    # Of two values that a floor has by chance, only the higher one shows that both are higher than they were.
    over: dict[Part, Callable[[Iterable[float]], float]] = {Part.FLOOR: max, Part.KNEE: median, Part.PLATEAU: median}
    shifts = {part: judged.of(lambda off, p=part: off.parts[p], ALLOWED[part], over[part]) for part in Part}  # type: ignore[misc]
    single = _single_sizes(judged)
    steady = judged.of(lambda off: off.scatter, _SCATTER)
    transport, seen = _transport(judged)
    slower = {part: one.value for part, one in shifts.items() if one.verdict is Verdict.SLOWER}
    seen = replace(
        seen, slower=slower, sizes=tuple(size for size, one in single if one.verdict is Verdict.SLOWER),
        unsteady=steady.verdict is Verdict.SLOWER,
    )  # fmt: skip
    found = [
        _floor(judged, shifts[Part.FLOOR]),
        _knee(judged, shifts[Part.KNEE], single),
        _plateau(judged, shifts[Part.PLATEAU], sweeps),
    ]
    limit = f"points within {steady.unsure_from:.0%} of their curve"
    found.append(
        judged.finding(
            "variance", steady.verdict, limit, f"half of them are off by more than {steady.value:.0%}", steady
        )
    )
    found += transport
    words = cause(seen)
    return [one.model_copy(update={"cause": words}) if one.status is Status.FAILED else one for one in found]


def _percent(value: float) -> str:
    return f"{math.expm1(value):+.0%}"


def _floor(judged: _Judged, one: Shift) -> Finding:
    base, last = judged.base, judged.base.sizes(Part.FLOOR)[-1]
    expected = (
        f"{base.floor_us:.1f} µs up to {format_size(last)}, at most {base.floor_us * math.exp(one.unsure_from):.1f}"
    )
    actual = f"{base.floor_us * math.exp(one.value):.1f} µs ({_percent(one.value)})"
    return judged.finding(Part.FLOOR.value, one.verdict, expected, actual, one)


def _plateau(judged: _Judged, one: Shift, sweeps: Sequence[Mapping[Point, float]]) -> Finding:
    base, size = judged.base, judged.base.sizes(Part.PLATEAU)[-1]
    at = base.busbw(base.times_us, size)
    measured = median(base.busbw(sweep, size) for sweep in sweeps)
    expected = f"{at:.1f} GB/s at {format_size(size)}, at least {at * math.exp(-one.unsure_from):.1f}"
    time = f"time {_percent(one.value)} from {format_size(base.sizes(Part.PLATEAU)[0])}"
    return judged.finding(Part.PLATEAU.value, one.verdict, expected, f"{measured:.1f} GB/s ({time})", one)


def _single_sizes(judged: _Judged) -> list[tuple[int, Shift]]:
    """Sizes that stand out of their part in both placements."""
    shifts = (
        (size, judged.of(lambda off, at=size: off.sizes[at], _ONE_SIZE[part]))  # type: ignore[misc]
        for size, part in sorted(judged.base.part_of.items())
    )
    return [(size, one) for size, one in shifts if one.verdict is Verdict.SLOWER]


def _knee(judged: _Judged, one: Shift, single: Sequence[tuple[int, Shift]]) -> Finding:
    """What floor and plateau do not explain: the middle as a whole, or single sizes anywhere."""
    expected = f"no size slower than floor and plateau make it, the middle by at most {_percent(one.unsure_from)}"
    if single:
        size, worst = max(single, key=lambda found: found[1].value)
        more = f" and {len(single) - 1} more sizes" if len(single) > 1 else ""
        actual = f"{_percent(worst.value)} at {format_size(size)}{more}"
        return judged.finding(Part.KNEE.value, Verdict.SLOWER, expected, actual, worst)
    return judged.finding(Part.KNEE.value, one.verdict, expected, _percent(one.value), one)


def _transport(judged: _Judged) -> tuple[list[Finding], Seen]:
    """What NCCL's logs tell, where both sides have one."""
    logs = [
        [capture.log for capture in side if capture.log is not None and capture.log.connections]
        for side in judged.captures
    ]
    if not all(logs):
        return [], Seen()
    ways = [{(c.kind, c.how) for log in side for c in log.connections} for side in logs]
    slow = {(kind, how) for kind, how in ways[1] - ways[0] if kind in _SLOWER_KINDS}
    sockets = any(how.startswith("Socket") for _, how in slow)
    kinds = frozenset(kind for kind, _ in slow if kind not in {known for known, _ in ways[0]})
    counts = [max((said.get("coll", 0) for log in side for _, said in log.notes.channels), default=0) for side in logs]
    settings = [
        {f"{name}={value}" for log in side for said in log.notes.settings.values() for name, value in said.items()}
        for side in logs
    ]
    channels = (counts[0], counts[1]) if all(counts) and counts[0] != counts[1] else None
    seen = Seen(kinds=kinds, sockets=sockets, channels=channels, settings=tuple(sorted(settings[1] - settings[0])))
    shown = next((c.line for log in logs[1] for c in log.connections if (c.kind, c.how) in slow), None)
    expected, actual = (", ".join(sorted({kind.value for kind, _ in side})) for side in ways)
    fell = bool(kinds or sockets)
    test = judged.captures[1][0].test
    finding = Finding(
        collective=judged.name, part="transport", status=Status.FAILED if fell else Status.PASSED,
        expected=f"data goes by {expected}", actual=f"by {actual}" + (f": {shown.message}" if fell and shown else ""),
        file=test.file, line=shown.number if shown else test.line,
    )  # fmt: skip
    return [finding], seen
