"""``surefoot preflight``: every node and every rank, before the expensive job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.cli.chosen import chosen, command_line, resume_words
from surefoot.cli.options import json_option
from surefoot.cli.preflight_drain import Remedy, drain_options
from surefoot.cli.preflight_prolog import prolog_options, without_a_run
from surefoot.cli.running import run_climb
from surefoot.cli.streams import say
from surefoot.engine.claims import climbing
from surefoot.engine.found_slurm import SHARED_ROOT, as_file, found_here
from surefoot.engine.learning import refuse_existing, write_learnt
from surefoot.engine.session import Session, start
from surefoot.engine.store import load_results
from surefoot.errors import EvidenceError, RequestError
from surefoot.model.cluster import Cluster
from surefoot.model.status import ExitCode
from surefoot.reports.fleet import show_fleet, view

_OF_ALL = ("sync", "precheck", "mesh")
"""Rungs of the shipped ladder that are about several nodes."""


@click.command("preflight")
@click.option("--cluster", metavar="FILE|NAME", help="Where.  [default: local]")
@click.option("--slurm", is_flag=True, help="In place of a cluster file: the nodes that this host's Slurm tells of.")
@click.option("--partition", metavar="NAME", help="With --slurm: its partition.  [default: Slurm's own default]")
@click.option(
    "--shared-root", metavar="DIR", help=f"With --slurm: a folder that all nodes see.  [default: {SHARED_ROOT}]"
)
@click.option(
    "--learn",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a cluster file from what nodes tell, to be reviewed.",
)
@click.option("--nodes", type=click.IntRange(1), help="How many nodes.  [default: all of the cluster file]")
@click.option("--ranks-per-node", type=click.IntRange(1), help="Ranks on each.  [default: one a GPU]")
@click.option("--ladder", metavar="FILE|NAME", default="preflight", show_default=True, help="Another set of rungs.")
@click.option("--set", "settings", multiple=True, metavar="RUNG.KEY=VALUE", help="Set a rung's parameter.")
@click.option("--root", metavar="DIR", envvar="SUREFOOT_ROOT", help="Where runs lie on this machine.")
@drain_options
@prolog_options
@json_option
def preflight_command(
    *,
    cluster: str | None,
    slurm: bool,
    partition: str | None,
    shared_root: str | None,
    learn: Path | None,
    nodes: int | None,
    ranks_per_node: int | None,
    ladder: str,
    settings: tuple[str, ...],
    root: str | None,
    drain: bool,
    yes: bool,
    drain_share: float | None,
    as_json: bool,
    **prolog: Any,
) -> int:
    """Prove that every node is what it should be, and that all ranks meet and compute together.

    Needs Slurm (or this machine alone), the Python that the training uses, and neither root nor Ansible.
    The last line says SUCCESS only where every check passed; what did not is named with its node, and the
    run's report has all facts side by side.
    """
    if (code := without_a_run(cluster, prolog, as_json=as_json)) is not None:
        return code
    asked = [f"{rung}.nodes={nodes}" for rung in _OF_ALL if nodes is not None]
    asked += [f"mesh.ranks_per_node={ranks_per_node}"] if ranks_per_node is not None else []
    configuration = {
        "cluster": cluster, "ladder": ladder, "recipe": None, "policy": None, "root": root, "settings": (*asked, *settings),
    }  # fmt: skip
    remedy = Remedy.of(drain=drain, yes=yes, share=drain_share)
    if learn is not None:
        refuse_existing(learn)
    with _asked_cluster(cluster, partition, shared_root, root, slurm=slurm, err=as_json) as reference:
        choice = chosen({**configuration, **reference})
    remedy.refuse_local(choice.cluster)
    session = start(choice, command_line())
    if slurm:
        say(f"Its cluster file: {session.run_paths.inputs / 'cluster.yaml'}", err=as_json)
    everything = frozenset(session.manifest.inputs.ladder.names)
    with climbing(session.run_paths):
        code = run_climb(
            session, everything, resume_words(session.home, session.manifest.run_id), as_json=as_json,
            more=lambda ended: remedy.told(session, ended, err=True),
        )  # fmt: skip
    if not as_json:
        _show_differences(session)
        remedy.told(session, code, err=False)
    if learn is not None and code is not ExitCode.INTERRUPTED:
        assert choice.cluster is not None
        code = _learn(session, choice.cluster, learn, code, err=as_json)
    if code is ExitCode.PROVED and "mesh" in everything:
        click.echo(SUCCESS, err=as_json)
    return int(code)


@contextlib.contextmanager
def _asked_cluster(
    cluster: str | None, partition: str | None, shared_root: str | None, root: str | None, *, slurm: bool, err: bool
) -> Iterator[dict[str, str | None]]:
    """``cluster`` and ``root`` of the configuration. Raises RequestError for options that contradict each other."""
    if not slurm:
        if partition is not None or shared_root is not None:
            raise RequestError(
                "--partition and --shared-root go with --slurm",
                next_action="a cluster file holds both: scheduler, root",
            )
        yield {"cluster": cluster, "root": root}
        return
    if cluster is not None:
        raise RequestError("--slurm and --cluster name two clusters", next_action="keep one")
    source = click.get_current_context().get_parameter_source("root")
    if shared_root is not None and source is ParameterSource.COMMANDLINE:
        raise RequestError("--shared-root and --root are one folder with --slurm", next_action="keep --shared-root")
    found = found_here(partition or "", shared_root or root or SHARED_ROOT)
    say(f"Slurm's partition {found.partition}: {found.told}", err=err)
    say(f"Shared root: {found.cluster.root} (all nodes must see it; another: --shared-root DIR)", err=err)
    with as_file(found) as path:
        yield {"cluster": path, "root": None}


def _learn(session: Session, declared: Cluster, path: Path, code: int, *, err: bool) -> int:
    """Write FILE, whatever else did not pass. The run's exit code, but never that of a proof where nothing was learnt."""
    try:
        say(write_learnt(session, declared, path), err=err)
    except EvidenceError as error:
        say(f"surefoot: {error}", err=True)
        return ExitCode.UNPROVED if code is ExitCode.PROVED else code
    return code


def _show_differences(session: Session) -> None:
    """The rows of the drift matrix in which nodes differ, or do not tell; nothing for one node, which has none to differ from."""
    precheck = load_results(session.run_paths, session.manifest).get("precheck")
    matrix = view(precheck.judgement.details) if precheck is not None else None
    if matrix is not None and matrix.count > 1 and matrix.unlike:
        show_fleet(Console(), matrix)
