"""The run's folder on shared storage, for clusters whose storage this machine doesn't see.

Jobs leave their evidence there; here it is sealed and judged. What this machine adds (manifest,
plans, what commands printed, seals, results, the log of events) is sent there too, so that the run
on shared storage is whole: it can be shown and judged on the login host, and outlives this machine.
Only who collects (``owner.json``) stays here, and reports, which are made again from the rest. What
could not be sent is owed, and sent later: an old result must not stand there for good.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from surefoot.connection.base import Connection
from surefoot.errors import MachineryError, RequestError
from surefoot.model.events import Event, Note
from surefoot.model.run import RunManifest
from surefoot.paths import AttemptPaths, RunPaths

REST_S = 60.0
"""After a failure nothing is sent for so long: each try waits for the link, and the climb for it."""

SAY_AFTER_S = 5.0
"""Before the first answer of the other side nothing else is shown."""


@dataclass
class Mirror:
    """Sends files of one run. Does nothing where `connection` leads to this machine. Safe to use from several threads."""

    connection: Connection
    here: RunPaths
    there: RunPaths
    emit: Callable[[Event], None]
    _manifest: RunManifest | None = None
    _ours: bool = False
    """It has been seen that no other run has this one's name there."""
    _foreign: bool = False
    """The folder there is another run's: nothing of this one belongs there."""
    _owed: set[Path] = field(default_factory=set)
    _again_at: float = 0.0
    _told: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, manifest: RunManifest) -> None:
        """All that this machine has of the run, which an earlier climb may owe: at first manifest and the user's files.

        Raises RequestError where a run of another machine has this name there. What cannot be reached
        is left to the first rung to tell.
        """
        self._manifest = manifest
        rungs = self.here.rungs()
        attempts = [rung.attempt(number) for rung in rungs for number in rung.attempts()]
        files = [
            *sorted(self.here.inputs.glob("*")),
            self.here.manifest,
            *(rung.result for rung in rungs),
            *(path for attempt in attempts for path in _own(attempt)),
        ]
        with self._said_if_slow():
            self.send(files)
        if self._foreign:
            raise self._taken(self.there.folder)

    @contextlib.contextmanager
    def _said_if_slow(self) -> Iterator[None]:
        waits = f"{self.connection.host} has not answered for {SAY_AFTER_S:g} s; its first answer is waited for"
        say = threading.Timer(SAY_AFTER_S, lambda: self.emit(Note.now(waits)))
        say.daemon = True
        say.start()
        try:
            yield
        finally:
            say.cancel()

    def begin(self, attempt: AttemptPaths) -> None:
        """Make the attempt's folder there, which must be new. Raises RequestError, MachineryError."""
        if not self.connection.remote:
            return
        if self._foreign:
            raise self._taken(self.there.folder)
        plan, folder = attempt.plan.read_bytes(), self._there(attempt.folder)
        name = attempt.plan.name
        if self.connection.put_tree({name: plan}, folder):
            return
        if self.connection.read_many([folder / name]).get(folder / name) != plan:  # else it is ours: an answer was lost
            self._foreign = True
            raise self._taken(folder)

    def _taken(self, folder: Path) -> RequestError:
        return RequestError(
            f"{folder} on {self.connection.host} is of a run of this name that was climbed from another machine",
            next_action="climb anew (a run's default name is its own), or resume it on that machine",
        )

    def send(self, files: Iterable[Path]) -> None:
        """Copies of these files of the run, of its log of events, and of what is owed.

        A failure is told once: the run here is whole without.
        """
        if not self.connection.remote or self._foreign:
            return
        with self._lock:
            self._owed |= {*files, self.here.events}
            if time.monotonic() >= self._again_at:
                self._pay()

    def send_attempt(self, attempt: AttemptPaths) -> None:
        """Everything of an attempt but what its jobs left, which is there already."""
        self.send(_own(attempt))

    def close(self) -> None:
        """A last try to send what is owed, and the log of events as it is in the end."""
        with self._lock:
            if self._ours:
                self._owed.add(self.here.events)
            if self._owed and not self._foreign:
                self._pay()

    def _pay(self) -> None:
        try:
            self._ours = self._ours or self._look()
            if self._foreign:
                return
            self.connection.write({self._there(p): p.read_bytes() for p in sorted(self._owed) if p.is_file()})
        except (MachineryError, OSError) as error:
            self._again_at = time.monotonic() + REST_S
            if not self._told:
                self._told = True
                self.emit(Note.now(f"the copy of this run on {self.connection.host} is not complete: {error}"))
            return
        self._owed.clear()
        if self._told:
            self._told = False
            self.emit(Note.now(f"the copy of this run on {self.connection.host} is complete again"))

    def _look(self) -> bool:
        """Whether the run there is this one, or there is none. Raises MachineryError."""
        assert self._manifest is not None, "opened before anything is sent"
        there = self._there(self.here.manifest)
        found = self.connection.read_many([there]).get(there)
        self._foreign = found is not None and not _is_of(self._manifest, found)
        return not self._foreign

    def _there(self, path: Path) -> Path:
        return self.there.folder / path.relative_to(self.here.folder)


def _own(attempt: AttemptPaths) -> list[Path]:
    """What this machine wrote of an attempt."""
    own = sorted(attempt.raw.glob("*")) if attempt.raw.is_dir() else []
    return [*own, attempt.plan, attempt.collection]


def _is_of(manifest: RunManifest, found: bytes) -> bool:
    """Whether a manifest is this run's, whatever has been changed in its inputs since."""
    try:
        other = RunManifest.model_validate_json(found)
    except ValidationError:
        return False
    return (other.run_id, other.created_at, other.host) == (manifest.run_id, manifest.created_at, manifest.host)
