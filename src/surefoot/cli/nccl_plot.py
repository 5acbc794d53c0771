"""``surefoot nccl read --plot FILE``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from surefoot.benchmarks.nccl_tests import NcclTest
from surefoot.errors import RequestError
from surefoot.files import write_atomic
from surefoot.reports.html import render_sweeps
from surefoot.reports.sweeps import Picture, draw


def plotter(file: str) -> Callable[[Sequence[NcclTest]], None]:
    """What draws into `file`, by its name. Raises RequestError for a name that tells no form, or matplotlib missing."""
    path = Path(file)
    kind = path.suffix.lower().removeprefix(".")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RequestError(f"--plot {file}: is no file in a folder that exists")
    if kind == "html":
        return lambda tests: write_atomic(path, render_sweeps(tests))
    for picture in get_args(Picture):
        if picture != kind:
            continue
        if find_spec("matplotlib") is None:
            raise RequestError(
                f"--plot {file}: needs matplotlib", next_action="pip install 'surefoot[report]', or name an .html"
            )
        return lambda tests: write_atomic(path, draw(tests, picture))
    raise RequestError(f"--plot {file}: ends in none of .html, .svg and .png")
