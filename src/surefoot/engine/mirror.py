"""The run's folder on shared storage, for clusters whose storage this machine doesn't see.

Jobs leave their evidence there; here it is sealed and judged. What this machine adds (manifest,
plans, what commands printed, seals, results) is sent there too, so that the run on shared storage
is whole: it can be shown and judged on the login host, and outlives this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from surefoot.connection.base import Connection
from surefoot.errors import MachineryError, RequestError
from surefoot.model.events import Event, Note
from surefoot.model.run import RunManifest
from surefoot.paths import AttemptPaths, RunPaths


@dataclass
class Mirror:
    """Sends files of one run. Does nothing where `connection` leads to this machine."""

    connection: Connection
    here: RunPaths
    there: RunPaths
    emit: Callable[[Event], None]
    failed: bool = False

    def open(self, manifest: RunManifest) -> None:
        """Manifest and the user's files. Raises RequestError where a run of another machine has this name there.

        What cannot be reached is left to the first rung to tell.
        """
        if not self.connection.remote:
            return
        there = self._there(self.here.manifest)
        try:
            found = self.connection.read_many([there]).get(there)
        except MachineryError:
            return
        if found is not None and not _is_of(manifest, found):
            raise self._taken(self.there.folder)
        self.send([*sorted(self.here.inputs.glob("*")), self.here.manifest])

    def begin(self, attempt: AttemptPaths) -> None:
        """Make the attempt's folder there, which must be new. Raises RequestError, MachineryError."""
        if not self.connection.remote:
            return
        plan, folder = attempt.plan.read_bytes(), self._there(attempt.folder)
        name = attempt.plan.name
        if self.connection.put_tree({name: plan}, folder):
            return
        if self.connection.read_many([folder / name]).get(folder / name) != plan:  # else it is ours: an answer was lost
            self.failed = True  # nothing of this run belongs there
            raise self._taken(folder)

    def _taken(self, folder: Path) -> RequestError:
        return RequestError(
            f"{folder} on {self.connection.host} is of a run of this name that was climbed from another machine",
            next_action="climb anew (a run's default name is its own), or resume it on that machine",
        )

    def send(self, files: Iterable[Path]) -> None:
        """Copies of these files of the run. What fails is told once: the run here is whole without them."""
        if not self.connection.remote or self.failed:
            return
        try:
            self.connection.write({self._there(path): path.read_bytes() for path in files if path.is_file()})
        except (MachineryError, OSError) as error:
            self.failed = True
            self.emit(Note.now(f"the copy of this run on {self.connection.host} is not complete: {error}"))

    def send_attempt(self, attempt: AttemptPaths) -> None:
        """Everything of an attempt but what its jobs left, which is there already."""
        if self.connection.remote:
            own = sorted(attempt.raw.glob("*")) if attempt.raw.is_dir() else []
            self.send([*own, attempt.plan, attempt.collection])

    def _there(self, path: Path) -> Path:
        return self.there.folder / path.relative_to(self.here.folder)


def _is_of(manifest: RunManifest, found: bytes) -> bool:
    """Whether a manifest is this run's, whatever has been changed in its inputs since."""
    try:
        other = RunManifest.model_validate_json(found)
    except ValidationError:
        return False
    return (other.run_id, other.created_at, other.host) == (manifest.run_id, manifest.created_at, manifest.host)
