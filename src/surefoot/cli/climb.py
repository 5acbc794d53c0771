"""``surefoot climb`` and ``surefoot rung``."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from surefoot.cli.options import configuration_options, json_option, root_paths
from surefoot.config.load import Loaded, apply_overrides, load_cluster, load_ladder, load_policy, load_recipe
from surefoot.engine.selection import Selection, select
from surefoot.engine.session import Chosen, Session, dry_plan, resume, start
from surefoot.engine.store import find_run
from surefoot.errors import RunNotFoundError
from surefoot.model.events import Event, Note, event_line
from surefoot.model.run import CommandStep, JobsStep, Plan, PushStep, RungResult
from surefoot.model.status import ExitCode, combine, exit_code
from surefoot.paths import RunPaths
from surefoot.reports.files import write_reports
from surefoot.reports.summary import summary
from surefoot.reports.terminal import LiveLadder, show
from surefoot.rungs.table import RUNGS


@click.command("climb")
@configuration_options
@click.option("--resume", "resumed", metavar="RUN", help="Take a run up again: what PASSED is not run again.")
@click.option("--from", "start_at", metavar="RUNG", help="This rung and all that build on it.")
@click.option("--to", "end_at", metavar="RUNG", help="This rung and all that it builds on.")
@click.option("--only", "only", multiple=True, metavar="RUNG", help="This rung alone (may be repeated).")
@click.option("--dry-run", is_flag=True, help="Print what would be run; records nothing, proves nothing: exit 2.")
@json_option
def climb_command(
    *,
    resumed: str | None,
    start_at: str | None,
    end_at: str | None,
    only: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **configuration: Any,
) -> int:
    """Climb the ladder: collect, judge and report every rung whose needs PASSED.

    Without options: the whole ladder on this machine, with the model and data that ship with Surefoot.
    """
    selection = Selection(start=start_at, end=end_at, only=only)
    if dry_run:
        if resumed:
            raise click.UsageError("--dry-run shows a new run; it does not go with --resume")
        session = start(_chosen(configuration, defaults=True), _command(), record=False)
        return _show_plans(session, select(session.manifest.inputs.ladder, selection), as_json=as_json)
    if resumed:
        paths = find_run(root_paths(configuration["root"]), resumed)
        session = resume(paths, _chosen(configuration, defaults=False, recorded=paths))
    else:
        chosen = _chosen(configuration, defaults=True)
        assert chosen.ladder is not None
        select(chosen.ladder, selection)  # a wrong name is told before a run is made
        session = start(chosen, _command())
    return _climb(session, select(session.manifest.inputs.ladder, selection), as_json=as_json)


@click.command("rung")
@click.argument("name", metavar="RUNG")
@click.option("--run", "run_id", metavar="RUN", required=True, help="The run; made when it is not there yet.")
@configuration_options
@json_option
def rung_command(*, name: str, run_id: str, as_json: bool, **configuration: Any) -> int:
    """Run one rung of a run, as a CI job does it: jobs of one pipeline name the same run."""
    try:
        paths = find_run(root_paths(configuration["root"]), run_id)
    except RunNotFoundError:
        session = start(_chosen(configuration, defaults=True), _command(), run_id=run_id)
    else:
        session = resume(paths, _chosen(configuration, defaults=False, recorded=paths))
    return _climb(session, select(session.manifest.inputs.ladder, Selection(only=(name,))), as_json=as_json)


def _command() -> tuple[str, ...]:
    return ("surefoot", *sys.argv[1:])


def _chosen(configuration: dict[str, Any], *, defaults: bool, recorded: RunPaths | None = None) -> Chosen:
    """Load what the options name; with `defaults`, also what they don't."""

    def load(name: str, loader: Callable[[str], Loaded[Any]], default: str) -> Loaded[Any] | None:
        reference = configuration[name] or (default if defaults else None)
        return loader(reference) if reference is not None else None

    ladder = load("ladder", load_ladder, "local")
    if configuration["settings"]:
        if ladder is None:
            assert recorded is not None
            ladder = load_ladder(str(recorded.inputs / "ladder.yaml"))
        ladder = apply_overrides(ladder, configuration["settings"])
    loaded = {
        "cluster": load("cluster", load_cluster, "local"),
        "ladder": ladder,
        "recipe": load("recipe", load_recipe, "demo"),
        "policy": load("policy", load_policy, "seed"),
    }
    return Chosen(
        **{name: found.record if found is not None else None for name, found in loaded.items()},
        root=configuration["root"],
        sources={f"{name}.yaml": found.text for name, found in loaded.items() if found is not None},
    )


def _climb(session: Session, selected: frozenset[str], *, as_json: bool) -> int:
    console = Console(stderr=as_json)
    manifest, paths = session.manifest, session.run_paths
    with LiveLadder(console, manifest, selected) as live, _EventLog(paths.events, live.on_event) as emit:
        climb = session.climb(RUNGS, selected, emit)
        for change in session.changes:
            emit(Note.now(f"changed since this run began: {change}"))
        with _interruptible(climb.stop):
            results = list(climb.run().values())
    write_reports(paths, manifest, results)
    overall = combine(result.status for result in results)
    show(console, manifest, results, overall, report=paths.report)
    if as_json:
        click.echo(json.dumps(summary(manifest, results), indent=1))
    if climb.stop.is_set():
        click.echo(
            f"interrupted; its jobs are cancelled. Go on with: surefoot climb --resume {manifest.run_id}", err=True
        )
        return ExitCode.INTERRUPTED
    return _exit_code(results)


def _exit_code(results: list[RungResult]) -> ExitCode:
    return exit_code(result.status for result in results)


class _EventLog:
    """Hands events on and keeps them in ``events.jsonl``, from whichever thread they come."""

    def __init__(self, path: Path, observer: Callable[[Event], None]) -> None:
        self._stream = path.open("a")
        self._observer = observer
        self._lock = threading.Lock()

    def __enter__(self) -> Callable[[Event], None]:
        return self._emit

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _emit(self, event: Event) -> None:
        with self._lock:
            self._stream.write(event_line(event) + "\n")
            self._stream.flush()
            self._observer(event)


@contextlib.contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C, TERM and HUP ask the climb to cancel its jobs and end."""

    def ask(_number: int, _frame: object) -> None:
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_plans(session: Session, selected: frozenset[str], *, as_json: bool) -> int:
    ladder = session.manifest.inputs.ladder
    plans = {spec.rung: dry_plan(session, RUNGS, spec) for spec in ladder.rungs if spec.rung in selected}
    if as_json:
        shown = {name: p.canonical() if isinstance(p, Plan) else {"unknown": p} for name, p in plans.items()}
        click.echo(json.dumps({"dry_run": True, "status": "nothing was run", "plans": shown}, indent=1))
    else:
        for name, plan in plans.items():
            needs = ", ".join(ladder.spec(name).needs) or "nothing"
            click.echo(f"{name}  (needs {needs})")
            for line in _plan_lines(plan):
                click.echo(f"    {line}")
        click.echo("\nDry run: nothing was run, nothing is recorded, nothing is proved (exit 2).")
    return ExitCode.UNPROVED


def _plan_lines(plan: Plan | str) -> Iterator[str]:
    if isinstance(plan, str):
        yield plan
        return
    for step in plan.steps:
        match step:
            case CommandStep():
                yield f"run    {' '.join(step.argv)}"
            case PushStep():
                yield f"copy   code and configuration to {step.destination}"
            case JobsStep():
                for job in step.jobs:
                    where = f"{job.nodes} node(s) × {job.ranks_per_node} rank(s), limit {job.time_limit_s} s"
                    yield f"job    {job.name}: {' '.join(job.argv)}  [{where}]"
    if not plan.steps:
        yield "judges evidence that the rungs below collected; runs nothing"
