"""``surefoot nccl read --plot FILE``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from surefoot.benchmarks.nccl_tests import NcclTest, doubts
from surefoot.errors import RequestError
from surefoot.files import write_atomic
from surefoot.reports.details import Curve, CurvePoint
from surefoot.reports.html import render_sweeps
from surefoot.reports.sweeps import Capture, Picture, draw


def plotter(file: str) -> Callable[[Sequence[NcclTest]], None]:
    """What draws into `file`, by its name. Raises RequestError for a name that tells no form, or matplotlib missing."""
    path = Path(file)
    kind = path.suffix.lower().removeprefix(".")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RequestError(f"--plot {file}: is no file in a folder that exists")
    if kind == "html":
        return lambda tests: write_atomic(path, render_sweeps(curves(tests), captures(tests)))
    for picture in get_args(Picture):
        if picture != kind:
            continue
        if find_spec("matplotlib") is None:
            raise RequestError(
                f"--plot {file}: needs matplotlib", next_action="pip install 'surefoot[report]', or name an .html"
            )
        return lambda tests: write_atomic(path, draw(curves(tests), picture))
    raise RequestError(f"--plot {file}: ends in none of .html, .svg and .png")


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


def captures(tests: Sequence[NcclTest]) -> tuple[Capture, ...]:
    """What stands beside the curves, with what speaks against each."""
    return tuple(
        Capture(test.file, test.collective, test.world_size, test.version, test.nccl, tuple(doubts(test)))
        for test in tests
    )
