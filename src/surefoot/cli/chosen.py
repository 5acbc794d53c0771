"""From options to what a climb is made of, and back: the words that take a run up again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import click

from surefoot.cli.options import root_paths
from surefoot.config.load import Loaded, apply_overrides, load_cluster, load_ladder, load_policy, load_recipe
from surefoot.config.yaml_source import Position, YamlSource
from surefoot.engine.session import Chosen
from surefoot.engine.store import load_manifest
from surefoot.model.ladder import Ladder
from surefoot.paths import RootPaths, RunPaths


def chosen(configuration: dict[str, Any], *, recorded: RunPaths | None = None) -> Chosen:
    """Load what the options name; for a new run also what they don't.

    `recorded`: the run that is taken up again. What is not named stays as that run has it, and
    ``--set`` changes its ladder, not the file that it once came from: settings of earlier climbs
    stay. Raises ConfigError, RunNotFoundError.
    """

    def load(name: str, loader: Callable[[str], Loaded[Any]], default: str) -> Loaded[Any] | None:
        reference = configuration[name] or (default if recorded is None else None)
        return loader(reference) if reference is not None else None

    found = {
        "cluster": load("cluster", load_cluster, "local"),
        "ladder": load("ladder", load_ladder, "local"),
        "recipe": load("recipe", load_recipe, "demo"),
        "policy": load("policy", load_policy, "seed"),
    }
    sources = {f"{name}.yaml": loaded.text for name, loaded in found.items() if loaded is not None}
    if configuration["settings"]:
        ladder = found["ladder"]
        if ladder is None:
            assert recorded is not None
            ladder = _recorded_ladder(recorded)
        found["ladder"] = apply_overrides(ladder, configuration["settings"])
    return Chosen(
        **{name: loaded.record if loaded is not None else None for name, loaded in found.items()},
        root=configuration["root"],
        sources=sources,
    )


def _recorded_ladder(paths: RunPaths) -> Loaded[Ladder]:
    """The ladder that a run has, as if a file had said it."""
    inputs = load_manifest(paths).inputs
    ladder = inputs.asked_ladder or inputs.ladder
    data = ladder.canonical()
    source = YamlSource(
        file=f"the ladder of run {paths.folder.name}",
        text=json.dumps(data, indent=1, ensure_ascii=False) + "\n",
        data=data,
        positions={(): Position(line=1, column=1)},
    )
    return Loaded(kind="ladder", record=ladder, path=paths.manifest, source=source, shipped=False)


def command_line() -> tuple[str, ...]:
    """What was typed, for the run's manifest. Bytes that are no UTF-8 are escaped: a manifest is text."""
    typed = click.get_current_context().find_object(tuple) or ()
    return ("surefoot", *(argument.encode(errors="backslashreplace").decode() for argument in typed))


def resume_words(root: RootPaths, run_id: str, *more: str) -> str:
    """The command that takes a run up again, from this directory, ready to paste into a shell."""
    return shlex.join(["surefoot", "climb", "--resume", run_id, *root_words(root), *more])


def root_words(root: RootPaths) -> list[str]:
    """``--root DIR``, where this root is not the one that Surefoot takes without being told."""
    return [] if root_paths(None).root == root.root else ["--root", str(root.root)]
