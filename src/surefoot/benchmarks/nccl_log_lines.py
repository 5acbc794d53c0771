"""Lines of NCCL's log (``NCCL_DEBUG``), each with the process that wrote it. Pure.

::

    vm:657:679 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
    host:process:thread [device] NCCL INFO message

    [2025-11-30 10:00:00] n1:7:9 [0] transport/net_ib.cc:818 NCCL WARN message    (2.26 and later: with the time)

Ranks of a host share a file, so lines of many processes stand between each other, and between what
the program prints; srun, mpirun, torchrun and loggers set prefixes before them. A program that has
written half a line when NCCL writes leaves ``  0.05vm:657:…``: whose line that is, only the lines that
begin with their host can say. NCCL cuts the host's name at its first dot.

What was torn is never guessed at: see `Line.whole`, and `pieces` for what has no head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from surefoot.errors import EvidenceError

_MARK = re.compile(r"NCCL (INFO|WARN) ")
_LONGEST_HEAD = 640
"""Characters before a mark that can be its head: a host of 255, two numbers, a device, a source file."""
_HEAD = re.compile(
    r"(?P<host>[A-Za-z0-9._-]{1,255}):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) \[(?P<device>-?\d{1,6})\] "
    r"(?P<source>[\w./+-]+:\d+(?: \([^()]*\))? )?$"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PREFIX = re.compile(
    r"(?:"
    r"\d+: *"  # srun --label
    r"|\[[^\[\]]*\](?:<std(?:out|err)>)?:? ?"  # mpirun --tag-output, torchrun, a time in brackets
    r"|<std(?:out|err)>:"
    r"|\([^()]*\) "  # Ray
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4} ?"  # mpirun --timestamp-output
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? "
    r"|[\w./-]+ +\| "  # compose
    r")+"
)
_CONNECTS = re.compile(r"(?:Channel|CollNet|Coll) \d|\bvia (?:P2P|SHM|NET|COLLNET)\b|\] -> \d+\[")
"""What only a line about a connection has."""


class Process(NamedTuple):
    """Who wrote a line: the host's name up to its first dot, and the process there."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Line:
    """One message of NCCL."""

    file: str
    number: int
    """In the file, from 1; lines end with a line feed."""
    text: str
    """The whole row as it stands in the file."""
    process: Process
    thread: int
    device: int
    """CUDA device that the thread had set, not always the communicator's."""
    message: str
    warns: bool = False
    source: str = ""
    """Of a warning: NCCL's file and line."""
    whole: bool = True
    """Whether it ends with its row, and that with a line feed, and no other line's head stands in it."""

    def wrong(self, problem: str) -> EvidenceError:
        """The error that this line is not what it claims to be."""
        return EvidenceError(problem, file=self.file, line=self.number, text=self.text)

    @property
    def connects(self) -> bool:
        """Whether it tells of a connection, or of a channel that one may belong to."""
        message = self.message
        likely = "Channel" in message or " via " in message or "] -> " in message or message.startswith("Coll")
        return likely and _CONNECTS.search(message) is not None


@dataclass(frozen=True, slots=True)
class LogLines:
    """What was found in the files."""

    lines: tuple[Line, ...]
    cut: tuple[str, ...]
    """Files that end in the middle of one of NCCL's lines: what came after is not there."""


@dataclass(slots=True)
class _Found:
    """A mark in a row, before it is known whose line it is."""

    file: str
    number: int
    row: str
    run: str
    """What stands where the host's name should, perhaps with something glued to its front."""
    begins: bool
    """Whether only a known prefix stands before it: then it is the host's name."""
    pid: int
    thread: int
    device: int
    source: str
    warns: bool
    message: str
    whole: bool


@dataclass(slots=True)
class _Reader:
    """Reads all files before it says whose line each is."""

    found: list[_Found] = field(default_factory=list)
    hosts: dict[int, set[str]] = field(default_factory=dict)
    """Process id → names that lines begin with."""
    cut: list[str] = field(default_factory=list)

    def read(self, text: str, file: str) -> None:
        rows = text.split("\n")
        for number, row in enumerate(rows, 1):
            if "NCCL " not in row:
                if " via " in row and _CONNECTS.search(row) and _is_piece(row):
                    raise EvidenceError("is a piece of a line about a connection", file=file, line=number, text=row)
                continue
            self._row(file, number, row, last=number == len(rows))

    def _row(self, file: str, number: int, raw: str, *, last: bool) -> None:
        row = _COLOUR.sub("", raw).rstrip("\r") if "\x1b" in raw or "\r" in raw else raw
        marks = list(_MARK.finditer(row))
        if last and marks and row:
            self.cut.append(file)
        if len(marks) > 1 and _CONNECTS.search(row):
            raise EvidenceError("tells of a connection and is torn: two lines in one", file=file, line=number, text=raw)
        begin = 0
        heads = []
        for mark in marks:
            window = max(begin, mark.start() - _LONGEST_HEAD)
            head = _HEAD.search(row[window : mark.start()])
            heads.append((mark, head, window))
            begin = mark.end()
        for position, (mark, head, window) in enumerate(heads):
            following = heads[position + 1] if position + 1 < len(heads) else None
            end = len(row)
            if following is not None:
                end = following[0].start() if following[1] is None else following[2] + following[1].start()
            message = row[mark.end() : end]
            if head is None:
                if _CONNECTS.search(message):
                    raise EvidenceError(
                        "tells of a connection, and its head does not say whose", file=file, line=number, text=raw
                    )
                continue
            start = window + head.start()
            before = row[row.rfind("\r", 0, start) + 1 : start] if position == 0 else "glued"
            begins = not before or _PREFIX.fullmatch(before) is not None
            found = _Found(
                file=file,
                number=number,
                row=raw,
                run=head["host"],
                begins=begins,
                pid=int(head["pid"]),
                thread=int(head["thread"]),
                device=int(head["device"]),
                source=(head["source"] or "").strip(),
                warns=mark[1] == "WARN",
                message=message,
                whole=following is None and not last,
            )
            self.found.append(found)
            if begins:
                self.hosts.setdefault(found.pid, set()).add(found.run)

    def lines(self) -> Iterator[Line]:
        for found in self.found:
            host = found.run if found.begins else self._host(found)
            yield Line(
                file=found.file,
                number=found.number,
                text=found.row,
                process=Process(host.split(".")[0], found.pid),
                thread=found.thread,
                device=found.device,
                message=found.message,
                warns=found.warns,
                source=found.source,
                whole=found.whole,
            )

    def _host(self, found: _Found) -> str:
        """Whose line it is that something stands before: one whose other lines begin with its name.

        Raises EvidenceError where there is none.
        """
        known = self.hosts.get(found.pid, set())
        if found.run in known:
            return found.run
        host = max((host for host in known if found.run.endswith(host)), key=len, default=None)
        if host is None:
            raise EvidenceError(
                "something unknown stands before the host's name, and no other line begins with that name",
                file=found.file,
                line=found.number,
                text=found.row,
            )
        return host


def _is_piece(row: str) -> bool:
    """Whether a row without a head is the rest of a torn line, not a sentence that speaks of one."""
    return re.search(r"\d\[\w+\](?: \[(?:send|receive)\])? via (?:P2P|SHM|NET|COLLNET)/", row) is not None


def read_lines(texts: Mapping[str, str]) -> LogLines:
    """Every line of NCCL in the files (name → content), in their order.

    Raises EvidenceError for a line that does not say whose it is.
    """
    reader = _Reader()
    for file, text in texts.items():
        reader.read(text, file)
    return LogLines(lines=tuple(reader.lines()), cut=tuple(reader.cut))
