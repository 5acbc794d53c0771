"""Captures of nccl-tests, from files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from surefoot.benchmarks.nccl_compare import Capture
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_tests import NcclTest
from surefoot.benchmarks.nccl_tests_json import read_json
from surefoot.benchmarks.nccl_tests_text import read_text
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
