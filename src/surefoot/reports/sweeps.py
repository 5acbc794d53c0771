"""Sweeps of collectives as a page, and as a picture for a slide or a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from surefoot.reports.details import Curve
from surefoot.reports.text import terminal_safe
from surefoot.units import format_size

Picture = Literal["svg", "png"]


@dataclass(frozen=True)
class Capture:
    """What a page says of a capture beside its curve."""

    file: str
    collective: str | None
    world_size: int
    version: str | None
    nccl: str | None
    doubts: tuple[str, ...]
    """What speaks against using it; empty: nothing."""


def draw(curves: Sequence[Curve], kind: Picture) -> bytes:
    """Time and bus bandwidth over size, side by side. Raises ModuleNotFoundError without the extra ``report``."""
    from matplotlib.figure import Figure  # a second, and only where a picture is asked for

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    time, bandwidth = figure.subplots(1, 2)
    for curve in curves:
        sizes = [point.size_bytes for point in curve.points]
        label = terminal_safe(curve.name).replace("$", r"\$")  # a pair of them would be read as a formula
        time.plot(sizes, [point.time_us for point in curve.points], marker=".", label=label)
        bandwidth.plot(sizes, [point.busbw_gb_s or 0.0 for point in curve.points], marker=".", label=label)
    for axes, word in ((time, "time, µs"), (bandwidth, "bus bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda size, _: format_size(int(size)))
        axes.set_xlabel("message size")
        axes.set_ylabel(word)
        axes.grid(visible=True, alpha=0.3)
    time.set_yscale("log")
    time.legend(fontsize="small")
    drawn = BytesIO()
    figure.savefig(drawn, format=kind, dpi=150)
    return drawn.getvalue()
