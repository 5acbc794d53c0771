"""The seam to the machine that commands run on."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. Exactly one of `exit_code` and `signal` is set; both None: it ran out of time."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    started_at: float
    ended_at: float

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None and self.signal is None


class Connection(Protocol):
    """Runs commands and moves files. Every method raises ConnectionFailedError or StorageError
    when the other side cannot be reached or refuses; a command that ran and failed is a result.
    """

    @property
    def host(self) -> str:
        """Name of the machine, for people."""

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        cancel: threading.Event | None = None,
    ) -> CommandResult:
        """Run one command (a list, never a shell line). `env` is added to the login environment.

        A set `cancel` ends the command and its children; the result then has their signal.
        """

    def put_tree(self, files: Mapping[str, Path | bytes], destination: Path) -> bool:
        """Make the new folder `destination` with these files (relative name → source), all or nothing.

        Returns False where `destination` exists already (it is left as it is).
        """
