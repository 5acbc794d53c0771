"""Rows of training and evaluation data as they lie on shared storage: one Task a line. No torch."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from surefoot.errors import EvidenceError
from surefoot.evidence import parse_json, parse_record
from surefoot.model.score import Task

TASKS_FILE = "tasks.jsonl"
"""Name of the one file in a staged data folder."""


def task_lines(tasks: Iterable[Task]) -> str:
    """Tasks as JSON lines: the one form whose digest names a data set."""
    return "".join(task.model_dump_json() + "\n" for task in tasks)


def parse_tasks(text: str, *, file: str = TASKS_FILE) -> tuple[Task, ...]:
    """JSON lines as tasks, complete. Raises EvidenceError for an empty, cut or wrong file, or an id twice."""
    if not text:
        raise EvidenceError("empty", file=file)
    lines = text.split("\n")
    if lines.pop() != "":
        raise EvidenceError("cut off: the last line has no end", file=file, line=len(lines) + 1)
    tasks = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        task = parse_record(Task, parse_json(line, file=file, line=number), file=file, line=number)
        if seen.setdefault(task.id, number) != number:
            raise EvidenceError(f"id {task.id!r} stands in line {seen[task.id]} too", file=file, line=number)
        tasks.append(task)
    return tuple(tasks)


def read_tasks(folder: Path) -> tuple[Task, ...]:
    """All tasks of a staged data folder. Raises EvidenceError."""
    path = folder / TASKS_FILE
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"cannot be read: {error}", file=str(path)) from error
    return parse_tasks(text, file=str(path))


def prompt_key(prompt: str) -> str:
    """Digest by which two prompts count as the same.

    White space, case, compatibility forms (NFKC) and characters that nobody sees (Unicode category
    Cf: zero-width space, soft hyphen) do not tell them apart.
    """
    visible = "".join(c for c in unicodedata.normalize("NFKC", prompt) if unicodedata.category(c) != "Cf")
    return hashlib.sha256(" ".join(visible.casefold().split()).encode()).hexdigest()[:24]


def keys_digest(rows: Iterable[tuple[str, str]]) -> str:
    """sha256 (hex) over ``id NUL prompt key LF``: one name for a list of (id, prompt key)."""
    return hashlib.sha256("".join(f"{name}\0{key}\n" for name, key in rows).encode()).hexdigest()
