"""A user's file → a frozen record, or one error that names everything wrong with it.

`ref` is the path of a file, or the name of one that ships with Surefoot (``local``, ``two-sparks``).
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

import surefoot
from surefoot.config.ansible import ansible_problems
from surefoot.config.environment import environment_problems
from surefoot.config.explain import Problem, nearest, problems_of
from surefoot.config.rules import absolute_ssh_config, cluster_problems, expand_sources, ladder_problems
from surefoot.config.yaml_source import At, YamlSource, parse_value, read_yaml
from surefoot.errors import ConfigError
from surefoot.model.base import Record
from surefoot.model.cluster import Cluster
from surefoot.model.ladder import Ladder
from surefoot.model.policy import Policy
from surefoot.model.recipe import Recipe

Kind = Literal["cluster", "ladder", "recipe", "policy"]
R = TypeVar("R", bound=Record)

MODELS: dict[str, type[Record]] = {"cluster": Cluster, "ladder": Ladder, "recipe": Recipe, "policy": Policy}
_FOLDERS = {"cluster": "clusters", "ladder": "ladders", "recipe": "recipes", "policy": "policies"}
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Loaded(Generic[R]):
    """A record and the file that it came from."""

    kind: Kind
    record: R
    path: Path
    """Absolute path of the file."""
    source: YamlSource
    """Its text, verbatim, and where each key stands."""
    shipped: bool
    """It came with Surefoot, by name."""
    overrides: tuple[str, ...] = ()
    """``--set`` arguments that have been applied to the record (the text stays the file's own)."""

    @property
    def text(self) -> str:
        """The file, verbatim: what a run keeps in its inputs."""
        return self.source.text


def shipped_folder(kind: Kind) -> Path:
    """Folder of the files of a kind that ship with Surefoot."""
    return Path(surefoot.__file__).parent / "shipped" / _FOLDERS[kind]


def shipped_names(kind: Kind) -> list[str]:
    """Names of the files of a kind that ship with Surefoot, sorted."""
    folder = shipped_folder(kind)
    return sorted(path.stem for path in folder.glob("*.yaml")) if folder.is_dir() else []


def load_cluster(ref: str | Path) -> Loaded[Cluster]:
    """A cluster by path or shipped name. Raises ConfigError."""
    return _load("cluster", Cluster, ref)


def load_ladder(ref: str | Path) -> Loaded[Ladder]:
    """A ladder by path or shipped name. Raises ConfigError."""
    return _load("ladder", Ladder, ref)


def load_recipe(ref: str | Path) -> Loaded[Recipe]:
    """A recipe by path or shipped name; its sources are resolved. Raises ConfigError."""
    return _load("recipe", Recipe, ref)


def load_policy(ref: str | Path) -> Loaded[Policy]:
    """A policy by path or shipped name. Raises ConfigError."""
    return _load("policy", Policy, ref)


def load(kind: Kind, ref: str | Path) -> Loaded[Any]:
    """Any of the four. Raises ConfigError."""
    return _load(kind, MODELS[kind], ref)


def apply_overrides(loaded: Loaded[Ladder], settings: Iterable[str]) -> Loaded[Ladder]:
    """A ladder with ``RUNG.KEY=VALUE`` settings in place of what its file says.

    VALUE is read as YAML and checked as the file's values are. Raises ConfigError that names the
    setting.
    """
    settings = tuple(settings)
    if not settings:
        return loaded
    data = copy.deepcopy(loaded.source.data)
    places: dict[At, str] = {}
    wrong: list[str] = []
    for setting in (*loaded.overrides, *settings):
        try:
            places[_apply(data, setting)] = setting
        except ConfigError as error:
            wrong.append(error.message)
    if wrong:
        raise ConfigError("\n".join(wrong), next_action="correct --set, then run it again")
    record = _validate("ladder", Ladder, data, loaded.source, places)
    return replace(loaded, record=record, overrides=(*loaded.overrides, *settings))


def _apply(data: dict[str, Any], setting: str) -> At:
    """Write one setting into a ladder's data; where it now stands."""
    target, equals, text = setting.partition("=")
    rung, *keys = target.strip().split(".")
    if not equals or not keys or not all((rung, *keys)):
        raise ConfigError(f"--set {setting}: not a setting; allowed: RUNG.KEY=VALUE, like collectives.max_size=1MiB")
    names = [item["rung"] for item in data["rungs"]]
    if rung not in names:
        raise ConfigError(
            f"--set {setting}: no rung {rung!r} in this ladder; allowed: {', '.join(names)}{nearest(rung, names)}"
        )
    if keys == ["rung"]:
        raise ConfigError(f"--set {setting}: what a rung is cannot be set; write a ladder file for that")
    at: At = ("rungs", names.index(rung), *keys)
    holder = data["rungs"][names.index(rung)]
    for depth, key in enumerate(keys[:-1]):
        holder = holder.setdefault(key, {})
        if not isinstance(holder, dict):
            raise ConfigError(f"--set {setting}: {'.'.join((rung, *keys[: depth + 1]))} has no keys below it")
    try:
        holder[keys[-1]] = parse_value(text, file="value")
    except ConfigError as error:
        raise ConfigError(f"--set {setting}: {error.message}") from error
    return at


def _load(kind: Kind, model: type[R], ref: str | Path) -> Loaded[R]:
    path, shipped = _find(kind, str(ref))
    source = read_yaml(path, file=str(path) if shipped else str(ref))
    data = copy.deepcopy(source.data)
    record = _validate(kind, model, data, source, {}, folder=path.parent)
    return Loaded(kind=kind, record=record, path=path, source=source, shipped=shipped)


def _find(kind: Kind, ref: str) -> tuple[Path, bool]:
    """Path of what `ref` names, and whether it is a shipped file."""
    names = shipped_names(kind)
    if ref in names:
        return shipped_folder(kind) / f"{ref}.yaml", True
    path = Path(os.path.expanduser(ref))  # noqa: PTH111 - Path.expanduser raises for a ~NAME of nobody here
    if path.is_file():
        return path.absolute(), False
    shipped = f"shipped are: {', '.join(names)}"
    if "/" in ref or ref.endswith(_SUFFIXES):
        state = "is a folder" if path.is_dir() else "does not exist"
        meant = f"; did you mean {path.stem} ({shipped})?" if path.stem in names else f"; {shipped}"
        raise ConfigError(f"{kind} file {ref} {state}{meant}", next_action=f"name an existing {kind} file")
    raise ConfigError(
        f"no {kind} is called {ref!r}; {shipped or 'none'}{nearest(ref, names)}",
        next_action=f"name a shipped {kind}, or the path of a file of your own",
    )


def _validate(
    kind: Kind,
    model: type[R],
    data: dict[str, Any],
    source: YamlSource,
    places: Mapping[At, str],
    *,
    folder: Path | None = None,
) -> R:
    """Data as a record, or a ConfigError with every problem, in the order of the file."""
    problems: list[Problem] = []
    if kind == "ladder":
        problems += ladder_problems(data)
    elif kind == "cluster":
        problems += cluster_problems(data)
        if folder is not None:
            absolute_ssh_config(data, folder)
            problems += environment_problems(data, folder)
            problems += ansible_problems(data, folder)
    elif kind == "recipe" and folder is not None:
        problems += expand_sources(data, folder, os.environ)
    told = {problem.at for problem in problems}
    try:
        # Strict, as JSON: lists are tuples there, but "2" is no number and true is not 1.
        record = model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        # A rule told with its place is not told again by the record that enforces it (at its top, without one).
        problems += [p for p in problems_of(error, model) if p.at not in told and not (told and p.at == ())]
    else:
        if not problems:
            return record
    raise _config_error(kind, problems, source, data, places)


def _config_error(
    kind: Kind, problems: list[Problem], source: YamlSource, data: Any, places: Mapping[At, str]
) -> ConfigError:
    rows: list[tuple[int, str]] = []
    for problem in problems:
        place = next((p for at in (problem.at, *problem.others) if (p := _set_place(at, places))), None)
        if place is not None:
            key = "" if place == problem.at else _key_words(problem.at, data)
            rows.append((0, f"--set {places[place]}: {key}{problem.what}"))
        else:
            line = source.line(problem.at)
            rows.append((line, f"{source.file}:{line}: {_key_words(problem.at, data)}{problem.what}"))
    rows.sort(key=lambda row: row[0])
    count = "this" if len(rows) == 1 else f"these {len(rows)}"
    return ConfigError(
        "\n".join(text for _, text in rows),
        next_action=f"correct {count}, then run it again; `surefoot schema {kind}` prints what a {kind} may hold",
    )


def _set_place(at: At, places: Mapping[At, str]) -> At | None:
    """Where a ``--set`` wrote what stands at `at` (the last one counts); None where the file did."""
    return next((place for place in reversed(list(places)) if at[: len(place)] == place), None)


def _key_words(at: At, data: Any) -> str:
    """``rungs[collectives].max_size: ``: list items go by their name where they have one."""
    text = ""
    for part in at:
        inside = data[part] if isinstance(data, list) and isinstance(part, int) and part < len(data) else None
        if isinstance(part, int):
            name = (inside.get("rung") or inside.get("name")) if isinstance(inside, dict) else None
            text += f"[{name}]" if isinstance(name, str) else f"[{part}]"
        else:
            text += f".{part}" if text else part
        data = inside if isinstance(part, int) else (data.get(part) if isinstance(data, dict) else None)
    return f"{text}: " if text else ""
