"""nccl-tests' table as it is printed, version 1.x to 2.19: from the text to `NcclTest`. Pure.

::

    # nThread 1 nGpus 2 minBytes 8 maxBytes 4294967296 step: 2(factor) warmup iters: 3 iters: 10 …
    #  Rank  0 Group  0 Pid   1344 on         vm device  0 [0000:00:06] NVIDIA H200
    #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
               8             2     float     sum      -1    27.54    0.00    0.00       0    32.34    0.00    0.00       0
    # Avg bus bandwidth    : 98.3937

Columns are taken from the header, as they differ between versions and collectives; a blank redop is told by
a number in its place. NCCL's lines fall into the middle of rows (``-1vm:1344:1344 [0] NCCL INFO …``): what
stands before one is kept, and the row goes on in the next line. launchers' labels are taken off.
Every row must fit its own arithmetic, and all of them the footer (`nccl_tests.complete`): a parser that lost or
invented one does not come to an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from pydantic import ValidationError

from surefoot.benchmarks.nccl_tests import NcclTest, Options, Row, TestDevice, complete, named_in
from surefoot.benchmarks.nccl_tests_row import NUMBER, Table, columns_of, row_of
from surefoot.errors import EvidenceError

_LABEL = re.compile(
    r"(?: *(?P<srun>\d+): |\[\d+,(?P<mpi>\d+)\](?:<std\w+>)?:? ?|<std\w+>: ?|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4}(?:<std\w+>: ?| ?))+"
)
_NCCL = re.compile(
    r"(?:\[[\d: .-]+\] )?(?P<host>[A-Za-z0-9._-]{1,300}):\d{1,10}:\d{1,10} \[-?\d{1,6}\] (?:[\w./+-]+:\d+(?: \([^()]*\))? )?NCCL (?:INFO|WARN|TRACE|VERSION|CALL)"
)
_BANNER = re.compile(
    r"#? *nThread +(\d+) +nGpus +(\d+) +minBytes +(\d+) +maxBytes +(\d+) +step: *(\d+(?:\.\d+)?) *\((\w+)\)(.*)$"
)
_FIGURE = re.compile(r"(\w[\w ]{0,30}?): *(\d+)")
"""Of the banner's rest. Bounded, so that one without a colon is not looked through from each of its letters."""
_DEVICE = re.compile(
    r"#? +Rank +(\d+) +(?:Group +(\d+) +)?Pid +(\d+) on +(\S+) device +(\d+) +\[((?:0x)?[0-9a-fA-F:.]+)\] +(.*\S)"
)
_VERSION = re.compile(r"# nccl-tests version (\S+)(?: nccl-headers=\S+ nccl-library=(\S+))?")
_STARTS = re.compile(r"# Collective test starting: (\w+?)(?:_perf)?\s*$")
_REDUCED = re.compile(r"#? *Reducing maxBytes to (\d+) due to memory limitation")
_BOUNDS = re.compile(r"#? *Out of bounds values : (\d+) (OK|FAILED)")
_AVERAGE = re.compile(r"#? *Avg bus bandwidth +: (\S+)")
_HEADER = re.compile(r"# +(?:size|bytes) +(?:count|N) +type ")
_CRASH = re.compile(
    r"Test (?:NCCL |CUDA )?failure|Test failure|CUDA error|NCCL error|Segmentation fault|Killed|Invalid number of GPUs"
)


@dataclass(frozen=True, slots=True)
class _Said:
    """What stands in a line besides its label and NCCL's."""

    number: int
    text: str
    cut: bool
    """NCCL's line took the rest."""


@dataclass
class _Open:
    """A test that has not come to its footer."""

    line: int
    collective: str | None = None
    version: str | None = None
    nccl: str | None = None
    options: Options | None = None
    devices: list[TestDevice] = field(default_factory=list)
    reduced_to: int | None = None
    columns: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    pending_line: int = 0
    out_of_bounds: int | None = None


def read_text(text: str, file: str) -> tuple[NcclTest, ...]:
    """All tests in what nccl-tests printed. Raises EvidenceError with file and line for anything less than whole ones."""
    labels: dict[str, list[_Said]] = {}
    hosts = {
        match.group(4).split(".")[0]
        for match in map(_DEVICE.match, (_label(row)[1] for row in text.splitlines()))
        if match
    }
    for number, row in enumerate(text.split("\n"), 1):
        label, rest = _label(row.rstrip("\r"))
        labels.setdefault(label, []).append(_without_nccl(rest, number, hosts, file))
    found = [test for lines in labels.values() for test in _tests(lines, file)]
    if not found:
        raise EvidenceError("holds no nccl-tests output: no line begins with nThread", file=file)
    return tuple(sorted(found, key=lambda test: test.line))


def _label(row: str) -> tuple[str, str]:
    match = _LABEL.match(row)
    if match is None:
        return "", row
    return match["srun"] or match["mpi"] or "", row[match.end() :]


def _without_nccl(text: str, number: int, hosts: set[str], file: str) -> _Said:
    match = _NCCL.search(text)
    if match is None:
        return _Said(number, text, cut=False)
    before, host = text[: match.start()], match["host"]
    if not before.strip() and (host in hosts or not host[0].isdigit()) and host[0] != "-":
        return _Said(number, "", cut=True)
    # The row's last figure and the host's name run together: only the names of the hosts can part them.
    ends = [known for known in hosts if host.endswith(known)]
    if not ends:
        if not before.strip():
            return _Said(number, "", cut=True)  # a host that has no device here
        raise EvidenceError(
            "NCCL's line cut a row, and its host is none of the devices'", file=file, line=number, text=text
        )
    glued = host[: len(host) - len(max(ends, key=len))]
    return _Said(number, before + glued, cut=True)


def _tests(lines: list[_Said], file: str) -> Iterator[NcclTest]:
    test = _Open(1)
    for said in lines:
        try:
            whole = _take(test, said, file)
        except (ValueError, ArithmeticError) as error:  # a number of hundreds of digits is no float
            problem = f"is not what nccl-tests prints: {_told(error)}"
            raise EvidenceError(problem, file=file, line=said.number, text=said.text) from None
        if whole is not None:
            yield whole
            test = _Open(said.number + 1)
    if test.options is not None:
        raise _unfinished(test, file, "ends before the footer: it was cut off, killed or crashed", None)


def _take(test: _Open, said: _Said, file: str) -> NcclTest | None:
    """The test, with its last line. Raises ValueError for a line that makes no sense, EvidenceError where its place doesn't."""
    if test.options is not None and _BANNER.match(said.text):
        raise _unfinished(test, file, "another test begins before its footer", said)
    if _heading(test, said) or test.options is None:
        return None
    average = _AVERAGE.match(said.text)
    if average is not None:
        return _closed(test, average[1], said, file)
    if test.columns:
        _table(test, said, file)
    elif _CRASH.search(said.text):
        raise _unfinished(test, file, "the test failed before its first row", said)
    return None


def _told(error: ValueError | ArithmeticError) -> str:
    """In one line; a record's own error has several."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{first['loc'][0] if first['loc'] else 'it'}: {first['msg']}"


def _heading(test: _Open, said: _Said) -> bool:
    """Take what stands around the table. Raises ValueError where it makes no sense."""
    if match := _BANNER.match(said.text):
        test.options, test.line = _options(match), said.number
    elif match := _VERSION.match(said.text):
        test.version, test.nccl = match[1], match[2]
    elif match := _STARTS.match(said.text):
        test.collective = match[1]
    elif match := _REDUCED.match(said.text):
        test.reduced_to = int(match[1])
    elif match := _BOUNDS.match(said.text):
        test.out_of_bounds = int(match[1])
        if (test.out_of_bounds == 0) != (match[2] == "OK"):
            raise ValueError(f"{match[1]} values out of bounds are not {match[2]}")
    elif match := _DEVICE.match(said.text):
        rank, group, pid, host, device, pci, name = match.groups()
        test.devices.append(
            TestDevice(
                rank=int(rank),
                group=int(group or 0),
                pid=int(pid),
                host=host,
                device=int(device),
                pci=pci.lower(),
                name=name,
            )
        )
    elif _HEADER.match(said.text):
        test.columns = columns_of(said.text)
    else:
        return False
    return True


def _options(match: re.Match[str]) -> Options:
    threads, gpus, least, most, step, kind, rest = match.groups()
    figures = dict(_FIGURE.findall(rest))
    factor = float(step) if kind == "factor" else None
    return Options(
        threads=int(threads), gpus=int(gpus), min_bytes=int(least), max_bytes=int(most), factor=factor,
        step_bytes=None if factor else int(float(step)), warmup=int(figures.get("warmup iters", 0)),
        iterations=int(figures.get("iters", 1)), validated=figures.get("validation", "0") != "0",
        graph=int(figures.get("graph", 0)),
    )  # fmt: skip


def _table(test: _Open, said: _Said, file: str) -> None:
    """Take a row, or a part of one."""
    tokens = said.text.split()
    if not tokens or said.text.lstrip().startswith("#"):
        return
    if _CRASH.search(said.text):
        raise _unfinished(test, file, "the test failed", said)
    first = tokens[0]
    if not (NUMBER.match(first) or test.pending):
        return  # words of the program or its launcher; a row that they destroyed is missed by `complete`
    if not test.pending:
        test.pending_line = said.number
    test.pending += tokens
    table = Table(test.columns, test.collective, max(1, len(test.devices)), old=test.version is None)
    try:
        taken = row_of(test.pending, table, test.pending_line)
    except (ValueError, ArithmeticError) as error:
        text = " ".join(test.pending)
        raise EvidenceError(f"is no row: {_told(error)}", file=file, line=test.pending_line, text=text) from None
    if taken is not None:
        test.rows.append(taken)
        test.pending = []
    elif not said.cut:
        # Only NCCL's lines cut rows; the part after one of them ends with its own line feed.
        text = " ".join(test.pending)
        raise EvidenceError("is no whole row of this table", file=file, line=test.pending_line, text=text)


def _closed(test: _Open, average: str, said: _Said, file: str) -> NcclTest:
    if test.pending:
        raise EvidenceError(
            "a row was cut off before the footer", file=file, line=test.pending_line, text=" ".join(test.pending)
        )
    if not NUMBER.match(average) or test.out_of_bounds is None or test.options is None:
        raise EvidenceError("the footer is not whole", file=file, line=said.number, text=said.text)
    if not test.devices:
        raise EvidenceError("names no device that took part", file=file, line=test.line)
    return complete(
        NcclTest(
            file=file, line=test.line, collective=test.collective or named_in(PurePath(file).name), version=test.version, nccl=test.nccl,
            options=test.options, world_size=len(test.devices), devices=tuple(sorted(test.devices, key=lambda device: device.rank)),
            reduced_to=test.reduced_to, rows=tuple(test.rows), out_of_bounds=test.out_of_bounds, average_gb_s=float(average),
        )
    )  # fmt: skip


def _unfinished(test: _Open, file: str, problem: str, said: _Said | None) -> EvidenceError:
    rows = f"{len(test.rows)} rows" + (f", the last of {test.rows[-1].size_bytes} bytes" if test.rows else "")
    where = said.number if said is not None else (test.pending_line or (test.rows[-1].line if test.rows else test.line))
    return EvidenceError(f"{problem} ({rows})", file=file, line=where, text=said.text if said is not None else "")
