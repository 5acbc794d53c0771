"""One row of nccl-tests' table: its words by the header's columns, and its own arithmetic. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from surefoot.benchmarks.nccl_tests import Row, Spread, Timing, factors, unfit

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")
_STAMP = re.compile(r"(?:\d{4}-\d\d-\d\d(?:[T_]\d\d:\d\d:\d\d\S*)?|\d\d:\d\d:\d\d\S*)$")
"""What ``-S`` puts at the end of a row."""
_TIME = ("time", "cputime")
"""The column's name, and that with ``-C``."""
_BEFORE_REDOP = 3
"""Size, count and type."""
_HALF = 0.0051
"""Half of the last printed digit of a bandwidth, GB/s, and a little for binary fractions."""
_HEADS = re.compile(r"(size count|bytes N) type( redop| op)?( root)?$")
_HALVES = re.compile(r"(?:cpu)?time algbw busbw (?:wrong|error|res)( i_min i_max i_p99 i_cv%)?$")


def columns_of(header: str) -> tuple[str, ...]:
    """What the header's line names. Raises ValueError where no version of nccl-tests prints such a one."""
    names = [name for name in header.replace("#", " ").split() if name.lower() != "timestamp"]
    starts = [index for index, name in enumerate(names) if name in _TIME]
    if len(starts) != 2:
        raise ValueError(f"the header has {len(starts)} columns of times, not two")
    head, first, second = (
        " ".join(part) for part in (names[: starts[0]], names[starts[0] : starts[1]], names[starts[1] :])
    )
    if first != second or _HALVES.match(first) is None or _HEADS.match(head) is None:
        raise ValueError("no version of nccl-tests prints such a header")
    return tuple(names)


class Table(NamedTuple):
    """What a row is read by."""

    columns: tuple[str, ...]
    """Of `columns_of`: ``#wrong`` without its mark, and without ``timestamp``."""
    collective: str | None
    world_size: int
    old: bool
    """Before 2.17.4, which prints its version. Some of those took another size, or put one bandwidth for both."""


def row_of(words: Sequence[str], table: Table, line: int) -> Row | None:
    """The row that these words make; None while some are to come. Raises ValueError where they make none."""
    left = [word for word in words if not _STAMP.match(word)]
    given: list[str | None] = []
    for column in table.columns:
        if not left:
            return None
        blank = column in ("redop", "op") and len(given) == _BEFORE_REDOP and NUMBER.match(left[0]) is not None
        given.append(None if blank else left.pop(0))
    if left:
        raise ValueError("it has more columns than the header")
    starts = [index for index, name in enumerate(table.columns) if name in _TIME]
    head = dict(zip(table.columns[: starts[0]], given, strict=False))
    size, root = int(head.get("size") or head.get("bytes") or ""), head.get("root")
    parts = ((starts[0], starts[1]), (starts[1], len(table.columns)))
    first, second = (
        _timing(
            dict(zip(table.columns[i:j], (word or "" for word in given[i:j]), strict=True)),
            size,
            table,
            millis="bytes" in head,
        )
        for i, j in parts
    )
    return Row(
        size_bytes=size, count=int(head.get("count") or head.get("N") or ""), datatype=head["type"] or "",
        redop=head.get("redop") or head.get("op"), root=None if root is None else int(root),
        out_of_place=first, in_place=second, line=line,
    )  # fmt: skip


def _timing(said: Mapping[str, str], size: int, table: Table, *, millis: bool) -> Timing:
    unit = 1000.0 if millis else 1.0  # 1.x printed milliseconds, under a header that says "bytes"
    time = next(said[name] for name in _TIME if name in said)
    time_us = float(time) * unit
    half_us = 0.5 * 10.0 ** -len(time.partition(".")[2]) * unit
    algbw, busbw = float(said["algbw"]), float(said["busbw"])
    if not _fits((size / 1e3 / (time_us + half_us), size / 1e3 / max(time_us - half_us, 1e-9)), algbw, busbw, table):
        raise unfit(size, time_us, algbw, busbw)
    wrong = next(said[name] for name in ("wrong", "error", "res") if name in said)
    spread = None
    if "i_min" in said:
        least, most, p99, cv = (float(said[name]) for name in ("i_min", "i_max", "i_p99", "i_cv%"))
        spread = Spread(min_us=least, max_us=most, p99_us=p99, cv_percent=cv)
    return Timing(
        time_us=time_us,
        algbw_gb_s=algbw,
        busbw_gb_s=busbw,
        wrong=None if wrong == "N/A" else float(wrong),
        spread=spread,
    )


def _fits(span: tuple[float, float], algbw: float, busbw: float, table: Table) -> bool:
    """Whether both bandwidths follow from size and time, which give an algbw within `span`, as far as printed figures tell."""
    on_bus, n = factors(table.collective, table.world_size), table.world_size
    scales = {1.0, *on_bus, float(n), float(n - 1)} if table.old else {1.0}
    on_bus = {*on_bus, 1.0} if table.old else on_bus
    return any(span[0] * scale - _HALF <= algbw <= span[1] * scale + _HALF for scale in scales) and any(
        abs(busbw - algbw * factor) <= _HALF * (1 + factor) for factor in on_bus
    )
