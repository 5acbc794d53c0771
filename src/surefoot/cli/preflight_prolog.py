"""``surefoot preflight --write-prolog DIR``: a Slurm's Prolog from the cluster file. No run is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from surefoot.cli.node_prolog import judge
from surefoot.cli.options import C, together
from surefoot.cli.streams import say
from surefoot.config.load import load_cluster
from surefoot.engine.prolog_files import SCRIPT
from surefoot.engine.prolog_written import WrittenProlog, write_prolog
from surefoot.errors import RequestError
from surefoot.hostlist import folded
from surefoot.model.status import ExitCode

_WITH = ("cluster", "as_json", "write_prolog", "prolog_enforce", "prolog_markers", "prolog_share")
"""Options that go with it."""


def prolog_options(command: C) -> C:
    """``--prolog`` and ``--write-prolog``, with what goes with that."""
    return together(
        # Told apart before this module is imported: surefoot.cli.node_prolog.
        click.option("--prolog", metavar="CLAIMS", help="Judge this node by a claims file, as the Prolog does."),
        click.option(
            "--write-prolog",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Write a Slurm's Prolog from the cluster file's claims, and run nothing.",
        ),
        click.option("--prolog-enforce", is_flag=True, help="The written prolog drains, not only reports."),
        click.option("--prolog-markers", metavar="DIR", help="Where nodes that fail at once count each other; shared."),
        click.option(
            "--prolog-share", type=float, metavar="SHARE", help="Of Slurm's nodes, that it may drain at most."
        ),
    )(command)


def without_a_run(cluster: str | None, options: Mapping[str, Any], *, as_json: bool) -> int | None:
    """The exit code of what was asked for in place of a run; None: a run. Raises RequestError, StorageError."""
    if options["prolog"] is not None:  # where `surefoot.cli.run` is gone round
        return judge([options["prolog"]])
    if options["write_prolog"] is not None:
        return _write(cluster, options, as_json=as_json)
    for name in ("prolog_enforce", "prolog_markers", "prolog_share"):
        if options[name] not in (None, False):
            raise RequestError(
                f"--{name.replace('_', '-')} goes with --write-prolog", next_action="add --write-prolog DIR"
            )
    return None


def _write(cluster: str | None, options: Mapping[str, Any], *, as_json: bool) -> int:
    """Write it and say so; the exit code. 2 where the cluster file claims nothing of a group."""
    context = click.get_current_context()
    others = [
        name
        for name in context.params
        if name not in _WITH and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if others:
        words = ", ".join(f"--{'set' if name == 'settings' else name.replace('_', '-')}" for name in others)
        raise RequestError(
            f"--write-prolog runs nothing, and {words} asks for a run", next_action="ask for one of them"
        )
    if cluster is None:
        raise RequestError(
            "--write-prolog makes claims of a cluster file, and none is named",
            next_action="--cluster FILE (surefoot preflight --learn FILE writes one from what nodes tell)",
        )
    markers, share = options["prolog_markers"], options["prolog_share"]
    if markers is not None and not (markers.startswith("/") and markers.isprintable()):
        raise RequestError(f"--prolog-markers {markers!r}: nodes need an absolute path", next_action="name one")
    if share is not None and not 0 < share < 1:
        raise RequestError(f"--prolog-share {share:g}: more than 0, and less than 1, as that is every node")
    found = write_prolog(
        load_cluster(cluster).record,
        options["write_prolog"].absolute(),
        markers=markers,
        enforce=options["prolog_enforce"],
        share=share,
    )
    code = ExitCode.PROVED if all(one.claims for one in found.groups) else ExitCode.UNPROVED
    if as_json:
        click.echo(json.dumps(_told(found, code), indent=1))
    else:
        say(_shown(found, enforce=options["prolog_enforce"]))
    return int(code)


def _told(found: WrittenProlog, code: ExitCode) -> dict[str, Any]:
    groups = [
        {"group": one.group, "hosts": folded(one.hosts), "claims": one.claims, "not_claimed": list(one.not_claimed)}
        for one in found.groups
    ]
    return {"exit_code": int(code), "folder": str(found.folder), "changed": list(found.changed), "groups": groups}


def _shown(found: WrittenProlog, *, enforce: bool) -> str:
    lines = []
    for one in found.groups:
        said = ", ".join(one.claims) or "NOTHING is claimed, so nothing is proved there"
        lines += [f"{one.group}, {folded(one.hosts)}: {said}", *(f"  not claimed: {text}" for text in one.not_claimed)]
    drains = f"drains, {found.share:g} of the nodes at most" if enforce else "reports, and drains nothing"
    lines.append(f"{found.folder}: {'written' if found.changed else 'as it was'}. It {drains}.")
    lines.append(f"Prolog=…/{SCRIPT}: {found.folder / 'README'} says how it comes to the nodes.")
    return "\n".join(lines)
