"""Generates damage: every way in which a file of a run's evidence can be wrong, for every file there is.

A mutation is a function from an attempt's folder to nothing; it changes one thing. The list is
derived from the files of a real run, so a new rung or a new figure is covered when it appears.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.engine.store import UNSEALED, evidence_files, read_record, write_record
from surefoot.files import sha256_file
from surefoot.model.run import Collection, SealedFile

_RANK = re.compile(r"^(?P<head>.*rank-)(?P<rank>\d+)(?P<tail>\.json)$")
_NOISE = 1e-6
"""A figure that small is a rounding error around zero already."""
_MOST_LEAVES = 120
"""Figures of one file that are mutated; a longer file has repeating rows, and every n-th is taken."""


@dataclass(frozen=True)
class Mutation:
    """One way to damage one attempt."""

    rung: str
    kind: str
    """``delete``, ``truncate``, ``zero a figure``, …"""
    file: str
    """Relative to the attempt's folder."""
    where: str
    """Which figure or line; empty for a whole file."""
    apply: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.rung}: {self.kind}: {self.file}{' ' + self.where if self.where else ''}"


def is_listed(mutation: Mutation, reasons: Iterable[tuple[str, str, str]]) -> bool:
    """Whether one of these patterns of (file, figure, kind of damage) is about it."""
    return any(
        re.fullmatch(file, mutation.file) and re.fullmatch(where, mutation.where) and re.fullmatch(kind, mutation.kind)
        for file, where, kind in reasons
    )


def mutations(rung: str, folder: Path, stale: Path) -> Iterator[Mutation]:
    """All mutations of an attempt. `stale`: the same rung's attempt in another run."""
    names = [name for name in evidence_files(folder) if name not in UNSEALED]
    for name in names:
        data = (folder / name).read_bytes()
        for kind, change in _WHOLE_FILE.items():
            if change(data) == data:
                continue  # an empty file stays as it is
            yield Mutation(rung, kind, name, "", _on_bytes(name, change))
        yield Mutation(rung, "delete", name, "", lambda f, n=name: (f / n).unlink())  # type: ignore[misc]
        if (stale / name).is_file() and (stale / name).read_bytes() != (folder / name).read_bytes():
            yield Mutation(rung, "stale file of another run", name, "", lambda f, n=name: _copy(stale / n, f / n))  # type: ignore[misc]
        yield from _rank_mutations(rung, name, names)
        yield from _content_mutations(rung, folder, name)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _on_bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return apply


_WHOLE_FILE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _data: b"",
    "truncate to half": lambda data: data[: len(data) // 2],
    "cut the last bytes": lambda data: data[:-3],
    "extra whitespace at the end": lambda data: data + b" \n\n",
    "extra whitespace at the start": lambda data: b" \n" + data,
    "content twice": lambda data: data + data,
    "zeros": lambda data: bytes(len(data)),
    "not UTF-8": lambda data: b"\xff\xfe" + data,
}


def _rank_mutations(rung: str, name: str, names: list[str]) -> Iterator[Mutation]:
    match = _RANK.match(name)
    if match is None:
        return
    others = [n for n in names if n != name and (m := _RANK.match(n)) and m["head"] == match["head"]]
    for other in others:
        if other > name:

            def swap(folder: Path, a: str = name, b: str = other) -> None:
                first, second = (folder / a).read_bytes(), (folder / b).read_bytes()
                (folder / a).write_bytes(second)
                (folder / b).write_bytes(first)

            yield Mutation(rung, "swap between ranks", name, f"with {other}", swap)
        yield Mutation(rung, "duplicate a rank", name, f"over {other}", lambda f, a=name, b=other: _copy(f / a, f / b))  # type: ignore[misc]
    extra = f"{match['head']}{len(others) + 1}{match['tail']}"
    yield Mutation(rung, "a rank too many", name, f"as {extra}", lambda f, a=name, b=extra: _copy(f / a, f / b))  # type: ignore[misc]


def _content_mutations(rung: str, folder: Path, name: str) -> Iterator[Mutation]:
    if name.endswith(".jsonl"):
        rows = (folder / name).read_text().splitlines(keepends=True)
        for number in _spread(len(rows)):
            yield Mutation(rung, "delete a line", name, f"line {number + 1}", _on_lines(name, number, _drop))
            yield Mutation(rung, "a line twice", name, f"line {number + 1}", _on_lines(name, number, _double))
            if number + 1 < len(rows) and rows[number] != rows[number + 1]:
                yield Mutation(rung, "swap two lines", name, f"line {number + 1}", _on_lines(name, number, _swap))
            for path, value in _leaves(json.loads(rows[number])):
                yield from _figure_mutations(rung, name, path, value, line=number)
    elif name.endswith(".json"):
        leaves = list(_leaves(json.loads((folder / name).read_text())))
        for index in _spread(len(leaves), _MOST_LEAVES):
            yield from _figure_mutations(rung, name, *leaves[index], line=None)


def _spread(count: int, most: int = 12) -> list[int]:
    """At most `most` indices of `count`, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _drop(rows: list[str], n: int) -> None:
    del rows[n]


def _double(rows: list[str], n: int) -> None:
    rows.insert(n, rows[n])


def _swap(rows: list[str], n: int) -> None:
    rows[n], rows[n + 1] = rows[n + 1], rows[n]


def _on_lines(name: str, number: int, change: Callable[[list[str], int], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        rows = (folder / name).read_text().splitlines(keepends=True)
        change(rows, number)
        (folder / name).write_text("".join(rows))

    return apply


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def _figure_mutations(
    rung: str, name: str, path: tuple[str | int, ...], value: Any, *, line: int | None
) -> Iterator[Mutation]:
    where = ".".join(map(str, path)) + (f" in line {line + 1}" if line is not None else "")
    if isinstance(value, bool):
        yield Mutation(rung, "flip", name, where, _set(name, path, not value, line))
    elif isinstance(value, int | float):
        if abs(value) > _NOISE:
            yield Mutation(rung, "zero a figure", name, where, _set(name, path, 0, line))
        yield Mutation(rung, "NaN", name, where, _set(name, path, float("nan"), line))
        yield Mutation(rung, "a figure missing", name, where, _set(name, path, None, line))
        if path[-1] == "world_size":
            yield Mutation(rung, "wrong world size", name, where, _set(name, path, int(value) + 1, line))
    elif isinstance(value, str) and value:
        yield Mutation(rung, "a word emptied", name, where, _set(name, path, "", line))


def _set(name: str, path: tuple[str | int, ...], value: Any, line: int | None) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        file = folder / name
        if line is None:
            file.write_text(json.dumps(_with(json.loads(file.read_text()), path, value), indent=1) + "\n")
        else:
            rows = file.read_text().splitlines()
            rows[line] = json.dumps(_with(json.loads(rows[line]), path, value))
            file.write_text("\n".join(rows) + "\n")

    return apply


def _with(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def forge_seal(folder: Path) -> None:
    """Seal the damaged files anew, as evidence that was wrong when it was collected would be."""
    seal = folder / "collection.json"
    files = {
        name: SealedFile(sha256=sha256_file(folder / name), size_bytes=(folder / name).stat().st_size)
        for name in evidence_files(folder)
        if name not in UNSEALED
    }
    write_record(seal, read_record(Collection, seal).model_copy(update={"files": files}))
