"""``surefoot judge``, ``runs``, ``show`` and ``report``: looking at what was recorded."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from surefoot.cli.options import json_option, root_option, root_paths
from surefoot.cli.streams import say
from surefoot.config.load import load_policy
from surefoot.engine.judge import Judge
from surefoot.engine.store import find_run, load_manifest, load_results
from surefoot.errors import EvidenceError, SurefootError
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status, exit_code, whole
from surefoot.paths import RunPaths
from surefoot.reports.files import write_reports
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.summary import summary
from surefoot.reports.terminal import show
from surefoot.reports.text import one_line
from surefoot.rungs.table import RUNGS


@click.command("judge")
@click.argument("run")
@root_option
@click.option("--policy", metavar="FILE|NAME", help="Judge by this policy in place of the recorded one.")
@json_option
def judge_command(*, run: str, root: str, policy: str | None, as_json: bool) -> int:
    """Judge a run's recorded evidence again. Touches no cluster and writes nothing.

    The same evidence gives the identical result; what differs from the recorded results is named.
    """
    paths, manifest = _open(root, run)
    if policy is not None:
        inputs = manifest.inputs.model_copy(update={"policy": load_policy(policy).record})
        manifest = manifest.model_copy(update={"inputs": inputs})
    judged = _judge(paths, manifest)
    if as_json:
        click.echo(json.dumps(judged.summary(manifest), indent=1))
    else:
        show(Console(), manifest, judged.results, judged.overall)
        for line in judged.differences() or ["identical to the recorded results"]:
            say(line)
    return exit_code([judged.overall])


@click.command("runs")
@root_option
@json_option
def runs_command(*, root: str, as_json: bool) -> int:
    """List the runs under a root, oldest first."""
    folder = root_paths(root).runs
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*/run.json")) if folder.is_dir() else []:
        try:
            rows.append(_row(RunPaths(path.parent)))
        except SurefootError as error:
            rows.append({"run": path.parent.name, "created": "", "status": "UNREADABLE", "problem": error.message})
    rows.sort(key=lambda row: str(row["created"]))
    if as_json:
        click.echo(json.dumps({"root": str(root_paths(root).root), "runs": rows}, indent=1))
        return 0
    if not rows:
        click.echo(f"no runs under {folder}")
        return 0
    table = Table("run", "status", "rungs PASSED", "ladder", "recipe", "cluster", "by", box=None)
    for row in rows:
        table.add_row(*(Text(str(row.get(k, "-"))) for k in _COLUMNS))
    console = Console()
    never_fail_to_print(console)
    console.print(table)
    for row in rows:
        if "problem" in row:
            click.echo(f"{row['run']}: {one_line(row['problem'], 300)}")
    return 0


_COLUMNS = ("run", "status", "passed", "ladder", "recipe", "cluster", "by")


def _row(paths: RunPaths) -> dict[str, Any]:
    manifest = load_manifest(paths)
    results = load_results(paths, manifest)
    names = manifest.inputs.ladder.names
    statuses = [results[n].status if n in results else Status.INCONCLUSIVE for n in names]
    return {
        "run": manifest.run_id,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(manifest.created_at)),
        "status": str(whole(statuses)),
        "passed": f"{sum(s is Status.PASSED for s in statuses)} of {len(names)}",
        "ladder": manifest.inputs.ladder.name,
        "recipe": manifest.inputs.recipe.name,
        "cluster": manifest.inputs.cluster.name,
        "by": f"{manifest.user}@{manifest.host}",
        "folder": str(paths.folder),
    }


@click.command("show")
@click.argument("run", default="latest")
@root_option
@json_option
def show_command(*, run: str, root: str, as_json: bool) -> int:
    """Show what a run proves (default: the latest), judged from its evidence; exits as its climb did as a whole."""
    paths, manifest = _open(root, run)
    judged = _judge(paths, manifest)
    if as_json:
        click.echo(json.dumps(judged.summary(manifest), indent=1))
    else:
        report = paths.report if paths.report.exists() else None
        show(Console(), manifest, judged.results, judged.overall, report=report)
        for line in judged.differences():
            say(line)
    return exit_code([judged.overall])


@click.command("report")
@click.argument("run", default="latest")
@root_option
@json_option
def report_command(*, run: str, root: str, as_json: bool) -> int:
    """Judge a run (default: the latest) and write its report.html, junit.xml and summary.json again."""
    paths, manifest = _open(root, run)
    judged = _judge(paths, manifest)
    write_reports(paths, manifest, judged.results)
    code = exit_code([judged.overall])
    if as_json:
        written = {"report": paths.report, "junit": paths.junit, "summary": paths.summary}
        told = {"run_id": manifest.run_id, "status": judged.overall.value, "exit_code": int(code)}
        click.echo(json.dumps({**told, **{name: str(path) for name, path in written.items()}}, indent=1))
    else:
        click.echo(str(paths.report))
        for line in judged.differences():
            say(line)
    return code


def _open(root: str, run: str) -> tuple[RunPaths, RunManifest]:
    paths = find_run(root_paths(root), run)
    return paths, load_manifest(paths)


@dataclass(frozen=True)
class _Judged:
    """What a run's evidence shows today, beside what was recorded of it."""

    results: list[RungResult]
    recorded: dict[str, RungResult]
    unreadable: str
    """Why the recorded results cannot be read; empty when they can."""

    @property
    def overall(self) -> Status:
        return whole(result.status for result in self.results)

    @property
    def different(self) -> list[str]:
        return [result.rung for result in self.results if not _same(self.recorded.get(result.rung), result)]

    def differences(self) -> list[str]:
        """A line for each result that is not the recorded one."""
        if self.unreadable:
            return [f"the recorded results cannot be read ({self.unreadable}); judged from evidence alone"]
        now = {result.rung: result.status for result in self.results}
        before = {rung: self.recorded[rung].status if rung in self.recorded else "not recorded" for rung in now}
        return [f"differs from the recorded result: {rung}: {before[rung]} → {now[rung]}" for rung in self.different]

    def summary(self, manifest: RunManifest) -> dict[str, Any]:
        return {**summary(manifest, self.results), "differs_from_recorded": self.different}


def _same(recorded: RungResult | None, now: RungResult) -> bool:
    """Whether judging gave what was recorded. A result in which no check names nodes may be of a version without `nodes`."""
    if recorded is not None and not any(check.nodes for check in recorded.judgement.checks):
        checks = tuple(check.model_copy(update={"nodes": ()}) for check in now.judgement.checks)
        now = now.model_copy(update={"judgement": now.judgement.model_copy(update={"checks": checks})})
    return recorded == now


def _judge(paths: RunPaths, manifest: RunManifest) -> _Judged:
    """Judge every rung from its evidence. Of the recorded results only one thing counts: what was not asked for."""
    try:
        recorded, unreadable = load_results(paths, manifest), ""
    except EvidenceError as error:
        recorded, unreadable = {}, str(error)
    skipped = frozenset(name for name, result in recorded.items() if result.status is Status.SKIPPED)
    return _Judged(list(Judge(paths, manifest, RUNGS).run(skipped).values()), recorded, unreadable)
