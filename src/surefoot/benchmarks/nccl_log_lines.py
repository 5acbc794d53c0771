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
    r" *+\d++: *+"  # srun --label, as wide as the last rank's
    r"|\[[^\[\]]*\](?:<std(?:out|err)>)?:? ?"  # mpirun --tag-output, torchrun, a time in brackets
    r"|<std(?:out|err)>:"
    r"|\([^()]*\) "  # Ray
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \d{4} ?"  # mpirun --timestamp-output
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? "
    r"|[\w./-]+ +\| "  # compose
    r")++"  # possessive: which of them a blank belongs to must not be tried for all of them together
)
_CONNECTS = re.compile(r"(?:Channel|CollNet|Coll) \d|\bvia (?:P2P|SHM|NET|COLLNET)\b|\] -> \d+\[")
"""What only a line about a connection has."""
_PIECE = re.compile(r"\d\[\w+\](?: \[(?:send|receive)\])? via (?:P2P|SHM|NET|COLLNET)/")
"""The rest of a torn line, not a sentence that speaks of one."""
_ANY_HEAD = re.compile(r"[A-Za-z0-9]:\d+:\d+ |NCCL")
"""In the last row, that nothing ends: a line of NCCL was to stand there."""
_TOLD = re.compile(
    r"comm 0x|Init |Bootstrap|NET|Using network |GPU Direct|NCCL[ _]|Bytes -> Algo|channels|Connected all|NVLS comm|Pattern"
    r"|[Cc]onnect (?:to|returned)|socket(?:Poll|Start|Finalize)Connect"
)
"""What readers look for, and a little more: a log is mostly lines about proxies and the machine's topology."""


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
        return _CONNECTS.search(self.message) is not None


@dataclass(frozen=True, slots=True)
class LogLines:
    """What was found in the files."""

    lines: tuple[Line, ...]
    """Those that tell something, and the first of each process."""
    cut: tuple[str, ...]
    """Files that end in the middle of one of NCCL's lines: what came after is not there."""


@dataclass(slots=True)
class _Found:
    """A line before it is known whose it is."""

    file: str
    number: int
    row: str
    head: re.Match[str]
    begins: bool
    """Whether only a known prefix stands before it: then what stands there is the host's name, all of it."""
    warns: bool
    message: str
    whole: bool

    @property
    def pid(self) -> int:
        return int(self.head["pid"])

    @property
    def name(self) -> str:
        """What stands where the host's name should, perhaps with something glued to its front."""
        return self.head["host"]

    def wrong(self, problem: str) -> EvidenceError:
        return EvidenceError(problem, file=self.file, line=self.number, text=self.row)


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
            if "NCCL " in row:
                self._row(file, number, row, last=number == len(rows))
            elif " via " in row and _PIECE.search(row):
                raise EvidenceError("is a piece of a line about a connection", file=file, line=number, text=row)
        if _ANY_HEAD.search(rows[-1]):
            self.cut.append(file)

    def _row(self, file: str, number: int, raw: str, *, last: bool) -> None:
        row = _COLOUR.sub("", raw).rstrip("\r") if "\x1b" in raw or "\r" in raw else raw
        marks = list(_MARK.finditer(row))
        if len(marks) > 1 and _CONNECTS.search(row):
            raise EvidenceError("tells of a connection and is torn: two lines in one", file=file, line=number, text=raw)
        end = len(row)
        pieces = []
        for mark in reversed(marks):
            head = _HEAD.search(row, max(0, mark.start() - _LONGEST_HEAD), mark.start())
            pieces.append((mark, head, row[mark.end() : end]))
            end = mark.start() if head is None else head.start()
        for mark, head, message in reversed(pieces):
            if head is not None:
                whole = len(pieces) == 1 and not last
                before = row[row.rfind("\r", 0, head.start()) + 1 : head.start()]
                begins = mark is marks[0] and (not before or _PREFIX.fullmatch(before) is not None)
                self._take(_Found(file, number, raw, head, begins, mark[1] == "WARN", message, whole))
            elif _CONNECTS.search(message):
                problem = "tells of a connection, and its head does not say whose"
                raise EvidenceError(problem, file=file, line=number, text=raw)

    def _take(self, found: _Found) -> None:
        """Keep a line that tells something, or is its process's first."""
        first = False
        if found.begins:
            known = self.hosts.setdefault(found.pid, set())
            first = found.name not in known
            known.add(found.name)
        if first or found.warns or _CONNECTS.search(found.message) or _TOLD.search(found.message):
            self.found.append(found)

    def lines(self) -> Iterator[Line]:
        for found in self.found:
            head = found.head
            host = found.name if found.begins else self._host(found)
            yield Line(
                file=found.file,
                number=found.number,
                text=found.row,
                process=Process(host.split(".")[0], found.pid),
                thread=int(head["thread"]),
                device=int(head["device"]),
                message=found.message,
                warns=found.warns,
                source=(head["source"] or "").strip(),
                whole=found.whole,
            )

    def _host(self, found: _Found) -> str:
        """Whose line it is that something stands before: one whose other lines begin with its name.

        Raises EvidenceError where there is none.
        """
        known = self.hosts.get(found.pid, set())
        if found.name in known:
            return found.name
        host = max((host for host in known if found.name.endswith(host)), key=len, default=None)
        if host is None:
            raise found.wrong(
                "something unknown stands before the host's name, and no other line begins with that name"
            )
        return host


def read_lines(texts: Mapping[str, str]) -> LogLines:
    """Lines of NCCL in the files (name → content), in their order.

    Raises EvidenceError for a line that does not say whose it is.
    """
    reader = _Reader()
    for file, text in texts.items():
        reader.read(text, file)
    return LogLines(lines=tuple(reader.lines()), cut=tuple(reader.cut))
