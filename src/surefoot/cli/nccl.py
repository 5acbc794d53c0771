"""``surefoot nccl read``: captures of nccl-tests as tables, without a cluster and without a run."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import PurePath

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot.benchmarks.nccl_tests import PLACEMENTS, NcclTest, doubts, wrong_values
from surefoot.cli.captures import tests_in
from surefoot.cli.nccl_compare import compare_command
from surefoot.cli.nccl_plot import plotter
from surefoot.cli.options import json_option
from surefoot.cli.streams import say
from surefoot.errors import EvidenceError, RequestError
from surefoot.model.status import ExitCode
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.text import terminal_safe
from surefoot.units import format_size

_COLUMNS = (
    "file", "collective", "ranks", "size_bytes", "placement", "time_us", "algbw_gb_s", "busbw_gb_s", "wrong",
)  # fmt: skip


@click.group("nccl")
def nccl_command() -> None:
    """Read and compare what nccl-tests printed or wrote."""


nccl_command.add_command(compare_command)


@nccl_command.command("read")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--ranks", type=click.IntRange(1), help="How many ranks were to take part.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every size as CSV, and nothing else.")
@click.option("--plot", metavar="FILE", help="Draw time and bandwidth over size into a file: .html, .svg or .png.")
@json_option
def read_command(*, files: tuple[str, ...], ranks: int | None, as_csv: bool, plot: str | None, as_json: bool) -> int:
    """Read captures of nccl-tests, text or -J's JSON, version 1.x to 2.19; - is standard input.

    A capture is read whole or not at all: one that was cut off, crashed, or whose rows do not fit their own
    arithmetic is refused with its line. Figures that must not be used as they are come with the reason.
    Exit code 1: values came out wrong; 2: something proves nothing.
    """
    if as_csv and as_json:
        raise RequestError("--csv and --json exclude each other")
    draw = None if plot is None else plotter(plot)
    tests: list[NcclTest] = []
    refused: list[EvidenceError] = []
    for file in files:
        try:
            tests += tests_in(file)
        except EvidenceError as error:
            refused.append(error)
    found = [(test, doubts(test, ranks=ranks)) for test in tests]
    if as_json:
        said = {
            "tests": [{**test.canonical(), "doubts": each} for test, each in found],
            "refused": [{"file": e.file, "line": e.line, "problem": e.problem, "text": e.text} for e in refused],
        }
        click.echo(json.dumps(said, indent=1, ensure_ascii=False))
    elif as_csv:
        _print_csv(tests)
    else:
        _print(found)
    if draw is not None and tests:
        draw(tests)
    for refusal in () if as_json else refused:
        say(f"not read: {refusal}", err=True)
    if any(wrong_values(test) for test in tests):
        return int(ExitCode.DISPROVED)
    return int(ExitCode.UNPROVED if refused or any(said for _, said in found) else ExitCode.PROVED)


def _print(found: Sequence[tuple[NcclTest, list[str]]]) -> None:
    console = Console()
    never_fail_to_print(console)
    for test, _ in found:
        console.print(_sizes(test))
    if found:
        console.print(_largest([test for test, _ in found]))
    for test, said in found:
        for doubt in said:
            console.print(Text(terminal_safe(f"{test.file}:{test.line}: {doubt}"), style="yellow"))


def _sizes(test: NcclTest) -> Table:
    version = f", nccl-tests {test.version}" if test.version else ""
    title = f"{test.file}: {test.collective or 'a collective that is not named'}, {test.world_size} ranks{version}"
    table = Table(title=Text(terminal_safe(title)), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("size", "time", "algbw", "busbw", "in place: time", "busbw"):
        table.add_column(name, justify="right")
    for row in test.rows:
        first, second = row.placements
        figures = (f"{first.time_us:.1f} µs", f"{first.algbw_gb_s:.2f}", f"{first.busbw_gb_s:.2f}")
        table.add_row(format_size(row.size_bytes), *figures, f"{second.time_us:.1f} µs", f"{second.busbw_gb_s:.2f}")
    return table


def _largest(tests: Sequence[NcclTest]) -> Table:
    table = Table(title="at the largest size, out of place", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("collective")
    table.add_column("file", overflow="fold")
    for name in ("size", "busbw GB/s", "algbw GB/s"):
        table.add_column(name, justify="right")
    for test in tests:
        row = test.largest
        figures = (f"{row.out_of_place.busbw_gb_s:.2f}", f"{row.out_of_place.algbw_gb_s:.2f}")
        words = (Text(terminal_safe(word)) for word in (test.collective or "?", PurePath(test.file).name))
        table.add_row(*words, format_size(row.size_bytes), *figures)
    return table


def _print_csv(tests: Sequence[NcclTest]) -> None:
    write = csv.writer(sys.stdout)
    write.writerow(_COLUMNS)
    for test in tests:
        for row in test.rows:
            for placement, timing in zip(PLACEMENTS, row.placements, strict=True):
                head = (terminal_safe(test.file), test.collective or "", test.world_size, row.size_bytes, placement)
                wrong = "" if timing.wrong is None else timing.wrong
                write.writerow((*head, timing.time_us, timing.algbw_gb_s, timing.busbw_gb_s, wrong))
