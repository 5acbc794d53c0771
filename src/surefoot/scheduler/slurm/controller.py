"""Slurm's commands, run on the connection's host: asked once, or again while the controller is too busy to answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from surefoot.connection.base import CommandResult, Connection
from surefoot.errors import SchedulerError
from surefoot.scheduler.slurm import commands

_BUSY = ("Socket timed out", "Unable to contact slurm controller", "Connection refused", "Resource temporarily", "Zero Bytes", "try again", "Transport endpoint", "Connection timed out", "Slurm temporarily")  # fmt: skip


class Controller:
    """Asks Slurm. `env` is added to the environment of its commands; `queries` counts them by name."""

    def __init__(self, connection: Connection, env: Mapping[str, str], patience_s: float) -> None:
        self._connection = connection
        self._env = env
        self._patience_s = patience_s
        self.queries: Counter[str] = Counter()

    def run(self, argv: Sequence[str]) -> CommandResult:
        """One question. What came of it is for the caller to say."""
        self.queries[argv[0]] += 1
        return self._connection.run(argv, env={**self._env, **commands.TIMES}, timeout_s=90, repeatable=True)

    def output(self, argv: Sequence[str], *, patiently: bool = False) -> str:
        """What it printed. `patiently`: a controller that is too busy is asked again. Raises SchedulerError."""
        deadline = time.monotonic() + (self._patience_s if patiently else 0)
        pause = 1.0
        while True:
            result = self.run(argv)
            if result.exit_code == 0 and not result.timed_out:
                return result.stdout.decode(errors="replace")
            busy = result.timed_out or is_busy(result)
            if not busy or time.monotonic() >= deadline:
                waited = f" for {self._patience_s:g} s" if busy and patiently else ""
                raise SchedulerError(
                    f"{argv[0]} failed{waited}: {words(result)}",
                    next_action="check slurmctld (`scontrol ping` on the login host)",
                )
            time.sleep(pause)
            pause = min(pause * 2, 15.0)


def is_busy(result: CommandResult) -> bool:
    """Whether the same question may be answered a little later."""
    return any(word in words(result) for word in _BUSY)


def words(result: CommandResult) -> str:
    """What a command said, or how it ended where it said nothing."""
    if result.timed_out:
        return "it did not answer in time"
    text = (result.stderr or result.stdout).decode(errors="replace").strip()
    return text[-400:] or f"exit code {result.exit_code}, signal {result.signal}"
