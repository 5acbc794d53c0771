"""The seam to the machine that commands run on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
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

    @property
    def remote(self) -> bool:
        """True where files of the other side are no files of this machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        cancel: threading.Event | None = None,
        stdin: bytes | None = None,
        repeatable: bool = False,
    ) -> CommandResult:
        """Run one command (a list, never a shell line). `env` is added to the login environment.

        Arguments arrive as they are, whatever characters they hold; what cannot be carried (NUL)
        is refused with ConnectionFailedError before anything runs. A set `cancel` ends the command
        and its children; the result then has their signal.

        `repeatable` says that running it twice does no harm: where the link breaks it is then run
        again, with back-off. Otherwise a broken link is ConnectionFailedError, and the command may
        have run.
        """

    def read_many(self, paths: Iterable[Path]) -> dict[Path, bytes]:
        """The content of these files, in one question; files that are not there are left out."""

    def write(self, files: Mapping[Path, bytes]) -> None:
        """Write files, each so that a reader sees the old content or the new; makes folders that are missing."""

    def exists(self, path: Path) -> bool:
        """True when there is a file or folder of this name."""

    def put_tree(self, files: Mapping[str, Path | bytes], destination: Path) -> bool:
        """Make the new folder `destination` with these files (relative name → source), all or nothing.

        Returns False where `destination` exists already (it is left as it is).
        """

    def get_tree(self, source: Path, destination: Path) -> dict[str, str]:
        """Copy a folder of the other side to this machine; returns relative name → sha256 of every file.

        The digests are taken on both sides and compared. `destination` is replaced whole, and only
        when everything has arrived. Where both are one folder nothing is copied.
        """

    def close(self) -> None:
        """Let go of the other side. Called once, at the end."""
