"""Data sources: any JSON-lines, JSON or CSV file as Task rows. No torch.

A row is never skipped: what cannot be read as asked is an error that names file, line and column.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from surefoot.errors import RequestError
from surefoot.model.recipe import TaskSource
from surefoot.model.score import Scorer, Task

SCORER_BY_CATEGORY: dict[str, Scorer] = {"closed_qa": "qa", "json_extraction": "json"}
"""Scorer where neither recipe nor row names one; every other category is compared exactly."""


@dataclass(frozen=True)
class RawRow:
    """One row as its file has it."""

    where: str
    """``FILE:LINE`` (``FILE item N`` in a JSON list)."""
    columns: Mapping[str, Any]


class _RowFormatter(string.Formatter):
    """`str.format` over a row: dots and brackets walk into nested JSON, ``!j`` writes JSON."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        del args
        value: Any = kwargs
        for part in field_name.replace("[", ".").replace("]", "").split("."):
            if isinstance(value, Mapping):
                value = value[part]
            elif isinstance(value, list) and part.isdecimal():
                value = value[int(part)]
            else:
                raise KeyError(part)
        return value, field_name

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "j":
            return json.dumps(value, ensure_ascii=False)
        return super().convert_field(value, conversion)


_FORMATTER = _RowFormatter()


def _fill(template: str, row: RawRow, field: str) -> str:
    try:
        return _FORMATTER.vformat(template, (), row.columns)
    except (KeyError, IndexError) as error:
        raise RequestError(
            f"{row.where}: the {field} template {template!r} asks for {error.args[0]!r}, which this row does not have",
            next_action=f"columns of this row: {', '.join(row.columns) or 'none'}",
        ) from error
    except ValueError as error:
        raise RequestError(
            f"{row.where}: the {field} template {template!r} is not a template: {error}",
            next_action="write {column} for a column, {column!j} for a column as JSON, {{ and }} for braces",
        ) from error


def _column(row: RawRow, name: str) -> str:
    value = row.columns.get(name)
    if not isinstance(value, str):
        raise RequestError(
            f"{row.where}: no text in column {name!r}",
            next_action=f"give a template for {name} in the recipe; columns of this row: {', '.join(row.columns) or 'none'}",
        )
    return value


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"{path}: cannot be read: {error.strerror or error}",
            next_action="check the source in the recipe; it is read on the node that stages it",
        ) from error


def _decoded(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not UTF-8 at byte {error.start}", next_action="convert it to UTF-8") from error


def _as_object(value: Any, where: str) -> RawRow:
    if not isinstance(value, dict):
        raise RequestError(f"{where}: a row is a JSON object, this is {type(value).__name__}: {str(value)[:80]!r}")
    return RawRow(where, value)


def _json_lines(path: Path, text: str) -> Iterator[RawRow]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() and number > text.count("\n"):
            continue  # what follows the last line end
        try:
            value = json.loads(line)
        except ValueError as error:
            raise RequestError(f"{path}:{number}: not valid JSON: {error} [{line[:120]}]") from error
        yield _as_object(value, f"{path}:{number}")


def _json_list(path: Path, text: str) -> Iterator[RawRow]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RequestError(f"{path}: not valid JSON: {error}", next_action="use format: jsonl for one object a line") from error  # fmt: skip
    if not isinstance(values, list):
        raise RequestError(f"{path}: a data file in JSON is a list of objects, this is {type(values).__name__}")
    for number, value in enumerate(values, 1):
        yield _as_object(value, f"{path} item {number}")


def _csv(path: Path, text: str) -> Iterator[RawRow]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    start = 1
    try:
        header = reader.fieldnames or ()  # reads the first line
        while True:
            start = reader.line_num + 1
            columns = next(reader)
            if None in columns or None in columns.values():
                raise RequestError(
                    f"{path}:{start}: {'more' if None in columns else 'fewer'} fields than the header's {len(header)}",
                    next_action="quote fields that hold commas or line ends",
                )
            yield RawRow(f"{path}:{start}", columns)
    except StopIteration:
        return
    except csv.Error as error:
        raise RequestError(f"{path}:{start}: not valid CSV: {error}") from error


_READERS = {"jsonl": _json_lines, "json": _json_list, "csv": _csv}


def read_rows(path: Path, form: str) -> tuple[list[RawRow], str]:
    """All rows of a file, in order, and the sha256 (hex) of the very bytes that they were read from.

    Raises RequestError naming file and line; an empty file is an error.
    """
    raw = _read_bytes(path)
    rows = list(_READERS[form](path, _decoded(path, raw)))
    if not rows:
        raise RequestError(f"{path}: holds no rows", next_action="check the source and its format in the recipe")
    return rows, hashlib.sha256(raw).hexdigest()


def _task(row: RawRow, number: int, stem: str, source: TaskSource) -> Task:
    category = _fill(source.category, row, "category") if source.category else _column(row, "category")
    scorer = source.scorer or row.columns.get("scorer") or SCORER_BY_CATEGORY.get(category, "exact")
    try:
        return Task(
            id=str(row.columns.get("id") or f"{stem}-{number:06d}"),
            category=category,
            prompt=_fill(source.prompt, row, "prompt") if source.prompt else _column(row, "prompt"),
            answer=_fill(source.answer, row, "answer") if source.answer else _column(row, "answer"),
            scorer=scorer,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise RequestError(f"{row.where}: {name}: {first['msg']} [{str(first.get('input'))[:80]!r}]") from error


def _sample(tasks: list[Task], count: int, seed: int, path: str) -> list[Task]:
    """`count` of the tasks, in their order, chosen by a hash of seed and id: adding rows moves few choices."""
    if count > len(tasks):
        raise RequestError(f"{path}: {count} rows are asked for, it holds {len(tasks)}", next_action="lower rows in the recipe")  # fmt: skip
    ranked = sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}\0{task.id}".encode()).digest())
    chosen = {task.id for task in ranked[:count]}
    return [task for task in tasks if task.id in chosen]


def tasks_of(rows: Sequence[RawRow], source: TaskSource, *, name: str) -> list[Task]:
    """Rows as tasks: templates filled, ids unique, the subset taken that the source asks for.

    Raises RequestError naming the row.
    """
    stem = Path(name).stem
    tasks = []
    seen: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        task = _task(row, number, stem, source)
        if task.id in seen:
            raise RequestError(f"{row.where}: id {task.id!r} stands at {seen[task.id]} too")
        seen[task.id] = row.where
        tasks.append(task)
    return tasks if source.rows is None else _sample(tasks, source.rows, source.seed, name)
