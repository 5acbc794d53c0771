"""``surefoot climb`` and ``surefoot rung``."""

from __future__ import annotations

import shlex
from typing import Any

import click

from surefoot.cli.chosen import chosen, command_line, resume_words, root_words
from surefoot.cli.dry_run import show_plans
from surefoot.cli.options import configuration_options, json_option, root_paths, take_over_option
from surefoot.cli.running import run_climb
from surefoot.config.load import load_cluster
from surefoot.engine.claims import climbing
from surefoot.engine.fetched import fetch_run
from surefoot.engine.selection import Selection, select
from surefoot.engine.session import Chosen, Session, ladders, resume, start
from surefoot.engine.store import find_run, load_manifest
from surefoot.errors import RunNotFoundError
from surefoot.model.ladder import Ladder
from surefoot.model.run import RunInputs
from surefoot.paths import RunPaths


@click.command("climb")
@configuration_options
@click.option("--resume", "resumed", metavar="RUN", help="Take a run up again: what PASSED is not run again.")
@click.option("--from", "start_at", metavar="RUNG", help="This rung and all that build on it.")
@click.option("--to", "end_at", metavar="RUNG", help="This rung and all that it builds on.")
@click.option("--only", "only", multiple=True, metavar="RUNG", help="This rung alone (may be repeated).")
@click.option("--again", "again", multiple=True, metavar="RUNG", help="Run it again although it PASSED.")
@take_over_option
@click.option("--dry-run", is_flag=True, help="Print what would be run; records nothing, proves nothing: exit 2.")
@json_option
def climb_command(
    *,
    resumed: str | None,
    start_at: str | None,
    end_at: str | None,
    only: tuple[str, ...],
    again: tuple[str, ...],
    take_over: bool,
    dry_run: bool,
    as_json: bool,
    **configuration: Any,
) -> int:
    """Climb the ladder: collect, judge and report every rung whose needs PASSED.

    Without options: the whole ladder on this machine, with the model and data that ship with Surefoot.
    The exit code answers for the rungs that were asked for.
    """
    selection = Selection(start=start_at, end=end_at, only=only)
    if resumed is not None:
        if dry_run:
            raise click.UsageError("--dry-run shows a new run; it does not go with --resume")
        paths = _taken_up(resumed, configuration, take_over=take_over)
        made = chosen(configuration, recorded=paths)
        # A wrong name is told before a run is made or changed.
        ladder, asked = ladders(made, load_manifest(paths).inputs)
        selected, repeated = select(ladder, selection, asked), _repeated(ladder, again)
        with climbing(paths, take_over=take_over):
            return _run(resume(paths, made), selected | repeated, as_json=as_json, again=repeated, take_over=take_over)
    if again or take_over:
        raise click.UsageError("--again and --take-over speak of an old run: they go with --resume RUN")
    made = chosen(configuration)
    selected = select(*_with(selection, made))
    if dry_run:
        return show_plans(start(made, command_line(), record=False), selected, as_json=as_json)
    session = start(made, command_line())
    with climbing(session.run_paths):
        return _run(session, selected, as_json=as_json)


def _with(selection: Selection, made: Chosen, recorded: RunInputs | None = None) -> tuple[Ladder, Selection, Ladder]:
    ladder, asked = ladders(made, recorded)
    return ladder, selection, asked


def _taken_up(reference: str, configuration: dict[str, Any], *, take_over: bool) -> RunPaths:
    """A run of this machine. One that only the named cluster has is brought here: its control host may be gone."""
    home = root_paths(configuration["root"])
    try:
        return find_run(home, reference)
    except RunNotFoundError:
        named = load_cluster(configuration["cluster"]).record if configuration["cluster"] else None
        if named is None or named.connection.kind == "local" or reference == "latest" or "/" in reference:
            raise
        return fetch_run(named, reference, home, take_over=take_over, tell=lambda line: click.echo(line, err=True))


def _repeated(ladder: Ladder, again: tuple[str, ...]) -> frozenset[str]:
    return select(ladder, Selection(only=again)) if again else frozenset()


def _run(
    session: Session,
    selected: frozenset[str],
    *,
    as_json: bool,
    again: frozenset[str] = frozenset(),
    take_over: bool = False,
) -> int:
    go_on = resume_words(session.home, session.manifest.run_id)
    return run_climb(session, selected, go_on, as_json=as_json, again=again, take_over=take_over)


@click.command("rung")
@click.argument("name", metavar="RUNG")
@click.option("--run", "run_id", metavar="RUN", required=True, help="The run; made when it is not there yet.")
@click.option("--again", is_flag=True, help="Run it although it PASSED.")
@take_over_option
@configuration_options
@json_option
def rung_command(*, name: str, run_id: str, again: bool, take_over: bool, as_json: bool, **configuration: Any) -> int:
    """Run one rung of a run, as a CI job does it: jobs of one pipeline name the same run.

    The exit code answers for this rung.
    """
    root = root_paths(configuration["root"])
    selection = Selection(only=(name,))
    # Never by a prefix: pipeline 12 must not take up the run of pipeline 123.
    if run_id == "latest" or "/" in run_id or root.run(run_id).manifest.exists():
        paths = find_run(root, run_id)
        made = chosen(configuration, recorded=paths)
        selected = select(*_with(selection, made, load_manifest(paths).inputs))
        session = resume(paths, made)
    else:
        made = chosen(configuration)
        selected = select(*_with(selection, made))
        session = start(made, command_line(), run_id=run_id)
    go_on = ["surefoot", "rung", name, "--run", session.manifest.run_id, *root_words(session.home)]
    repeated = selected if again else frozenset()
    return run_climb(session, selected, shlex.join(go_on), as_json=as_json, again=repeated, take_over=take_over)
