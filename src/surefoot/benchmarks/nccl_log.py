"""Over what NCCL connected its ranks, from the log that ``NCCL_DEBUG=INFO`` leaves (INIT, NET). Pure.

::

    vm:657:657 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
    node-b:987:1260 [7] NCCL INFO Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IB/2/GDRDMA

Ranks of a host share the file, so lines of several processes stand between each other; host and
process at the head of a line say whose it is. NCCL cuts the host's name at the first dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.model.base import Record

_MARK = re.compile(r"NCCL INFO Channel .* via ")
_LINK = re.compile(
    r"(?P<host>[^\s:]+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO Channel \d+(?:/\d+)? ?: "
    r"(?P<source>\d+)\[\w+\] -> (?P<target>\d+)\[\w+\](?: \[(?:send|receive)\])? via (?P<transport>[\w/]+)\S*(?: .*)?"
)


class Link(Record):
    """One connection that one process made."""

    file: str
    line: int = Field(ge=1)
    text: str
    host: str
    pid: int
    transport: str
    """Kind and way: ``P2P/CUMEM``, ``SHM/direct``, ``NET/IB``, ``NET/Socket``."""

    @property
    def sockets(self) -> bool:
        """Whether it goes over TCP."""
        return self.transport == "NET/Socket"


def links(text: str, file: str) -> list[Link]:
    """Every connection that the log tells of. Raises EvidenceError for a line that tells of one and cannot be read."""
    found = []
    for number, row in enumerate(text.splitlines(), 1):
        if not _MARK.search(row):
            continue
        match = _LINK.fullmatch(row.strip())
        if match is None:
            raise EvidenceError("tells of a connection in an unknown form", file=file, line=number, text=row)
        way = "/".join(match["transport"].split("/")[:2])
        found.append(
            Link(file=file, line=number, text=row, host=match["host"], pid=int(match["pid"]), transport=way)
        )  # fmt: skip
    return found


def links_by_process(found: Iterable[Link]) -> dict[tuple[str, int], list[Link]]:
    """(host up to its first dot, process) → its connections."""
    by_process: dict[tuple[str, int], list[Link]] = {}
    for link in found:
        by_process.setdefault((link.host.split(".")[0], link.pid), []).append(link)
    return by_process
