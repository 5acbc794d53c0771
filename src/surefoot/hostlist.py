"""Slurm's notation for lists of hosts: ``gpu[01-03,7],login`` and back. Pure.

`expand` and `compress` keep the order, as a list of ranks' nodes needs it; `folded` is for people.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from surefoot.errors import RequestError

MOST = 65_536
"""Hosts in one list; more is a slip of the pen (Slurm's own limit: MAX_RANGE)."""
_UNSPEAKABLE = re.compile(r"[\s,\[\]]")
_DIGITS = re.compile(r"(\d+)", re.ASCII)
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$", re.ASCII)
_LONGEST = 18
"""Digits of a number that is counted with: Slurm counts in 64 bits, and turns a longer one into another."""
_NUMBERED = re.compile(r"^(.*?)(\d+)$", re.ASCII | re.DOTALL)


def expand(text: str) -> list[str]:
    """Every host of a list, in its order, repeats kept. Raises RequestError.

    The first number of a range gives the width: ``[08-10]`` is 08, 09, 10. Of several brackets the
    last varies fastest, then the first, the second, …: Slurm's own order.
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
    _refuse_unspeakable(names)
    parts: list[tuple[str, list[str]]] = []  # prefix, ranges; a name without number has no ranges
    start = last = ""
    for name in names:
        match = _NUMBERED.match(name)
        if match is None:
            parts.append((name, []))
            continue
        prefix, number = match.groups()
        if len(number) > _LONGEST:
            parts.append((name, []))
            continue
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


def folded(hosts: Iterable[str]) -> str:
    """Each of `hosts` once, as short as Slurm can read it, in natural order (n2 before n10). Raises RequestError.

    Folds over several numbers: ``r[01-32]n[1-4]``. Slurm's own `scontrol show hostlistsorted` writes one
    item for each r, but reads this. It refuses what has a bracket and does not end with one, so
    ``n1-ib,n2-ib`` is written out.
    """
    return _folded(hosts, for_slurm=True)


def folded_names(names: Iterable[str]) -> str:
    """As `folded`, for names of other things: ``gpu[0-7].vbios``. `expand` reads it, Slurm does not."""
    return _folded(names, for_slurm=False)


def speakable(name: str) -> bool:
    """Whether a list can hold the name: it is not empty, and has no blank, comma or bracket."""
    return bool(name) and not _UNSPEAKABLE.search(name)


def pattern(name: str) -> tuple[str, ...]:
    """What stands between the numbers of a name: equal for names that differ in numbers alone."""
    return _pieces(name)[::2]


def _folded(given: Iterable[str], *, for_slurm: bool) -> str:
    names = set(given)
    _refuse_unspeakable(names)
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    items: list[tuple[str, str]] = []  # the first name of an item, for the order; the item
    for name in names:
        pieces = _pieces(name)
        numbers = pieces[1::2]
        if not numbers or max(map(len, numbers)) > _LONGEST or (for_slurm and pieces[-1]):
            items.append((name, name))
        else:
            groups.setdefault(pieces[::2], []).append(numbers)
    for literals, rows in groups.items():
        for box in _boxes(rows):
            first = _joined(literals, [_text(choice[0]) for choice in box])
            items.append((first, _item(literals, box, for_slurm=for_slurm)))
    return ",".join(item for _, item in sorted(items, key=lambda pair: natural(pair[0])))


def natural(name: str) -> tuple[str | int, ...]:
    """Key that sorts names as people count: n2, n10, n010."""
    key: list[str | int] = []
    for index, piece in enumerate(_pieces(name)):
        key += (int(piece), len(piece)) if index % 2 else (piece,)
    return tuple(key)


@lru_cache(maxsize=4096)
def _pieces(name: str) -> tuple[str, ...]:
    """Text, number, text, …: numbers stand at odd places, and the last is a text, which may be empty."""
    return tuple(_DIGITS.split(name))


_Number = tuple[int, int]
"""(width that it is filled to with zeros, value); width 0: it is not filled."""


_Box = tuple[tuple[_Number, ...], ...]
"""A product: a sorted choice for each place."""


def _boxes(rows: Sequence[tuple[str, ...]]) -> list[_Box]:
    """Disjoint products that make up exactly these rows of numbers."""
    columns = [_counted(column) for column in zip(*rows, strict=True)]
    lasts: dict[tuple[_Number, ...], list[_Number]] = {}
    for row in zip(*columns, strict=True):
        lasts.setdefault(row[:-1], []).append(row[-1])
    boxes: list[_Box] = [(*((number,) for number in rest), tuple(sorted(last))) for rest, last in lasts.items()]
    for place in reversed(range(len(columns) - 1)):
        alike: dict[_Box, list[_Number]] = {}
        for box in boxes:
            alike.setdefault(box[:place] + box[place + 1 :], []).extend(box[place])
        boxes = [(*rest[:place], tuple(sorted(choice)), *rest[place:]) for rest, choice in alike.items()]
    return boxes


def _counted(column: Sequence[str]) -> list[_Number]:
    """Numbers of one place. A number that is not filled counts on from the widest that is and that it exceeds:
    10 and 100 from 09 where there is an 09, else from 9.
    """
    filled = sorted(len(number) for number in set(column) if number[0] == "0" and len(number) > 1)
    return [(_width(number, filled), int(number)) for number in column]


def _width(number: str, filled: Sequence[int]) -> int:
    at = bisect.bisect_right(filled, len(number))
    return filled[at - 1] if at else 0


def _text(number: _Number) -> str:
    return str(number[1]).zfill(number[0])


def _item(literals: Sequence[str], box: _Box, *, for_slurm: bool) -> str:
    """A product. For Slurm what has a bracket also ends with one: ``r[1-2]n[3]``."""
    numbers = [_text(choice[0]) if len(choice) == 1 else _bracket(choice) for choice in box]
    if for_slurm and len(box[-1]) == 1 and any(len(choice) > 1 for choice in box):
        numbers[-1] = _bracket(box[-1])
    return _joined(literals, numbers)


def _bracket(choice: Sequence[_Number]) -> str:
    """``[1-3,7]`` of sorted numbers."""
    ranges: list[tuple[_Number, _Number]] = []
    for number in choice:
        if ranges and ranges[-1][1] == (number[0], number[1] - 1):
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return f"[{','.join(_text(a) if a == b else f'{_text(a)}-{_text(b)}' for a, b in ranges)}]"


def _joined(literals: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(literals, numbers, fillvalue="")))


def _refuse_unspeakable(names: Iterable[str]) -> None:
    for name in names:
        if not speakable(name):
            raise RequestError(f"{name!r} cannot be the name of a host")


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
    choices = [_numbers(ranges, text) for ranges in pieces[1::2]]
    if math.prod(map(len, choices)) > MOST:
        raise _wrong(text, f"more than {MOST} hosts")
    slowest_first = [*choices[-2::-1], *choices[-1:]]
    return [
        _joined(pieces[::2], [*reversed(numbers[:-1]), *numbers[-1:]]) for numbers in itertools.product(*slowest_first)
    ]


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
