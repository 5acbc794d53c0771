"""Slurm's notation for lists of hosts: ``gpu[01-03,7],login`` and back. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from surefoot.errors import RequestError

MOST = 65_536
"""Hosts in one list; more is a slip of the pen (Slurm's own limit: MAX_RANGE)."""
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$", re.ASCII)
_NUMBERED = re.compile(r"^(.*?)(\d+)$", re.ASCII | re.DOTALL)


def expand(text: str) -> list[str]:
    """Every host of a list, in its order, repeats kept. Raises RequestError.

    The first number of a range gives the width: ``[08-10]`` is 08, 09, 10. With several brackets
    the last varies fastest, as in Slurm.
    """
    hosts: list[str] = []
    for item in _items(text):
        hosts += _expand_item(item, text)
        if len(hosts) > MOST:
            raise _wrong(text, f"more than {MOST} hosts")
    return hosts


def compress(hosts: Iterable[str]) -> str:
    """The shortest list that `expand` turns into exactly `hosts`, without reordering. Raises RequestError."""
    names = list(hosts)
    for name in names:
        if not name or re.search(r"[\s,\[\]]", name):
            raise RequestError(f"{name!r} cannot be the name of a host")
    parts: list[tuple[str, list[str]]] = []  # prefix, ranges; a name without number has no ranges
    start = last = ""
    for name in names:
        match = _NUMBERED.match(name)
        if match is None:
            parts.append((name, []))
            continue
        prefix, number = match.groups()
        if parts and parts[-1][1] and parts[-1][0] == prefix:
            ranges = parts[-1][1]
            if number == str(int(last) + 1).zfill(len(start)):
                ranges[-1] = f"{start}-{number}"
            else:
                ranges.append(number)
                start = number
        else:
            parts.append((prefix, [number]))
            start = number
        last = number
    return ",".join(_written(prefix, ranges) for prefix, ranges in parts)


def _written(prefix: str, ranges: list[str]) -> str:
    if not ranges:
        return prefix
    if len(ranges) == 1 and "-" not in ranges[0]:
        return prefix + ranges[0]
    return f"{prefix}[{','.join(ranges)}]"


def _items(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth, item = 0, ""
    for char in text.strip():
        if char.isspace():
            raise _wrong(text, "a blank in it")
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise _wrong(text, "brackets that don't match")
        if char == "," and depth == 0:
            if not item:
                raise _wrong(text, "an empty name")
            yield item
            item = ""
        else:
            item += char
    if depth:
        raise _wrong(text, "a bracket that is not closed")
    if item:
        yield item
    elif text.strip():
        raise _wrong(text, "an empty name")


def _expand_item(item: str, text: str) -> list[str]:
    pieces = re.split(r"\[(.*?)\]", item)  # literal, ranges, literal, …
    choices = [_numbers(piece, text) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > MOST:
        raise _wrong(text, f"more than {MOST} hosts")
    return ["".join(combination) for combination in itertools.product(*choices)]


def _numbers(ranges: str, text: str) -> list[str]:
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.match(part)
        if match is None:
            raise _wrong(text, f"{part!r} is no number or range")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise _wrong(text, f"{part!r} runs backwards")
        if int(high) - int(low) >= MOST:
            raise _wrong(text, f"more than {MOST} hosts")
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return found


def _wrong(text: str, why: str) -> RequestError:
    return RequestError(
        f"hostlist {text[:120]!r}: {why}",
        next_action="write it as Slurm does: gpu[01-04,7],login (`scontrol show hostnames LIST` shows what it means)",
    )
