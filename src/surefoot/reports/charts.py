"""Charts as inline SVG. Colours and strokes are CSS classes, so light, dark and print just work.

Why not matplotlib: docs/decisions/report-charts.md. Each function returns markup that is safe to
place in a page: every text goes through `escape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from surefoot.model.verdict import CategoryCount
from surefoot.reports.details import Curve, LossPoint
from surefoot.reports.text import figure, microseconds, rate
from surefoot.units import format_size

WIDTH = 480
"""Drawn at this width, so that text keeps its size on a desktop and stays readable on a phone."""

_LINE_HEIGHT = 15.0
_SERIES = 6
_POINTS_WITH_DOT = 30
_MOST_POINTS = 500


@dataclass(frozen=True)
class Series:
    """One line: points (x, y, tooltip), ascending in x."""

    name: str
    points: tuple[tuple[float, float, str], ...]
    style: str


@dataclass(frozen=True)
class Mark:
    """A horizontal guide with its label: a floor or a plateau."""

    y: float
    label: str
    above: bool = True


@dataclass(frozen=True)
class Axis:
    """Values → pixels, linear or logarithmic, with the ticks that are drawn."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Pixel of a value."""
        low, high, v = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        share = 0.5 if high == low else (v - low) / (high - low)
        return self.start + share * (self.end - self.start)


def _tag(name: str, content: str | Markup = "", **attributes: object) -> Markup:
    """``<name key="value">content</name>``; underscores in keys become hyphens, ``class_`` is class."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(round(v, 1) if isinstance(v, float) else v)}"'
        for key, v in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(Markup(name), Markup(pairs), content, Markup(name))  # noqa: S704 (escaped)


def _svg(parts: Sequence[Markup], *, height: float, title: str, description: str) -> Markup:
    head = _tag("title", title) + _tag("desc", description)
    return _tag(
        "svg", Markup().join([head, *parts]), class_="chart", viewBox=f"0 0 {WIDTH} {height:.0f}", role="img",
        aria_label=f"{title}. {description}",
    )  # fmt: skip


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


# --- axes ---------------------------------------------------------------------------------


def _decades(
    low: float, high: float, show: Callable[[float], str]
) -> tuple[float, float, tuple[tuple[float, str], ...]]:
    """A logarithmic range that ends on decades, and a tick for each (for every so many where there are more than seven)."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    every = math.ceil((last - first) / 6)
    return 10.0**first, 10.0**last, tuple((10.0**e, show(10.0**e)) for e in range(first, last + 1, every))


def _size_ticks(low: int, high: int) -> tuple[tuple[float, str], ...]:
    """Ticks at powers of two that have short names; the smallest size is always one."""
    every = 5 if high / low > 2**12 else 2
    ticks = [(float(low), format_size(low))]
    exponent = math.ceil(math.log2(low) / every) * every
    while 2**exponent <= high:
        if 2**exponent / low >= 2 ** (every / 2):
            ticks.append((2.0**exponent, format_size(2**exponent)))
        exponent += every
    return tuple(ticks)


def _linear_ticks(low: float, high: float, count: int = 5) -> tuple[tuple[float, str], ...]:
    """About `count` ticks at 1, 2 or 5 times a power of ten."""
    span = high - low or 1.0
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple((n * step, f"{n * step:,.{decimals}f}") for n in range(first, last + 1))


def _frame(x: Axis, y: Axis, *, x_title: str, y_title: str) -> list[Markup]:
    """Grid lines, tick labels and axis titles."""
    parts = [_tag("text", y_title, x=x.start, y=y.end - 14, class_="axis-title")]
    for value, label in y.ticks:
        at = y.at(value)
        parts.append(_tag("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
        parts.append(_tag("text", label, x=x.start - 8, y=at + 4, class_="tick end"))
    parts.append(_tag("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    for value, label in x.ticks:
        at = x.at(value)
        parts.append(_tag("line", x1=at, x2=at, y1=y.start, y2=y.start + 4, class_="axis"))
        parts.append(_tag("text", label, x=at, y=y.start + 18, class_="tick middle"))
    parts.append(_tag("text", x_title, x=x.end, y=y.start + 36, class_="axis-title end"))
    return parts


def _spread(wanted: Sequence[float], *, low: float, high: float) -> list[float]:
    """Label positions at least a line apart, in the given order of heights, near where they are wanted."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    previous = low - _LINE_HEIGHT
    for i in order:
        placed[i] = previous = max(wanted[i], previous + _LINE_HEIGHT)
    limit = high + _LINE_HEIGHT
    for i in reversed(order):
        placed[i] = limit = min(placed[i], limit - _LINE_HEIGHT)
    return placed


def _lines(series: Sequence[Series], x: Axis, y: Axis) -> list[Markup]:
    """Lines with their points, and each line's name (where it has one) at its right end."""
    parts: list[Markup] = []
    ends = [y.at(s.points[-1][1]) for s in series]
    for line, end, label_y in zip(series, ends, _spread(ends, low=y.end, high=y.start), strict=True):
        pixels = [(x.at(px), y.at(py)) for px, py, _ in line.points]
        if len(pixels) > 1:
            parts.append(_tag("path", d=_path(pixels), class_=f"line {line.style}"))
        # A dense line gets no dots, only places that answer to the pointer.
        dot = "dot" if len(pixels) <= _POINTS_WITH_DOT else "hit"
        parts += [
            _tag("circle", _tag("title", tip), cx=px, cy=py, r=3, class_=f"{dot} {line.style}")
            for (px, py), (_, _, tip) in zip(pixels, line.points, strict=True)
        ]
        if not line.name:
            continue
        right = pixels[-1][0]
        leader = [(right + 5, end), (right + 11, label_y), (right + 14, label_y)]
        parts.append(_tag("path", d=_path(leader), class_=f"leader {line.style}"))
        parts.append(_tag("text", line.name, x=right + 17, y=label_y + 4, class_=f"label {line.style}"))
    return parts


def _marks(marks: Sequence[Mark], x: Axis, y: Axis) -> list[Markup]:
    parts = []
    for mark in marks:
        at = y.at(mark.y)
        parts.append(_tag("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="guide"))
        place = {"x": x.start + 6, "class_": "guide-label"} if mark.above else {"x": x.end, "class_": "guide-label end"}
        above = mark.above or at + 18 > y.start  # below it would stand on the axis
        parts.append(_tag("text", mark.label, y=at - 6 if above else at + 15, **place))
    return parts


# --- collectives --------------------------------------------------------------------------


def _sweep(
    curves: Sequence[Curve],
    value: Callable[[Curve], list[tuple[int, float, str]]],
    show: Callable[[float], str],
    marks: Sequence[Mark],
    *,
    y_title: str,
    title: str,
    description: str,
) -> Markup:
    """Log–log chart of one figure over message size; empty where nothing was measured."""
    series = [
        Series(curve.name, tuple((float(s), v, tip) for s, v, tip in value(curve)), f"s{n % _SERIES}")
        for n, curve in enumerate(curves)
    ]
    series = [line for line in series if line.points]
    if not series:
        return Markup()
    values = [v for line in series for _, v, _ in line.points]
    sizes = [int(s) for line in series for s, _, _ in line.points]
    low, high, ticks = _decades(min(values), max(values), lambda v: re.sub(r"\.0+ ", " ", show(v)))
    x = Axis(min(sizes), max(sizes), 62, WIDTH - 114, _size_ticks(min(sizes), max(sizes)), log=True)
    y = Axis(low, high, 262, 34, ticks, log=True)
    parts = [*_frame(x, y, x_title="message size", y_title=y_title), *_lines(series, x, y), *_marks(marks, x, y)]
    return _svg(parts, height=304, title=title, description=description)


def collective_times(curves: Sequence[Curve]) -> Markup:
    """Time over message size; the latency floor of the first collective is marked."""
    floor = curves[0].floor_us if curves else None
    marks = [] if floor is None else [Mark(floor, f"latency floor {microseconds(floor)}", above=False)]

    def times(curve: Curve) -> list[tuple[int, float, str]]:
        return [
            (p.size_bytes, p.time_us, f"{curve.name}, {format_size(p.size_bytes)}: {microseconds(p.time_us)}")
            for p in curve.points
            if p.time_us is not None
        ]

    floors = ", ".join(f"{c.name} {microseconds(c.floor_us)}" for c in curves)
    return _sweep(
        curves, times, microseconds, marks, y_title="time", title="Time of a collective against message size",
        description=f"Both axes logarithmic. Shortest times: {floors}.",
    )  # fmt: skip


def collective_bandwidths(curves: Sequence[Curve]) -> Markup:
    """Bus bandwidth over message size; the plateau (or peak) of the first collective is marked."""
    marks = []
    if curves and (peak := curves[0].peak) is not None and peak.busbw_gb_s is not None:
        word = "plateau" if curves[0].levelled else "peak"
        marks = [Mark(peak.busbw_gb_s, f"{word} {rate(peak.busbw_gb_s)} at {format_size(peak.size_bytes)}")]

    def bandwidths(curve: Curve) -> list[tuple[int, float, str]]:
        return [
            (p.size_bytes, p.busbw_gb_s, f"{curve.name}, {format_size(p.size_bytes)}: {rate(p.busbw_gb_s)}")
            for p in curve.points
            if p.busbw_gb_s is not None
        ]

    peaks = ", ".join(f"{c.name} {rate(c.peak.busbw_gb_s if c.peak else None)}" for c in curves)
    return _sweep(
        curves, bandwidths, rate, marks, y_title="bus bandwidth",
        title="Bus bandwidth against message size", description=f"Both axes logarithmic. Highest: {peaks}.",
    )  # fmt: skip


# --- training -----------------------------------------------------------------------------


def _thin(points: Sequence[LossPoint]) -> list[LossPoint]:
    """At most about `_MOST_POINTS` points: of each bucket the lowest and the highest loss, so no spike is lost."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = math.ceil(len(points) / (_MOST_POINTS / 2))
    kept = [points[0], points[-1]]
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        kept += [min(bucket, key=lambda p: p.loss), max(bucket, key=lambda p: p.loss)]
    return sorted({p.step: p for p in kept}.values(), key=lambda p: p.step)


def trailing_mean(points: Sequence[LossPoint], window: int) -> list[LossPoint]:
    """Each loss replaced by the mean of itself and the `window` - 1 before it."""
    means = []
    for n, point in enumerate(points):
        recent = [p.loss for p in points[max(0, n - window + 1) : n + 1]]
        means.append(LossPoint(point.step, sum(recent) / len(recent), point.learning_rate))
    return means


def smoothing_window(count: int) -> int:
    """Steps in the trailing mean: 1 (none) below 40 points, else a twentieth of them."""
    return 1 if count < 40 else count // 20


def loss_curve(points: Sequence[LossPoint]) -> Markup:
    """Training loss over optimiser steps, raw and smoothed, with its first and last value."""
    if not points:
        return Markup()
    window = smoothing_window(len(points))
    smooth = trailing_mean(points, window)
    losses = [p.loss for p in points]
    low, high = min(0.0, *losses), max(0.0, *losses) * 1.05 or 1.0
    first, last = points[0].step, max(points[-1].step, points[0].step + 1)
    x = Axis(first, last, 62, WIDTH - 16, _linear_ticks(first, last))
    y = Axis(low, high, 262, 34, _linear_ticks(low, high))
    parts = _frame(x, y, x_title="optimiser step", y_title="training loss")
    if window > 1:
        raw = [(x.at(p.step), y.at(p.loss)) for p in _thin(points)]
        parts.append(_tag("path", d=_path(raw), class_="line s0 faint"))
    drawn = tuple((float(p.step), p.loss, f"step {p.step:,}: loss {figure(p.loss)}") for p in _thin(smooth))
    parts += _lines([Series("", drawn, "s0")], x, y)
    # Top right, where a falling loss leaves room.
    told = f"first step {figure(losses[0])}, last step {figure(losses[-1])}"
    parts.append(_tag("text", told, x=x.end, y=y.end + 4, class_="label s0 end"))
    return _svg(
        parts, height=304, title="Training loss",
        description=f"From {figure(losses[0])} at step {first} to {figure(losses[-1])} at step {points[-1].step}.",
    )  # fmt: skip


def learning_rate(points: Sequence[LossPoint]) -> Markup:
    """Learning rate over optimiser steps, low and wide; empty where none was logged."""
    given = [p for p in points if p.learning_rate is not None]
    highest = max((p.learning_rate or 0.0 for p in given), default=0.0)
    if len(given) < 2 or highest <= 0:
        return Markup()
    x = Axis(given[0].step, given[-1].step, 62, WIDTH - 16, ())
    y = Axis(0, highest, 84, 26, ((0.0, "0"), (highest, f"{highest:.2g}")))
    step = math.ceil(len(given) / _MOST_POINTS)
    kept = [*given[::step], given[-1]]
    parts = _frame(x, y, x_title="", y_title="learning rate")
    parts.append(_tag("path", d=_path([(x.at(p.step), y.at(p.learning_rate or 0.0)) for p in kept]), class_="line s1"))
    return _svg(parts, height=96, title="Learning rate", description=f"Highest {highest:.2g}, over {len(given)} steps.")


# --- evaluation ---------------------------------------------------------------------------


def category_bars(counts: Sequence[CategoryCount]) -> Markup:
    """Share of right answers for base and adapter in each category: strict as a bar, lenient as an outline."""
    if not counts:
        return Markup()
    left, right, row, gap = 76.0, WIDTH - 74.0, 18.0, 30.0
    parts: list[Markup] = []
    top = 26.0
    x = Axis(0, 1, left, right, tuple((n / 4, f"{n * 25} %") for n in range(5)))
    bottom = top + len(counts) * (2 * row + 6 + gap)
    for value, label in x.ticks:
        parts.append(_tag("line", x1=x.at(value), x2=x.at(value), y1=8.0, y2=bottom - 12, class_="grid"))
        parts.append(_tag("text", label, x=x.at(value), y=bottom + 4, class_="tick middle"))
    for count in counts:
        parts.append(_tag("text", count.category, x=left, y=top, class_="category"))
        pairs = (
            ("base", count.base_correct, count.base_lenient),
            ("adapter", count.adapter_correct, count.adapter_lenient),
        )
        for n, (who, strict, lenient) in enumerate(pairs):
            parts += _bar(who, strict, lenient, count.items, x=x, y=top + 8 + n * (row + 3), height=row)
        top += 2 * row + 6 + gap
    spoken = "; ".join(f"{c.category}: base {c.base_correct}, adapter {c.adapter_correct} of {c.items}" for c in counts)
    return _svg(parts, height=bottom + 14, title="Right answers, base against adapter", description=f"{spoken}.")


def _bar(who: str, strict: float, lenient: float, items: int, *, x: Axis, y: float, height: float) -> list[Markup]:
    middle = y + height / 2 + 4
    parts = [_tag("text", who, x=x.start - 8, y=middle, class_="tick end")]
    if items == 0:
        return [*parts, _tag("text", "no items", x=x.start + 6, y=middle, class_="tick")]
    outline, solid = (max(0.0, x.at(min(1.0, part / items)) - x.start) for part in (lenient, strict))
    tip = (
        f"{who}: {strict:g} of {items} strict ({strict / items:.0%}), {figure(lenient)} lenient ({lenient / items:.0%})"
    )
    parts += [
        _tag(
            "rect",
            _tag("title", tip),
            x=x.start,
            y=y + 0.5,
            width=outline,
            height=height - 1,
            class_=f"bar-outline {who}",
        ),
        _tag("rect", _tag("title", tip), x=x.start, y=y, width=solid, height=height, class_=f"bar {who}"),
        _tag("text", f"{strict:g} / {items}", x=x.end + 12, y=middle, class_="bar-label"),
    ]
    return parts
