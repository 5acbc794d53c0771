"""``surefoot jobs``: what climbs have in a scheduler, and what of it nobody waits for any more."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot.cli.options import json_option, root_paths
from surefoot.config.load import load_cluster
from surefoot.engine.orphans import Climber, FoundJob, Jobs, jobs_of, jobs_of_run
from surefoot.engine.store import find_run
from surefoot.errors import MachineryError
from surefoot.model.status import ExitCode
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.text import clock, one_line

_LIFELINE = "on this machine jobs end by themselves when their climb is killed"


@click.command("jobs")
@click.option("--cluster", metavar="FILE|NAME", help="Whose jobs.  [default: the run's cluster, or local]")
@click.option("--root", metavar="DIR", envvar="SUREFOOT_ROOT", help="Where runs lie on this machine.")
@click.option("--run", "run", metavar="RUN", help="Only the jobs of this run.")
@click.option("--orphans", is_flag=True, help="Only jobs whose climb is gone: exit 1 where there are some.")
@click.option("--reap", is_flag=True, help="Cancel the orphans and wait for them to be gone: exit 4 where one stays.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Climbs on other hosts, and of runs unknown here, are gone: theirs are orphans too.",
)
@json_option
def jobs_command(
    *, cluster: str | None, root: str | None, run: str | None, orphans: bool, reap: bool, take_over: bool, as_json: bool
) -> int:
    """List the jobs that climbs have in a scheduler, and what is known of those climbs.

    An orphan is a job whose climb is known to be gone. A job of a run that this machine does not
    know is none: its climb may live elsewhere.
    """
    if take_over and run is None and reap:
        raise click.UsageError("--reap --take-over ends jobs that this machine cannot judge: name the run, --run RUN")
    name, jobs = _jobs(cluster, root, run, take_over=take_over)
    with jobs:
        found = jobs.found(name)
        orphaned = [job for job in found if job.orphan]
        left = jobs.reap(orphaned) if reap else []
    shown = orphaned if orphans or reap else found
    code = _code(orphaned, left, asked=orphans, reap=reap)
    if as_json:
        ended = {"reaped": [j.job.id for j in orphaned if j not in left], "left": [j.job.id for j in left]}
        rows = [_row(job) for job in shown]
        click.echo(json.dumps({"jobs": rows, **(ended if reap else {}), "exit_code": int(code)}, indent=1))
        return code
    nothing = "no orphans" if orphans or reap else "no jobs of any climb"
    _show(shown, f"{nothing}: {_LIFELINE}" if jobs.lifeline else nothing)
    for line in _advice(found, orphaned, left, reap=reap, typed=_options(cluster=cluster, root=root, run=run)):
        click.echo(line)
    if left:
        raise MachineryError(
            f"still there: job {', '.join(job.job.id for job in left)}",
            next_action="a node may be down, or its processes hang: see `scontrol show job ID`, then try again",
        )
    return code


def _jobs(cluster: str | None, root: str | None, run: str | None, *, take_over: bool) -> tuple[str | None, Jobs]:
    """The jobs of the cluster that was named, else of the run's own, else of this machine; and the run's full name."""
    if run is not None and cluster is None:
        paths = find_run(root_paths(root), run)
        return paths.folder.name, jobs_of_run(paths, take_over=take_over)
    return run, jobs_of(load_cluster(cluster or "local").record, root, take_over=take_over)


def _options(**given: str | None) -> list[str]:
    """As they were typed, for a command to paste."""
    return [word for name, value in given.items() if value for word in (f"--{name}", value)]


def _code(orphaned: Sequence[FoundJob], left: Sequence[FoundJob], *, asked: bool, reap: bool) -> ExitCode:
    if left:
        return ExitCode.MACHINERY
    return ExitCode.DISPROVED if asked and orphaned and not reap else ExitCode.PROVED


def _row(found: FoundJob) -> dict[str, Any]:
    """A job for programs."""
    job = found.job
    return {
        **job.canonical(),
        "rung": job.rung,
        "attempt": job.attempt,
        "climb": found.climber.value,
        "orphan": found.orphan,
        "why": found.why,
    }


def _show(found: Sequence[FoundJob], nothing: str) -> None:
    if not found:
        click.echo(nothing)
        return
    console = Console()
    never_fail_to_print(console)
    table = Table("id", "state", "run", "rung/job", "nodes", "time", "climb", box=None, pad_edge=False)
    for one in found:
        job = one.job
        time = clock(job.limit_s) if job.elapsed_s is None else f"{clock(job.elapsed_s)}/{clock(job.limit_s)}"
        cells = (job.id, job.state, job.run, f"{job.rung}/{job.name}", job.nodes or "-", time, one.climber.value)
        table.add_row(*(Text(one_line(cell, 40)) for cell in cells))
    console.print(table)
    for one in found:
        click.echo(f"{one.job.id}: {one_line(_told(one), 400)}")


def _told(one: FoundJob) -> str:
    return "; ".join(part for part in (one.job.reason, one.why, one.job.folder) if part)


def _advice(
    found: Sequence[FoundJob], orphaned: Sequence[FoundJob], left: Sequence[FoundJob], *, reap: bool, typed: list[str]
) -> list[str]:
    """What was done, and what can be."""
    lines = []
    gone = [job.job.id for job in orphaned if job not in left]
    if reap and gone:
        lines.append(f"cancelled and gone: {', '.join(gone)}")
    if orphaned and not reap:
        count = "one" if len(orphaned) == 1 else str(len(orphaned))
        lines.append(f"Nobody waits for {count} of them. To end: {shlex.join(['surefoot', 'jobs', '--reap', *typed])}")
    unknown = [job for job in found if job.climber in (Climber.UNKNOWN, Climber.ELSEWHERE)]
    if unknown:
        ids, runs = ", ".join(job.job.id for job in unknown), sorted({job.job.run for job in unknown})
        lines.append(
            f"Whether anybody waits for {ids} cannot be known here (run {', '.join(runs)}). Where that run is kept, "
            "give its folder with --root; where its climb is surely gone: --reap --take-over --run RUN"
        )
    return lines
