"""Captures of nccl-tests, from files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import surefoot
from surefoot.benchmarks.collective_sizes import busbw_factor
from surefoot.benchmarks.nccl_compare import Capture
from surefoot.benchmarks.nccl_curve import points
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_tests import PLACEMENTS, NcclTest, factors
from surefoot.benchmarks.nccl_tests_json import read_json
from surefoot.benchmarks.nccl_tests_text import read_text
from surefoot.benchmarks.verdict_rates import Recorded, Sweep
from surefoot.errors import EvidenceError, RequestError
from surefoot.units import format_size

LARGEST_FILE = 512 * 1024**2
"""Bytes. A log of a thousand nodes with NCCL_DEBUG=INFO is a tenth of it."""


def text_of(file: str) -> str:
    """What a file holds; ``-``: what comes in on standard input. Raises EvidenceError for what is no capture, RequestError for what cannot be opened."""
    data = sys.stdin.buffer.read(LARGEST_FILE + 1) if file == "-" else _bytes(Path(file))
    if len(data) > LARGEST_FILE:
        raise EvidenceError(f"is larger than {format_size(LARGEST_FILE)}", file=file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EvidenceError(f"is no text: byte {data[error.start]:#04x}", file=file, line=line) from None
    return text


def tests_in(file: str) -> Sequence[NcclTest]:
    """Raises EvidenceError for what is no whole capture, RequestError for what cannot be opened."""
    return tests_of(text_of(file), file)


def tests_of(text: str, file: str) -> Sequence[NcclTest]:
    """Raises EvidenceError for what is no whole capture."""
    return [read_json(text, file)] if text.lstrip()[:1] == "{" else read_text(text, file)


def captures_in(file: str) -> list[Capture]:
    """The tests of a file, each with NCCL's log where the file has one of it alone. Raises as `tests_in` does."""
    text = text_of(file)
    tests = tests_of(text, file)
    log = read_log({file: text}) if len(tests) == 1 and "NCCL INFO" in text else None
    return [Capture(test, log) for test in tests]


def _bytes(path: Path) -> bytes:
    """Of a regular file: one that is a pipe would wait for a writer."""
    try:
        if not path.is_file() and path.exists():
            raise RequestError(f"{path}: is no regular file", next_action="name one, or - for standard input")
        with path.open("rb") as opened:
            return opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def shipped_sweeps() -> list[Recorded]:
    """Healthy sweeps of two H200 that ship with Surefoot."""
    said = json.loads((Path(surefoot.__file__).parent / "shipped" / "captures" / "two-h200.json").read_text())
    found: dict[str, list[Sweep]] = {}
    for one in said["captures"]:
        pairs = zip(one["out_of_place_us"], one["in_place_us"], strict=True)
        found.setdefault(one["collective"], []).append(
            {
                (one["first"] << doubled, placement): time
                for doubled, pair in enumerate(pairs)
                for placement, time in zip(PLACEMENTS, pair, strict=True)
            }
        )
    return [Recorded.of(sweeps, busbw_factor(name, said["world_size"])) for name, sweeps in found.items()]


def recorded_in(files: Sequence[str]) -> list[Recorded]:
    """Healthy sweeps of captures, by collective. Raises as `tests_in` does, and RequestError for too few of one."""
    found: dict[tuple[str, int], list[Sweep]] = {}
    for file in files:
        for test in tests_in(file):
            found.setdefault((test.collective or "?", test.world_size), []).append(points(test))
    try:
        return [Recorded.of(sweeps, min(factors(name, ranks))) for (name, ranks), sweeps in found.items()]
    except ValueError as error:
        raise RequestError(f"--captures: {error}") from None
