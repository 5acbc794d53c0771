"""YAML text → plain data, and where each piece of it stands.

The scalars are those of YAML 1.2's core schema: `true`/`false` are the only booleans, `5e-5` is a
number, a date is text. (PyYAML's own rules are YAML 1.1's: `no` is false there, `1:30` is 90 and
`5e-5` is text.) Refused: keys that stand twice, keys that are not text, tags, more than one
document, and a document that is not a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.error import Mark, MarkedYAMLError
from yaml.reader import ReaderError

from surefoot.errors import ConfigError

Key = str | int
At = tuple[Key, ...]
"""Where a value stands in the data: ``("rungs", 5, "max_size")``."""

_TAG = "tag:yaml.org,2002:"
_MAX_NODES = 100_000


@dataclass(frozen=True)
class Position:
    """Line and column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class YamlSource:
    """A user's file: its text as it is, its data, and the position of every key and list item."""

    file: str
    """As messages name it."""
    text: str
    data: dict[str, Any]
    positions: dict[At, Position]

    def line(self, at: At) -> int:
        """Line of a key or item; of the nearest thing around it where it does not stand in the file."""
        while at and at not in self.positions:
            at = at[:-1]
        return self.positions[at].line


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser with YAML 1.2's core schema for plain scalars."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    _TAG + "int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver(_TAG + "merge", re.compile(r"^<<$"), ["<"])


def read_yaml(path: Path, *, file: str = "") -> YamlSource:
    """A file on disk; messages call it `file`. Raises ConfigError that names the line."""
    shown = file or str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{shown}: cannot be read: {error.strerror or error}", next_action="name a readable YAML file"
        ) from error
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown}:{line}: not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            next_action="save the file as UTF-8",
        ) from error
    return parse_yaml(text, file=shown)


def parse_yaml(text: str, *, file: str) -> YamlSource:
    """One YAML document whose top is a mapping. Raises ConfigError that names the line."""
    root = _compose(text, file)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _TAG + "null"):
        raise ConfigError(f"{file}: empty: there is nothing in it but comments", next_action=_NEXT)
    walk = _Walk(file)
    if not isinstance(root, yaml.MappingNode):
        raise walk.error(root, f"the file is {_NODE_WORDS[type(root)]}, not a mapping of keys to values")
    data = walk.value(root, ())
    return YamlSource(file=file, text=text, data=data, positions=walk.positions)


def parse_value(text: str, *, file: str) -> Any:
    """One value, as it could stand after a key: ``8``, ``1MiB``, ``[a, b]``. Raises ConfigError."""
    node = _compose(text, file)
    return None if node is None else _Walk(file).value(node, ())


_NEXT = "correct it there; `surefoot schema` prints what such a file may hold"
_NODE_WORDS: dict[type[yaml.Node], str] = {
    yaml.ScalarNode: "a single value",
    yaml.SequenceNode: "a list",
    yaml.MappingNode: "a mapping",
}


def _compose(text: str, file: str) -> yaml.Node | None:
    """The document's node tree; None for an empty one."""
    try:
        loader = _Loader(text.removeprefix("\ufeff"))
        try:
            if not loader.check_node():
                return None
            root: yaml.Node | None = loader.get_node()
            if loader.check_node():
                second = loader.get_node()
                assert second is not None
                line = second.start_mark.line + 1
                raise ConfigError(
                    f"{file}:{line}: a second document begins here (after a line `---`); one file holds one document",
                    next_action="split it into two files",
                )
        finally:
            loader.dispose()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{file}:{line}: character {error.character!r} is not allowed in YAML", next_action=_NEXT
        ) from error
    except MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from error
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deeply to be read", next_action=_NEXT) from error
    return root


def _syntax_error(error: MarkedYAMLError, text: str, file: str) -> ConfigError:
    """PyYAML's account of a syntax error, with the case that everybody meets said plainly."""
    mark: Mark | None = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    rows = text.split("\n")
    row = rows[line - 1] if line <= len(rows) else ""
    if "\t" in row[: len(row) - len(row.lstrip())] or "'\\t'" in (error.problem or ""):
        return ConfigError(
            f"{file}:{line}: a tab stands where YAML allows only spaces", next_action="replace the tab by spaces"
        )
    context = f" {error.context}" if error.context else ""
    shown = f" [{row.strip()[:120]}]" if row.strip() else ""
    return ConfigError(f"{file}:{line}: not valid YAML:{context} {error.problem}{shown}", next_action=_NEXT)


class _Walk:
    """Node tree → data and positions."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.positions: dict[At, Position] = {}
        self._open: list[yaml.Node] = []
        self._count = 0

    def error(self, node: yaml.Node, problem: str) -> ConfigError:
        """A ConfigError at a node."""
        return ConfigError(f"{self.file}:{node.start_mark.line + 1}: {problem}", next_action=_NEXT)

    def value(self, node: yaml.Node, at: At) -> Any:
        """Data of a node. Notes the position unless its key has been noted already."""
        mark = node.start_mark
        self.positions.setdefault(at, Position(mark.line + 1, mark.column + 1))
        self._count += 1
        if self._count > _MAX_NODES:
            raise self.error(node, f"more than {_MAX_NODES} values: aliases (`*name`) multiply here")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if any(node is other for other in self._open):
            raise self.error(node, "an alias (`*name`) stands inside what it names")
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self.value(child, (*at, index)) for index, child in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, at)
        finally:
            self._open.pop()
        raise self._tag_error(node)

    def _mapping(self, node: yaml.MappingNode, at: At) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged.append(value_node)
                continue
            key = self._key(key_node)
            if key in found:
                first = self.positions[(*at, key)].line
                raise self.error(key_node, f"key {key!r} stands twice (first in line {first}); keep one")
            mark = key_node.start_mark
            self.positions[(*at, key)] = Position(mark.line + 1, mark.column + 1)
            found[key] = self.value(value_node, (*at, key))
        for source in self._merge_sources(merged):
            # A key that stands in the mapping itself outweighs a merged one; an earlier merge a later one.
            for key, value in self.value(source, (*at, "<<")).items():
                if key not in found:
                    found[key] = value
                    self._adopt((*at, "<<", key), (*at, key))
            self._forget((*at, "<<"))
        return found

    def _merge_sources(self, nodes: list[yaml.Node]) -> Iterator[yaml.MappingNode]:
        for node in nodes:
            for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
                if not isinstance(source, yaml.MappingNode):
                    raise self.error(source, "`<<` takes a mapping (`<<: *name`) or a list of mappings")
                yield source

    def _adopt(self, old: At, new: At) -> None:
        """Positions below `old` hold for `new` too: a merged value stands where it was written."""
        for at, position in list(self.positions.items()):
            if at[: len(old)] == old:
                self.positions[new + at[len(old) :]] = position

    def _forget(self, old: At) -> None:
        for at in [at for at in self.positions if at[: len(old)] == old]:
            del self.positions[at]

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, f"a key is text, not {_NODE_WORDS[type(node)]}")
        if node.tag != _TAG + "str":
            raise self.error(node, f'key {node.value} is not text; write "{node.value}"')
        return str(self._scalar(node))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.error(node, r"half a character: write it itself, or as \UXXXXXXXX, not as two \uXXXX")
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                try:
                    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
                except ValueError as error:  # Python refuses thousands of digits
                    raise self.error(node, "a number with too many digits") from error
            case "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        raise self._tag_error(node)

    def _tag_error(self, node: yaml.Node) -> ConfigError:
        shown = node.tag.replace(_TAG, "!!")
        return self.error(node, f"tag {shown} is not understood here; write the plain value")
