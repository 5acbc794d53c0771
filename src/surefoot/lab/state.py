"""What this machine holds of a lab: written before a thing is made, so that `down` finds what an interrupted `up` left."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from surefoot.errors import MachineryError, RequestError
from surefoot.files import write_atomic
from surefoot.lab.places import LabHome, LabPaths
from surefoot.lab.spec import MAX_SLOTS, LabSpec
from surefoot.model.base import Record
from surefoot.scheduler.processes import is_alive, start_ticks

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HostProcess(Record):
    """The process that a host lives in. Its number alone would be a stranger's after a while."""

    pid: int = Field(gt=1)
    started_ticks: int
    boot_id: str

    def alive(self) -> bool:
        return self.boot_id == boot_id() and is_alive(self.pid, self.started_ticks)


class AppliedFault(Record):
    """A fault that is in the lab now."""

    fault: str
    host: str
    setting: str = ""
    """What was asked of it (a rate, an offset); empty where there is nothing to ask."""
    at: float
    """Seconds since the epoch."""


class LabState(Record):
    """The lab's state file. `phase` is ``up`` only when the lab was proved to be up."""

    spec: LabSpec
    slot: int = Field(ge=0, lt=MAX_SLOTS)
    base: str
    phase: Literal["starting", "up", "stopping"]
    made_at: float
    processes: dict[str, HostProcess] = {}
    faults: tuple[AppliedFault, ...] = ()

    def alive(self, host: str) -> bool:
        process = self.processes.get(host)
        return process is not None and process.alive()


def boot_id() -> str:
    """Identity of this boot of the machine."""
    return _BOOT_ID.read_text().strip()


def observed(pid: int) -> HostProcess:
    """A process just started, as it is recorded. Raises MachineryError where it ended at once."""
    ticks = start_ticks(pid)
    if ticks is None:
        raise MachineryError(f"process {pid} ended as soon as it was started")
    return HostProcess(pid=pid, started_ticks=ticks, boot_id=boot_id())


def save(paths: LabPaths, state: LabState) -> LabState:
    """Write the state file; returns the state, so that callers go on with what was written."""
    write_atomic(paths.state, state.model_dump_json(indent=1) + "\n")
    return state


def load(home: LabHome, name: str) -> LabState:
    """State of a lab. Raises RequestError where there is none, MachineryError where it can't be read."""
    paths = home.lab(name)
    try:
        text = paths.state.read_text()
    except FileNotFoundError:
        known = ", ".join(home.names()) or "none"
        raise RequestError(
            f"there is no lab {name!r} in {home.folder} (there: {known})",
            next_action=f"surefoot lab up --name {name}",
        ) from None
    try:
        return LabState.model_validate_json(text)
    except ValidationError as error:
        raise MachineryError(
            f"{paths.state}: not the state of a lab: {error.errors()[0]['msg']}",
            next_action="another version of Surefoot may have written it: use that one for `lab down`",
        ) from error


@contextlib.contextmanager
def locked(lock: Path, doing: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock file of this machine while changing what it stands for; the kernel lets go of it with the process.

    Raises RequestError where another command holds it, unless `wait` is set.
    """
    handle = _lock(lock, wait=wait)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{doing}, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _lock(lock: Path, *, wait: bool) -> int:
    """Open file handle that holds the lock. `down` removes lock files: one that is no longer in place counts nothing."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if lock.exists() and os.fstat(handle).st_ino == lock.stat().st_ino:
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
            os.close(handle)
            raise RequestError(
                f"another command is at work there: {holder or 'unknown'}", next_action="wait for it, or end it"
            ) from None
        os.close(handle)


def claim_slot(home: LabHome, name: str) -> int:
    """The lowest free address range, now held by `name`; the one it holds already where it does."""
    home.slots.mkdir(parents=True, exist_ok=True)
    for slot in range(MAX_SLOTS):
        place = home.slots / str(slot)
        if place.exists() and place.read_text() == name:
            return slot
    for slot in range(MAX_SLOTS):
        # The name is in the file before the file is in place: a claim without a name would be nobody's.
        draft = home.slots / f".{name}.{os.getpid()}"
        draft.write_text(name)
        try:
            os.link(draft, home.slots / str(slot))
        except FileExistsError:
            continue
        else:
            return slot
        finally:
            draft.unlink()
    raise RequestError(f"{MAX_SLOTS} labs exist already", next_action="surefoot lab down --name one of them")


def release_slot(home: LabHome, name: str) -> None:
    """Give back the address range that `name` holds."""
    for place in home.slots.glob("[0-9]*"):
        if place.read_text() == name:
            place.unlink()
