"""Lists of numbers as Linux and Slurm write them: ``0-3,8``. CPUs, ranks. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable


def parse(text: str) -> set[int]:
    """The numbers of a list; empty for an empty text. Raises ValueError for anything else."""
    found: set[int] = set()
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"{text!r} is no list of numbers such as 0-3,8")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def listed(numbers: Iterable[int]) -> str:
    """The list that `parse` turns into these numbers."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
