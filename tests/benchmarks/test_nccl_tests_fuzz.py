"""125,000 damaged captures of nccl-tests: each is read or refused, without a traceback, and no row is made up."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nccl_tests_written import GOLDEN, Printed
from surefoot.benchmarks.nccl_tests import NcclTest
from surefoot.benchmarks.nccl_tests_json import read_json
from surefoot.benchmarks.nccl_tests_text import read_text
from surefoot.errors import EvidenceError

pytestmark = pytest.mark.slow

STYLES = ("1.x", "2.0", "2.13", "2.19")
COLLECTIVES = ("all_reduce", "all_gather", "alltoall", "broadcast", "sendrecv")
SHORT = [
    Printed(style=style, collective=name, world=4, hosts=("n1", "n2"), spread=spread).text()
    for style in STYLES
    for name in COLLECTIVES
    for spread in ((False, True) if style == "2.19" else (False,))
]
LOG = "n1:4000:4001 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
PIECES = (
    "0",
    "9",
    "-",
    "+",
    ".",
    "e",
    "nan",
    "inf",
    "N/A",
    " ",
    "\n",
    "\t",
    "#",
    "\0",
    "é",
    "1e999",
    "9" * 40,
    LOG,
    "0: ",
)
Damage = Callable[[random.Random, str], str]


def _spot(chance: random.Random, text: str) -> int:
    return chance.randrange(len(text) + 1)


def _cut(chance: random.Random, text: str) -> str:
    return text[: _spot(chance, text)]


def _removed(chance: random.Random, text: str) -> str:
    start = _spot(chance, text)
    return text[:start] + text[start + chance.choice((1, 1, 1, 2, 5, 40)) :]


def _inserted(chance: random.Random, text: str) -> str:
    start = _spot(chance, text)
    return text[:start] + chance.choice(PIECES) + text[start:]


def _replaced(chance: random.Random, text: str) -> str:
    start = _spot(chance, text)
    return text[:start] + chance.choice("0123456789 .-ex#\n") + text[start + 1 :]


def _lines(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    act = chance.choice("dscm")
    if act == "d":
        del lines[one]
    elif act == "s":
        lines[one], lines[two] = lines[two], lines[one]
    elif act == "c":
        lines.insert(two, lines[one])
    else:
        lines[one] += lines[two]
        del lines[two]
    return "\n".join(lines)


def _tokens(chance: random.Random, text: str) -> str:
    words = text.split(" ")
    one, two = chance.randrange(len(words)), chance.randrange(len(words))
    if chance.random() < 0.5:
        words[one], words[two] = words[two], words[one]
    else:
        words[one] = chance.choice((words[two], *PIECES))
    return " ".join(words)


def _mixed(chance: random.Random, text: str) -> str:
    other = chance.choice(SHORT)
    return text[: _spot(chance, text)] + other[_spot(chance, other) :]


DAMAGES: tuple[Damage, ...] = (_cut, _removed, _inserted, _replaced, _lines, _tokens, _mixed)


def damaged(texts: list[str], count: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            text = chance.choice(DAMAGES)(chance, text)
        yield text


def made_up(tests: tuple[NcclTest, ...], text: str) -> list[str]:
    """Rows that do not stand in the text: where they say that they are, with their size and time."""
    lines = text.split("\n")
    found = []
    for test in tests:
        for row in test.rows:
            words = " ".join(lines[row.line - 1 : row.line + 3]).replace(LOG.strip(), " ").split()
            figures = [_number(word) for word in words]
            times = {row.out_of_place.time_us, row.in_place.time_us}
            printed = {value * unit for value in figures if value is not None for unit in (1.0, 1000.0)}
            if row.size_bytes not in figures or not times <= printed:
                found.append(f"line {row.line}: {row}")
    return found


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def outcomes(read: Callable[[str], tuple[NcclTest, ...]], texts: Iterator[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        try:
            tests = read(text)
        except EvidenceError as refusal:
            counts["refused" if refusal.file == "all_reduce.log" else "refused without the file's name"] += 1
            continue
        counts["read"] += 1
        assert made_up(tests, text) == [], text
    assert set(counts) <= {"read", "refused"}
    return counts


def test_a_row_that_is_made_up_is_seen() -> None:
    tests = read_text(SHORT[0], "all_reduce.log")
    assert made_up(tests, SHORT[0]) == []
    for made in (
        SHORT[0].replace("1024", "1025"),
        SHORT[0].replace("0.02302", "0.02303"),
        SHORT[0].replace("\n", "\n\n\n\n\n\n"),
    ):
        assert made != SHORT[0]
        assert made_up(tests, made) != []


def test_95000_damaged_tables_of_all_versions() -> None:
    counts = outcomes(lambda text: read_text(text, "all_reduce.log"), damaged(SHORT, 95_000, seed=1))
    assert counts.total() == 95_000
    assert counts["refused"] > 40_000
    assert counts["read"] > 1_000  # damage that touches no figure


def test_5000_damaged_captures_whose_rows_nccls_lines_cut() -> None:
    whole = (GOLDEN / "healthy-1-all_reduce.log").read_text().split("\n")
    short = "\n".join([*whole[:12], *(line for line in whole[12:] if "NCCL INFO" not in line or line.startswith(" "))])
    counts = outcomes(lambda text: read_text(text, "all_reduce.log"), damaged([short], 5_000, seed=2))
    assert counts["refused"] > 1_000


def test_rows_of_a_damaged_table_are_those_of_the_whole_one_or_refused() -> None:
    """A line lost, twice or elsewhere is never made good for."""
    for text in SHORT:
        lines = text.split("\n")
        rows = [number for number, line in enumerate(lines) if line[:1] == " " and line.split()[0].isdigit()]
        assert len(rows) == 4
        for number in rows:
            for other in ([*lines[:number], *lines[number + 1 :]], [*lines[:number], lines[number], *lines[number:]]):
                with pytest.raises(EvidenceError):
                    read_text("\n".join(other), "all_reduce.log")


def _values(said: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(said, dict):
        for key, value in said.items():
            yield from _values(value, (*path, key))
    elif isinstance(said, list):
        for index, value in enumerate(said):
            yield from _values(value, (*path, index))
    yield path


def _put(said: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        said = said[key]
    if value is KeyError:
        del said[path[-1]]
    else:
        said[path[-1]] = value


def test_25000_damaged_json_files() -> None:
    chance = random.Random(3)
    said = json.loads((GOLDEN / "healthy-1-all_reduce.json").read_text())
    said["env"] = []
    said["results"] = said["results"][:4]
    for row in said["results"]:
        row["out_of_place_per_iter"].pop("times_us", None)
        row["in_place_per_iter"].pop("times_us", None)
    said["config"]["maximum_bytes"] = 64
    bus = [row[place]["bus_bw"] for row in said["results"] for place in ("out_of_place", "in_place")]
    said["average_bus_bandwidth"]["bandwidth"] = sum(bus) / len(bus)
    text = json.dumps(said)
    assert len(read_json(text, "all_reduce.json").rows) == 4
    paths = [path for path in _values(said) if path and path[0] not in ("env", "args")]
    values = (KeyError, None, "", "x", -1, 0, 1e308, 10**30, [], {}, True, "nan", [[]], {"a": 1})
    counts: Counter[str] = Counter()
    for _ in range(25_000):
        if chance.random() < 0.3:
            other = chance.choice(DAMAGES)(chance, text)
        else:
            changed = json.loads(text)
            _put(changed, chance.choice(paths), chance.choice(values))
            other = json.dumps(changed)
        try:
            test = read_json(other, "all_reduce.json")
        except EvidenceError:
            counts["refused"] += 1
            continue
        counts["read"] += 1
        assert [row.size_bytes for row in test.rows] == [8, 16, 32, 64], other
    assert counts["refused"] > 10_000
    assert counts["read"] > 1_000
