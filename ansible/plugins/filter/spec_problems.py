"""Values of an inventory that are of another shape than a role's argument specs say. Used by validate.yml, before any host is touched."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import yaml

DOCUMENTATION = """
name: spec_problems
short_description: Values that are of another shape than a role's argument specs say
"""

Variables = Mapping[str, Any]

_WORDS = run_path(str(Path(__file__).parents[1] / "words.py"))
_few = _WORDS["few"]

_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0", "1.0", "0.0", "y", "n", "t", "f")
_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "list": ("a list", lambda value: isinstance(value, (list, tuple))),
    "dict": ("a mapping", lambda value: isinstance(value, Mapping)),
    "bool": ("true or false", lambda value: str(value).lower() in _BOOLEANS),
}


def spec_problems(hostvars: Mapping[str, Variables], groups: Mapping[str, Sequence[str]], folder: str) -> list[str]:
    """Each with the key or the shape that is wrong and what is allowed. `folder` is that of the playbooks."""
    specs: dict[str, Mapping[str, Any]] = {}
    for file in sorted(Path(folder).glob("roles/*/meta/argument_specs.yml")):
        specs |= yaml.safe_load(file.read_text())["argument_specs"]["main"]["options"]
    found: dict[str, list[str]] = {}
    for host in groups.get("all", []):
        of = hostvars[host]
        for name in of:
            if name in specs:
                for problem in _wrong(name, of[name], specs[name]):
                    found.setdefault(problem, []).append(host)
    return [f"{problem} (seen for {_few(hosts)})" for problem, hosts in found.items()]


def _wrong(name: str, value: object, spec: Mapping[str, Any]) -> Iterator[str]:
    if value is None:
        return  # as if it were not set: what cannot do without it says so
    shape, fits = _SHAPES.get(str(spec.get("type")), ("", lambda _: True))
    if not fits(value):
        yield f"{name} is {_short(value) if spec['type'] == 'bool' else _kind(value)}, and {shape} is wanted"
    elif "choices" in spec and str(value) not in [str(each) for each in spec["choices"]]:
        yield f"{name} is {_short(value)}, and allowed are {', '.join(str(each) or 'nothing' for each in spec['choices'])}"
    elif "options" in spec:
        rows = value if isinstance(value, (list, tuple)) else [value]
        for number, row in enumerate(rows, 1):
            yield from _wrong_row(f"{name}, entry {number}", row, spec["options"])


def _wrong_row(name: str, row: object, options: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"{name} is {_kind(row)}, and a mapping is wanted: {', '.join(options)}"
        return
    called = f" ({row['name']})" if isinstance(row.get("name"), str) else ""
    for key in row:
        if key not in options:
            near = difflib.get_close_matches(str(key), options, 1)
            hint = f"is {near[0]} meant?" if near else f"allowed are {', '.join(options)}"
            yield f"{name}{called} has the key {key}: {hint}"
    for key, spec in options.items():
        if spec.get("required") and row.get(key) in (None, ""):
            yield f"{name}{called} has no {key}: write it"
        elif key in row:
            yield from _wrong(f"{key} of {name}{called}", row[key], spec)


def _kind(value: object) -> str:
    """What a value is, without it: a receiver of alerts, say, may be a secret."""
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else "a text" if isinstance(value, str) else _short(value)


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "…")


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"spec_problems": spec_problems}
