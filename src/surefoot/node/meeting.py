"""Nodes that wait for each other on shared storage, with nothing but files. Standard library only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


class AbsentError(Exception):
    """Somebody did not come in time; the text names who and where."""


@dataclass(frozen=True)
class Meeting:
    """One node's side. `folder` is on storage that all see; every step has a name that is used once."""

    folder: Path
    node: int
    nodes: int
    wait_s: float

    def _all(self, kind: str, step: str, every_s: float) -> None:
        """Wait until every node has put down its file. Raises AbsentError naming those that have not."""
        until = time.monotonic() + self.wait_s
        while True:
            # An NFS client asks the server again when a folder is opened to be listed.
            there = set(os.listdir(self.folder / step / kind))  # noqa: PTH208
            missing = [node for node in range(self.nodes) if str(node) not in there]
            if not missing:
                return
            if time.monotonic() > until:
                names = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
                raise AbsentError(f"node {names} of {self.nodes} did not come to {step} ({kind}) in {self.wait_s:g} s")
            time.sleep(every_s)

    def put(self, kind: str, step: str) -> None:
        """Say that this node is there."""
        (self.folder / step / kind).mkdir(parents=True, exist_ok=True)
        (self.folder / step / kind / str(self.node)).touch()

    def together(self, step: str) -> None:
        """Return when all nodes are here, milliseconds apart, and leave a mark that this one begins.

        First everybody waits patiently (about a thousand looks a second from the whole fleet: who is
        early must not slow down who is still at work), then, once all are here, closely.
        """
        self.put("here", step)
        self._all("here", step, max(0.02, self.nodes / 1000))
        self.put("ready", step)
        self._all("ready", step, max(0.002, self.nodes / 10_000))
        self.put("began", step)

    def all_done(self, step: str) -> None:
        """Wait until every node has put ``done`` down for a step. Raises AbsentError."""
        self._all("done", step, 0.05)

    def began(self, step: str) -> int:
        """How many nodes had begun this step by now. Asked at the end of a node's work: all of them where all overlapped.

        No clocks: if every node sees at its end that every node had begun, there was a moment when all were at work.
        """
        return len(os.listdir(self.folder / step / "began"))  # noqa: PTH208
