"""A cluster as the text of a cluster file, with comments: what `load_cluster` reads back as the same cluster. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from surefoot.config.yaml_source import At
from surefoot.model.cluster import Cluster, NodeGroup

END = "#"
"""Last step of a place: below everything that stands at the place before it."""

_LONGEST_KEY = 1000
"""Characters. YAML allows 1024 where no ``?`` stands before it."""
_AS_NUMBERS_DO = frozenset("0123456789+-.")

Comments = Mapping[At, Sequence[str]]
"""Place of a key → what is said of it: beside a value, above what has keys or items of its own. At (): above all."""


def cluster_text(cluster: Cluster, comments: Comments) -> str:
    """YAML without what is the default anyway. A comment stays one, whatever a node's facts hold."""
    data = cluster.model_dump(mode="json", exclude_defaults=True)
    data.get("environment", {}).pop("requirements", None)  # read from the lock, never from the file
    for number, group in enumerate(cluster.node_groups):  # how many GPUs is a claim, none too
        said = {**data["node_groups"][number], "gpus_per_node": group.gpus_per_node}
        data["node_groups"][number] = {key: said[key] for key in NodeGroup.model_fields if key in said}
    head = [*_said(comments, (), ""), ""] if comments.get(()) else []
    return "\n".join([*head, *_lines(data, (), comments, "")]) + "\n"


def _lines(value: dict[str, Any] | list[Any], at: At, comments: Comments, pad: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entry(key, inner, (*at, key), comments, pad)
    else:
        for number, inner in enumerate(value):
            yield from _item(inner, (*at, number), comments, pad)
    yield from _said(comments, (*at, END), pad)


def _entry(key: str, value: Any, at: At, comments: Comments, pad: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield from _said(comments, at, pad)
        yield f"{pad}{_key(key, pad)}:"
        yield from _lines(value, at, comments, f"{pad}  ")
    else:
        beside = "; ".join(map(_one_line, comments.get(at, ())))
        yield f"{pad}{_key(key, pad)}: {_scalar(value)}{f'  # {beside}' if beside else ''}"


def _item(value: Any, at: At, comments: Comments, pad: str) -> Iterator[str]:
    yield from _said(comments, at, pad)
    if not isinstance(value, dict | list):
        yield f"{pad}- {_scalar(value)}"
        return
    first, *rest = _lines(value, at, comments, f"{pad}  ")
    yield f"{pad}- {first[len(pad) + 2 :]}"
    yield from rest


def _said(comments: Comments, at: At, pad: str) -> Iterator[str]:
    for text in comments.get(at, ()):
        yield f"{pad}# {_one_line(text)}".rstrip()


def _key(key: str, pad: str) -> str:
    """A place's name, say, may be longer than a key that nothing marks as one."""
    text = _scalar(key)
    return text if len(text) <= _LONGEST_KEY else f"? {text}\n{pad}"


def _scalar(value: Any) -> str:
    """As it stands in a list in brackets: the strictest place, so it may stand anywhere. A text that begins as
    a number does is quoted: the loader takes ``1e3`` for one, PyYAML does not. One with a line's end stays on its line.
    """
    quoted = isinstance(value, str) and (value[:1] in _AS_NUMBERS_DO or not value.isprintable())
    style = '"' if quoted else None
    text = yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=False, default_style=style)
    return text.strip()[1:-1]


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
