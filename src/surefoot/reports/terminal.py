"""A run in the terminal: what became of each rung, and for those that did not pass, why and what next.

Colour only repeats what signs and words say already, so a log without colour reads the same.
Evidence is hostile until shown otherwise: escape sequences in it never reach the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surefoot.model.check import Check
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import ExitCode, Status, exit_code
from surefoot.reports.figures import headline, rung_order, span
from surefoot.reports.live import LiveLadder, never_fail_to_print
from surefoot.reports.text import (
    EXIT_MEANINGS,
    STATUS_GLYPHS,
    STATUS_STYLES,
    duration,
    one_line,
    shorten,
    terminal_safe,
    value_pair,
)

__all__ = ["LiveLadder", "show", "show_rung"]

CHECKS_MOST = 12
"""Checks of one rung that are told in full; the report has the rest."""


def show(
    console: Console,
    manifest: RunManifest,
    results: Sequence[RungResult],
    overall: Status,
    *,
    report: Path | None = None,
    answer: ExitCode | None = None,
) -> None:
    """Print the ladder, what did not pass and why, and the verdict in one line.

    `answer`: the command's own exit code, where it may differ from that of the whole run.
    """
    never_fail_to_print(console)
    rows = rung_order(manifest, results)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("status", no_wrap=True)
    table.add_column("rung", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("what was found", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    for name, result in rows:
        said = (result.judgement.summary or result.reason) if result else "no result was recorded"
        table.add_row(
            _status(result.status if result else None),
            Text(terminal_safe(name)),
            Text(one_line(said, 110)),
            Text(duration(result.duration_s if result else None)),
        )
    console.print(table)
    for _, result in rows:
        if result is not None and result.status not in (Status.PASSED, Status.SKIPPED, Status.BLOCKED):
            _problem(console, result)
    if manifest.inputs.left_out:
        console.print(Text(terminal_safe(manifest.inputs.left_out_note)))
    took, code = duration(span(results).seconds), exit_code([overall])
    line = Text.assemble(
        (f"{STATUS_GLYPHS[overall]} {overall.value}", f"bold {STATUS_STYLES[overall]}"),
        f": {headline(manifest, results)} in {took}.",
        f" Exit {code.value}: {EXIT_MEANINGS[code]}." if answer in (None, code) else "",
    )
    console.print(line, soft_wrap=True)
    if report is not None:
        # Never wrapped: it is there to be copied.
        console.print(Text(f"Report: {report}"), soft_wrap=True)


def show_rung(console: Console, result: RungResult) -> None:
    """Print one rung: its status and summary, and what did not pass."""
    never_fail_to_print(console)
    if result.status is not Status.PASSED:
        _problem(console, result)
    said = one_line(result.judgement.summary or result.reason or "nothing could be read", 200)
    code = exit_code([result.status])
    line = Text.assemble(_status(result.status), f": {said}. Exit {code.value}: {EXIT_MEANINGS[code]}.")
    console.print(line, soft_wrap=True)


def _status(status: Status | None) -> Text:
    if status is None:
        return Text("… NO RESULT", style="yellow")
    return Text(f"{STATUS_GLYPHS[status]} {status.value}", style=STATUS_STYLES[status])


def _problem(console: Console, result: RungResult) -> None:
    console.print(Text.assemble(_status(result.status), (f"  {terminal_safe(result.title)}", "bold")))
    wrong = [c for c in result.judgement.checks if c.status not in (Status.PASSED, Status.SKIPPED)]
    if result.reason and not wrong:
        console.print(Padding(Text(terminal_safe(result.reason)), (0, 0, 0, 2)))
    for check in wrong[:CHECKS_MOST]:
        _check(console, check)
    if len(wrong) > CHECKS_MOST:
        console.print(f"  … and {len(wrong) - CHECKS_MOST} more checks that did not pass: see the report")
    if not wrong and not result.reason:
        console.print("  No check was recorded: nothing was shown.")
    console.print()


def _check(console: Console, check: Check) -> None:
    expected, actual = value_pair(check.expected, check.actual, check.unit)
    rows = [("expected", expected), ("actual", actual), ("because", check.derivation)]
    for seen in check.evidence[:3]:
        rows.append(("evidence", seen.file if seen.line is None else f"{seen.file}:{seen.line}"))
        rows.append(("", seen.text))
    rows.append(("next", check.next_action))
    console.print(Padding(Text.assemble(_status(check.status), f"  {terminal_safe(check.claim)}"), (0, 0, 0, 2)))
    for label, value in rows:
        if value:
            _labelled(console, label, terminal_safe(shorten(value, 400)))


def _labelled(console: Console, label: str, value: str) -> None:
    """One line of a check's account. Paths are never wrapped: they are there to be copied."""
    if label == "evidence":
        console.print(Text.assemble((f"    {label:<9}", "dim"), value), soft_wrap=True)
        return
    grid = Table.grid()
    grid.add_column(width=9, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(value, style="bold" if label == "next" else ""))
    console.print(Padding(grid, (0, 0, 0, 4)))
