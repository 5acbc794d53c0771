"""``surefoot selftest``: Surefoot's own error rates, measured."""

from __future__ import annotations

import json

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from surefoot.benchmarks.verdict_rates import FAULTS, Rate, rates
from surefoot.cli.captures import recorded_in, shipped_sweeps
from surefoot.cli.options import json_option
from surefoot.model.status import ExitCode
from surefoot.reports.live import never_fail_to_print
from surefoot.stats.shift import ENOUGH


@click.group("selftest")
def selftest_command() -> None:
    """Measure how often verdicts are wrong."""


@selftest_command.command("verdicts")
@click.option("--trials", type=click.IntRange(1, 1_000_000), default=500, show_default=True, help="Of each fault.")
@click.option(
    "--healthy", type=click.IntRange(1, 1000), default=ENOUGH, show_default=True, help="Repeats of a baseline."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same trials.")
@click.option("--captures", multiple=True, metavar="FILE", help="Healthy captures of nccl-tests.  [default: two H200]")
@json_option
def verdicts_command(*, trials: int, healthy: int, seed: int, captures: tuple[str, ...], as_json: bool) -> int:
    """Replay healthy captures with noise, and with faults put in, and count verdicts.

    Exit code 0: every rate reaches its target, shown by its 95 % interval; 1: one does not; 2: more trials are needed.
    """
    recorded = recorded_in(captures) if captures else shipped_sweeps()
    console = Console(stderr=True)
    never_fail_to_print(console)
    with Progress(console=console, transient=True, disable=as_json) as shown:
        task = shown.add_task("verdicts", total=trials * len(FAULTS))
        found = rates(recorded, trials=trials, seed=seed, healthy=healthy, progress=lambda: shown.advance(task))
    code = _code(found)
    if as_json:
        click.echo(
            json.dumps(
                {"healthy": healthy, "seed": seed, "rates": [_row(one) for one in found], "exit_code": int(code)},
                indent=1,
            )
        )
    else:
        _print(found)
    return int(code)


def _code(found: list[Rate]) -> ExitCode:
    reached = {one.reached for one in found}
    return ExitCode.DISPROVED if False in reached else ExitCode.UNPROVED if None in reached else ExitCode.PROVED


def _row(one: Rate) -> dict[str, object]:
    return {
        "fault": one.fault.name, "trials": one.trials, "failed": one.failed, "unsure": one.unsure,
        "interval": one.interval, "target": one.fault.target, "reached": one.reached,
    }  # fmt: skip


def _print(found: list[Rate]) -> None:
    console = Console()
    never_fail_to_print(console)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("what was done", "FAILED", "95 % interval", "INCONCLUSIVE", "target", ""):
        table.add_column(name, justify="left" if name in ("what was done", "") else "right")
    for one in found:
        low, high = one.interval
        target = (
            f"≤ {1 - one.fault.target:.0%}"
            if one.fault.part is None
            else f"≥ {one.fault.target:.0%}"
            if one.fault.target
            else "none"
        )
        sign = {True: "✓", False: "✗ missed", None: "? more trials"}[one.reached]
        table.add_row(
            one.fault.name,
            f"{one.failed} of {one.trials}",
            f"{low:.1%} to {high:.1%}",
            f"{one.unsure / one.trials:.1%}",
            target,
            Text(sign),
        )
    console.print(table)
