"""Who may write: one climb to a run, one process to an attempt.

A claim is a file that only one process can make (a hard link to a finished file, or a folder that
is renamed into place with the claim in it), so it holds on shared storage without locks. It says
who made it. A claim whose process is gone is taken over; of a process on another host nothing can
be known from here, so the user has to say that it is gone (`take_over`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from surefoot.engine.store import read_record, write_record
from surefoot.errors import EvidenceError, RequestError, StorageError
from surefoot.model.base import Record
from surefoot.paths import AttemptPaths, RunPaths
from surefoot.scheduler.processes import is_alive, start_ticks

_TRIES = 200
_REMOVAL_S = 30.0
_REMOVAL_WAIT_S = 0.05


class Owner(Record):
    """Which process holds a claim."""

    host: str
    pid: int
    start_ticks: int | None
    at: float

    @classmethod
    def this_process(cls) -> Owner:
        pid = os.getpid()
        return cls(host=socket.gethostname(), pid=pid, start_ticks=start_ticks(pid), at=time.time())

    @property
    def elsewhere(self) -> bool:
        """On another host: whether it lives cannot be known from here."""
        return self.host != socket.gethostname()

    def may_live(self) -> bool:
        """False only when it is known to be gone."""
        return self.elsewhere or is_alive(self.pid, self.start_ticks)


def _refusal(owner: Owner, what: str) -> RequestError:
    if owner.elsewhere:
        return RequestError(
            f"{what} by process {owner.pid} on {owner.host}, which cannot be asked from here",
            next_action="wait for it; if it is surely gone, say so with --take-over",
        )
    return RequestError(
        f"{what} by process {owner.pid} on {owner.host}",
        next_action="wait for it, or interrupt it there (Ctrl-C, or kill -INT); a new run is not disturbed by it",
    )


@contextlib.contextmanager
def climbing(paths: RunPaths, *, take_over: bool = False) -> Iterator[None]:
    """Climb this run as the only one. Raises RequestError while another climb of it may live, StorageError."""
    mine = Owner.this_process()
    _claim(paths.owner, mine, f"run {paths.folder.name!r} is being climbed", take_over=take_over)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, EvidenceError):
            if read_record(Owner, paths.owner) == mine:
                paths.owner.unlink()


def refuse_if_climbed(paths: RunPaths) -> None:
    """Raises RequestError while another process may climb this run: its inputs are not changed under it."""
    owner = _owner(paths.owner)
    if owner is not None and owner.may_live() and (owner.elsewhere or owner.pid != os.getpid()):
        raise _refusal(owner, f"the inputs of run {paths.folder.name!r} cannot be changed: it is being climbed")


def _claim(path: Path, mine: Owner, what: str, *, take_over: bool) -> None:
    own = path.with_name(f".{path.name}.{mine.pid}.{secrets.token_hex(4)}")
    write_record(own, mine)
    try:
        for _ in range(_TRIES):  # each time round, somebody else was quicker with a dead claim
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
                return
            _remove_if_dead(path, own, what, take_over=take_over)
    except OSError as error:
        raise StorageError(f"cannot claim {path}: {error.strerror}") from error
    finally:
        own.unlink(missing_ok=True)
    raise RequestError(f"{what} by several processes at once", next_action="wait, then try again")


def _remove_if_dead(path: Path, own: Path, what: str, *, take_over: bool) -> None:
    """Remove a claim whose process is gone. Raises RequestError when it may live.

    One process at a time does so, under a claim on the removal: else a slow one would remove, as
    dead, what a quick one has just put in the dead one's place.
    """
    _refuse_if_alive(path, what, take_over=take_over)
    guard = path.with_name(f".{path.name}.removal")
    try:
        os.link(own, guard)
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - guard.stat().st_mtime > _REMOVAL_S:
                guard.unlink()  # whoever made it was killed in the middle
        time.sleep(_REMOVAL_WAIT_S)
        return
    try:
        _refuse_if_alive(path, what, take_over=take_over)
        path.unlink(missing_ok=True)
    finally:
        guard.unlink(missing_ok=True)


def _refuse_if_alive(path: Path, what: str, *, take_over: bool) -> None:
    owner = _owner(path)
    if owner is not None and owner.may_live() and not (take_over and owner.elsewhere):
        raise _refusal(owner, what)


def _owner(path: Path) -> Owner | None:
    try:
        return read_record(Owner, path)
    except EvidenceError:
        return None


def collected_by(run: RunPaths, rung: str, number: int) -> Owner | None:
    """The other process that may collect this attempt now; None when nobody does."""
    paths = run.rung(rung).attempt(number)
    if paths.collection.exists():
        return None
    owner = _owner(paths.owner)
    if owner is None or (not owner.elsewhere and owner.pid == os.getpid()):
        return None
    return owner if owner.may_live() else None


def refuse_if_collected(run: RunPaths, rung: str, number: int, *, take_over: bool = False) -> None:
    """Raises RequestError when another process may collect this attempt now."""
    owner = collected_by(run, rung, number)
    if owner is not None and not (take_over and owner.elsewhere):
        raise _refusal(owner, f"rung {rung!r} of this run is being collected")


def claim_attempt(run: RunPaths, rung: str, *, take_over: bool = False) -> tuple[int, AttemptPaths]:
    """A new attempt's folder, owned by this process.

    The folder is made under another name, with the claim in it, and renamed: one process wins.
    Raises RequestError when another process may collect this rung of this run, StorageError.
    """
    numbers = run.rung(rung).attempts()
    if numbers:
        refuse_if_collected(run, rung, numbers[-1], take_over=take_over)
    number = numbers[-1] + 1 if numbers else 1
    paths = run.rung(rung).attempt(number)
    made = AttemptPaths(paths.folder.with_name(f".{paths.folder.name}.{os.getpid()}.{secrets.token_hex(4)}"))
    try:
        made.folder.mkdir(parents=True)
        write_record(made.owner, Owner.this_process())
        made.folder.rename(paths.folder)
    except OSError as error:
        shutil.rmtree(made.folder, ignore_errors=True)
        if paths.folder.exists():
            raise RequestError(f"rung {rung!r} of this run was just started by another process") from error
        raise StorageError(f"cannot make {paths.folder}: {error.strerror}") from error
    return number, paths
