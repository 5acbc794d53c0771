"""Sweeps of collectives as a page, and as a picture for a slide or a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal

from surefoot.benchmarks.nccl_tests import NcclTest
from surefoot.reports.details import Curve, CurvePoint
from surefoot.reports.text import terminal_safe
from surefoot.units import format_size

Picture = Literal["svg", "png"]


def curves(tests: Sequence[NcclTest]) -> tuple[Curve, ...]:
    """Out of place, as nccl-tests' users quote it. Named by collective, and by file where there are several of one."""
    names = [test.collective or "?" for test in tests]
    return tuple(
        Curve(
            name=name if names.count(name) == 1 else f"{name} ({Path(test.file).stem})",
            points=tuple(
                CurvePoint(row.size_bytes, timing.time_us, timing.busbw_gb_s or None, timing.algbw_gb_s or None)
                for row in test.rows
                for timing in (row.out_of_place,)
                if row.size_bytes
            ),
        )
        for name, test in zip(names, tests, strict=True)
    )


def draw(tests: Sequence[NcclTest], kind: Picture) -> bytes:
    """Time and bus bandwidth over size, side by side. Raises ModuleNotFoundError without the extra ``report``."""
    from matplotlib.figure import Figure  # a second, and only where a picture is asked for

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    time, bandwidth = figure.subplots(1, 2)
    for curve in curves(tests):
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
