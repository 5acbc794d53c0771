"""``surefoot preflight``: every node and every rank, before the expensive job."""

from __future__ import annotations

import click
from rich.console import Console

from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.cli.chosen import chosen, command_line, resume_words
from surefoot.cli.options import json_option
from surefoot.cli.running import run_climb
from surefoot.engine.claims import climbing
from surefoot.engine.session import Session, start
from surefoot.engine.store import load_results
from surefoot.model.status import ExitCode
from surefoot.reports.fleet import show_fleet, view

_OF_ALL = ("sync", "precheck", "mesh")
"""Rungs of the shipped ladder that are about several nodes."""


@click.command("preflight")
@click.option("--cluster", metavar="FILE|NAME", help="Where.  [default: local]")
@click.option("--nodes", type=click.IntRange(1), help="How many nodes.  [default: all of the cluster file]")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks on each.  [default: one a GPU]")
@click.option("--ladder", metavar="FILE|NAME", default="preflight", show_default=True, help="Another set of rungs.")
@click.option("--set", "settings", multiple=True, metavar="RUNG.KEY=VALUE", help="Set a rung's parameter.")
@click.option("--root", metavar="DIR", envvar="SUREFOOT_ROOT", help="Where runs lie on this machine.")
@json_option
def preflight_command(
    *,
    cluster: str | None,
    nodes: int | None,
    ranks_per_node: int | None,
    ladder: str,
    settings: tuple[str, ...],
    root: str | None,
    as_json: bool,
) -> int:
    """Prove that every node is what it should be, and that all ranks meet and compute together.

    Needs Slurm (or this machine alone), the Python that the training uses, and neither root nor Ansible.
    The last line says SUCCESS only where every check passed; what did not is named with its node, and the
    run's report has all facts side by side.
    """
    asked = [f"{rung}.nodes={nodes}" for rung in _OF_ALL if nodes is not None]
    asked += [f"mesh.ranks_per_node={ranks_per_node}"] if ranks_per_node is not None else []
    configuration = {
        "cluster": cluster, "ladder": ladder, "recipe": None, "policy": None, "root": root, "settings": (*asked, *settings),
    }  # fmt: skip
    session = start(chosen(configuration), command_line())
    everything = frozenset(session.manifest.inputs.ladder.names)
    with climbing(session.run_paths):
        code = run_climb(session, everything, resume_words(session.home, session.manifest.run_id), as_json=as_json)
    if not as_json:
        _show_differences(session)
    if code is ExitCode.PROVED and "mesh" in everything:
        click.echo(SUCCESS, err=as_json)
    return int(code)


def _show_differences(session: Session) -> None:
    """The rows of the drift matrix in which nodes differ, or do not tell; nothing for one node, which has none to differ from."""
    precheck = load_results(session.run_paths, session.manifest).get("precheck")
    matrix = view(precheck.judgement.details) if precheck is not None else None
    if matrix is not None and matrix.count > 1 and matrix.unlike:
        show_fleet(Console(), matrix)
