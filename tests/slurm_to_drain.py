"""A Slurm of given nodes that can be drained: a connection whose sinfo and scontrol act on a table in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.connection.base import CommandResult
from surefoot.errors import ConnectionFailedError
from surefoot.hostlist import expand
from surefoot.scheduler.slurm.commands import SEPARATOR


@dataclass
class SlurmToDrain:
    """Node → (state, reason), all in one default partition."""

    nodes: dict[str, tuple[str, str]]
    refusal: bytes = b""
    """What scontrol says instead of doing it."""
    broken: bool = False
    """The link breaks as scontrol is called."""
    silent_after: int | None = None
    """So many times sinfo answers."""
    before_look: Callable[[SlurmToDrain, int], None] = lambda *_: None
    """What others do: called before each answer of sinfo, with its number from 1."""
    looks: int = 0
    updates: list[list[str]] = field(default_factory=list)
    closed: bool = False

    host = "head"
    remote = False

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        if argv[0] == "sinfo":
            self.looks += 1
            self.before_look(self, self.looks)
            if self.silent_after is not None and self.looks > self.silent_after:
                return answer(1, err=b"sinfo: error: Invalid protocol")
            rows = [
                (name, "gpu*", state, "64", "1000", "(null)", why or "none")
                for name, (state, why) in self.nodes.items()
            ]
            return answer(0, "".join(f"{SEPARATOR.join(row)}\n" for row in rows).encode())
        assert list(argv[:2]) == ["scontrol", "update"]
        self.updates.append(list(argv))
        if self.broken:
            raise ConnectionFailedError("head: the connection broke")
        if self.refusal:
            return answer(1, err=self.refusal)
        said = dict(word.split("=", 1) for word in argv[2:])
        assert said["state"] == "drain"
        for name in expand(said["nodename"]):
            state = "draining" if re.match("alloc|mixed", self.nodes[name][0]) else "drained"
            self.nodes[name] = (state, said["reason"])
        return answer(0)

    def close(self) -> None:
        self.closed = True


def answer(code: int, out: bytes = b"", err: bytes = b"") -> CommandResult:
    return CommandResult(exit_code=code, signal=None, stdout=out, stderr=err, started_at=0, ended_at=1)
