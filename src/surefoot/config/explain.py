"""pydantic's errors → sentences that name the key, what is wrong, what is allowed, what was meant.

pydantic says where an error is by a path through its own validators (`rungs, 5, collectives,
max_sise`: the third part is a member of a union, not a key). `place` walks that path along the
model's types, so that each error gets its path in the user's file and the record it belongs to.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from surefoot.config.yaml_source import At
from surefoot.model.base import Record

PATTERN_WORDS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$": "at most 63 letters, digits, `_`, `.`, `-`, the first a letter or digit",
    r"^[A-Za-z0-9_.,:@+=*%&|!()\[\]/-]*$": "letters, digits and signs such as `_`, `-`, `,`; no blanks or quotes",
    r"^[A-Za-z_][A-Za-z0-9_.]*$": "a module that Python imports, like torch",
    r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$": "a file below the site, like site.yml",
    r"^([^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*)?$": "a pattern of hosts that does not begin with '-'",
    r"^[A-Za-z_][A-Za-z0-9_-]*$": "a group's name: letters, digits, _ -",
}
"""What the patterns of the models say, in words."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where it stands in the data, and a sentence about it."""

    at: At
    what: str
    others: tuple[At, ...] = ()
    """Other keys that the broken rule speaks of."""


@dataclass(frozen=True)
class Place:
    """What pydantic's path means."""

    at: At
    """Path in the user's data."""
    owner: type[Record] | None
    """The record whose key the path ends in."""
    type: Any
    """Type of the value there, None where the key is unknown."""
    metadata: tuple[Any, ...]
    """Its constraints."""
    inner: bool
    """The error is about a member of a plain union (``int | Literal["auto"]``)."""
    of_key: bool
    """The error is about a mapping's key, not its value."""


def problems_of(error: ValidationError, model: type[Record]) -> list[Problem]:
    """Every error of a validation, one problem for each place."""
    found: dict[At, Problem] = {}
    for item in error.errors(include_url=False):
        if item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]:
            continue  # pydantic counts only the items that are right; the wrong ones are told themselves
        problem = _problem(item, place(model, item["loc"]))
        found.setdefault(problem.at, problem)
    return list(found.values())


def place(model: type[Record], loc: Sequence[str | int]) -> Place:
    """Follow pydantic's path along the types of a model."""
    kind: Any = model
    metadata: tuple[Any, ...] = ()
    at: At = ()
    owner: type[Record] | None = None
    inner = of_key = False
    for part in loc:
        kind, metadata = _unwrap(kind, metadata)
        kind = _optional(kind)
        origin = get_origin(kind)
        if part == "[key]":
            of_key = True
        elif _is_record(kind):
            owner, at = kind, (*at, part)
            field = kind.model_fields.get(str(part))
            kind, metadata = (field.annotation, (*field.metadata, field)) if field else (None, ())
        elif _is_union(kind) and (discriminator := _discriminator(metadata)):
            kind, metadata = _member(kind, discriminator, str(part)), ()
        elif origin in (tuple, list):
            kind, metadata, at = get_args(kind)[0], (), (*at, part)
        elif origin is dict:
            mapping = kind
            kind, metadata, at = get_args(kind)[1], (), (*at, part)
            if loc[-1] == "[key]":
                kind = get_args(mapping)[0]
        else:
            inner = True
            break
    kind, metadata = _unwrap(kind, metadata)
    return Place(at=at, owner=owner, type=kind, metadata=metadata, inner=inner, of_key=of_key)


def nearest(found: Any, options: Iterable[str]) -> str:
    """``; did you mean x?``, or nothing when no option is near."""
    names = {option.lower().replace("-", "_"): option for option in options}
    close = difflib.get_close_matches(str(found).lower().replace("-", "_"), list(names), n=1, cutoff=0.65)
    return f"; did you mean {names[close[0]]}?" if close else ""


def _quoted(text: str) -> str:
    """One thing that is wrong is one line, whatever it holds."""
    return f"'{text}'" if text.isprintable() else repr(text)


def shown(value: Any) -> str:
    """A value as a message names it."""
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    text = _quoted(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…'"


def _problem(item: Any, where: Place) -> Problem:
    kind, value, context = item["type"], item.get("input"), item.get("ctx") or {}
    if kind == "extra_forbidden":
        assert where.owner is not None
        keys = list(where.owner.model_fields)
        return Problem(where.at, f"unknown key; allowed: {', '.join(keys)}{nearest(where.at[-1], keys)}")
    if kind == "missing":
        needed = words(where.type, where.metadata)
        return Problem(where.at, f"missing; allowed: {needed}")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _tag_problem(kind, where, value, context)
    if kind in ("value_error", "assertion_error"):
        message = str(context["error"])
        first, *others = _mentioned(where, value, message)
        return Problem(first, message, tuple(others))
    allowed = words(where.type, where.metadata)
    if not allowed:
        return Problem(where.at, str(item["msg"]))
    found = where.at[-1] if where.of_key else value
    return Problem(where.at, f"is {shown(found)}; allowed: {allowed}{_hint(found, where.type)}")


def _tag_problem(kind: str, where: Place, value: Any, context: dict[str, Any]) -> Problem:
    """An item of a union that does not say, or says wrongly, which member it is."""
    key = str(context["discriminator"]).strip("'")
    tags = _tags(where.type, key)
    allowed = ", ".join(tags)
    if kind == "union_tag_not_found" and isinstance(value, dict):
        meant = nearest(next(iter(value), ""), [key])
        return Problem((*where.at, key), f"missing; allowed: {allowed}{meant}")
    if kind == "union_tag_not_found":
        return Problem(where.at, f"is {shown(value)}; allowed: a mapping with the key {key} ({allowed})")
    found = value.get(key) if isinstance(value, dict) else context.get("tag")
    return Problem((*where.at, key), f"is {shown(found)}; allowed: {allowed}{nearest(found, tags)}")


def _mentioned(where: Place, value: Any, message: str) -> list[At]:
    """Where a record's own rule is broken: the keys that its message speaks of, if they are in the file."""
    record = _optional(where.type)
    if not _is_record(record) or not isinstance(value, dict):
        return [where.at]
    keys = [key for key in record.model_fields if key in value and key in message]
    return [(*where.at, key) for key in sorted(keys, key=message.index)] or [where.at]


def words(kind: Any, metadata: tuple[Any, ...] = ()) -> str:
    """What a value of this type may be, in words; empty for a type that has none."""
    kind, metadata = _unwrap(kind, metadata)
    if _is_union(kind):
        if discriminator := _discriminator(metadata):
            return f"a mapping with the key {discriminator} ({', '.join(_tags(kind, discriminator))})"
        return " or ".join(words(member, metadata) for member in get_args(kind))
    if _is_record(kind):
        return f"a mapping with the keys {', '.join(kind.model_fields)}"
    if get_origin(kind) is not None:
        return _generic_words(kind, metadata)
    return _size_words(metadata) or (f"{_PLAIN[kind]}{_limits(metadata)}" if kind in _PLAIN else "")


def _generic_words(kind: Any, metadata: tuple[Any, ...]) -> str:
    """Words for ``Literal[…]``, ``tuple[…]`` and ``dict[…]``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(str(value) for value in arguments)
    if origin is dict:
        return f"a mapping of {words(arguments[0])} to {words(arguments[1])}"
    return f"a list{_limits(metadata)}, each item {words(arguments[0])}"


_PLAIN: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
}


def _limits(metadata: tuple[Any, ...]) -> str:
    """Constraints in words, with a leading space."""
    found = []
    for item in metadata:
        match item:
            case Ge(ge=limit):
                found.append(f"≥ {limit}")
            case Gt(gt=limit):
                found.append(f"> {limit}")
            case Le(le=limit):
                found.append(f"≤ {limit}")
            case Lt(lt=limit):
                found.append(f"< {limit}")
            case MinLen(min_length=limit):
                found.append("of at least one" if limit == 1 else f"of at least {limit}")
        if pattern := getattr(item, "pattern", None):
            found.append(f"({PATTERN_WORDS.get(pattern, f'matching {pattern}')})")
    return " " + " and ".join(found) if found else ""


def _size_words(metadata: tuple[Any, ...]) -> str:
    """A size says of itself what it takes (`model.ladder.Size`)."""
    for item in metadata:
        schema = getattr(item, "json_schema", None)
        if isinstance(schema, dict) and "description" in schema:
            return str(schema["description"])
    return ""


def _hint(value: Any, kind: Any) -> str:
    """What was probably meant by a value of the wrong type."""
    options = [str(v) for member in _members(kind) if get_origin(member) is Literal for v in get_args(member)]
    if options:
        return nearest(value, options)
    if isinstance(value, (bool, int, float)) and kind is str:
        return f'; did you mean "{json.dumps(value)}", in quotes?'
    if isinstance(value, str) and kind is bool and value.lower() in ("yes", "on", "no", "off"):
        return f"; did you mean {'true' if value.lower() in ('yes', 'on') else 'false'}?"
    if isinstance(value, str) and get_origin(kind) is tuple:
        return f"; did you mean [{value}]?"
    if isinstance(value, str) and kind in (int, float) and value.replace(".", "", 1).isdigit():
        return f"; did you mean {value}, without quotes?"
    return ""


def _members(kind: Any) -> tuple[Any, ...]:
    kind, _ = _unwrap(kind, ())
    return tuple(_unwrap(member, ())[0] for member in get_args(kind)) if _is_union(kind) else (kind,)


def _tags(union: Any, key: str) -> list[str]:
    return [str(tag) for member in get_args(union) for tag in get_args(member.model_fields[key].annotation)]


def _member(union: Any, key: str, tag: str) -> Any:
    return next(m for m in get_args(union) if tag in get_args(m.model_fields[key].annotation))


def _unwrap(kind: Any, metadata: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """``Annotated[T, …]`` → T and what annotates it; a FieldInfo among it opens up too."""
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        for item in more:
            metadata += (*item.metadata, item) if isinstance(item, FieldInfo) else (item,)
    return kind, metadata


def _discriminator(metadata: tuple[Any, ...]) -> str:
    found = [item.discriminator for item in metadata if isinstance(item, FieldInfo) and item.discriminator]
    return str(found[0]) if found else ""


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _optional(kind: Any) -> Any:
    """The record of ``Record | None``; any other type as it is."""
    members = [member for member in get_args(kind) if member is not type(None)] if _is_union(kind) else []
    return members[0] if len(members) == 1 and _is_record(members[0]) else kind


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)
