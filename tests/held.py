"""What a test session holds of this machine, written down before it is made, so that it can be taken
away when the session was killed.

Each session has a file of its own, locked for as long as its process lives: the kernel lets go of the
lock, however the process ends. A file that can be locked is a dead session's. A small process that
the session's death wakes sweeps such files; where that was killed too, the next session does. Two
sessions at once (or two workers of one) have two files, and their labs and ports differ.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = "SUREFOOT_TEST_FOLDER"
"""In the environment of every process that a test starts to live on; what its value names, it belongs to."""

RECORDS = Path("/var/tmp/surefoot-tests")  # noqa: S108 - kept over a restart, as what a lab left is


_GUARD = "import sys, pathlib, held; sys.stdin.read(); held.guard(pathlib.Path(sys.argv[1]))"
"""Reads until the other end of its pipe is gone, which is when the session is."""


class Held:
    """This session's record. Made by the fixture `held`."""

    def __init__(self, records: Path = RECORDS) -> None:
        records.mkdir(mode=0o700, exist_ok=True)
        self.number = os.getpid()
        self.path = records / f"{self.number}-{time.time_ns()}"
        # Locked before it has its name: nobody can take it for a dead session's.
        draft = records / f".{self.path.name}"
        self._handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        draft.rename(self.path)
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self.path)], stdin=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )  # fmt: skip

    def lab(self, letter: str) -> str:
        """Name of a lab of this session's own, noted; one letter tells it from the session's others."""
        name = f"t{self.number}{letter}"
        self._note("lab", name)
        return name

    def folder(self, prefix: str) -> Path:
        """A new folder with a short name (sockets lie in it), noted: processes started with it end with it."""
        path = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
        self._note("folder", str(path))
        return path

    def _note(self, kind: str, what: str) -> None:
        os.write(self._handle, f"{kind} {what}\n".encode())

    def close(self) -> None:
        """All is gone: so is the record."""
        self.path.unlink()
        os.close(self._handle)
        self._guard.communicate()


def guard(record: Path, wait_s: float = 60) -> None:
    """Sweep until this record is gone. A process that ends lets go of its pipe and its lock one after the other."""
    deadline = time.monotonic() + wait_s
    while record.exists() and time.monotonic() < deadline:
        sweep(record.parent)
        time.sleep(0.1)


def sweep(records: Path = RECORDS) -> list[str]:
    """Take away what dead sessions left; the lines that say what that was."""
    swept = []
    for path in sorted(records.glob("*-*")) if records.exists() else []:
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for line in stream.read().splitlines():
                kind, what = line.split(" ", 1)
                {"lab": _remove_lab, "folder": remove_folder}[kind](what)
                swept.append(line)
            path.unlink(missing_ok=True)
    return swept


def _remove_lab(name: str) -> None:
    """Patiently: a command of the dead session may still be at work on it."""
    command = [sys.executable, "-m", "surefoot", "lab", "down", "--purge", "--name", name]
    deadline = time.monotonic() + 240
    while (done := subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)).returncode != 0:
        said = f"the lab {name} of a test session that was killed:\n{done.stdout}{done.stderr}"
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


def start(
    argv: Sequence[str], folder: Path, log: Path, *, user: str | None = None, **env: str
) -> subprocess.Popen[bytes]:
    """Start a server that belongs to a folder, and ends when that is removed at the latest."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            argv, user=user, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            env={**os.environ, FOLDER: str(folder), **env},
        )  # fmt: skip


def remove_folder(folder: str) -> None:
    """End every process of the folder, then remove it."""
    deadline = time.monotonic() + 20
    # Twice: a process that is just starting another program has no environment to be seen.
    while pids := processes_with(folder) or processes_with(folder, after_s=0.05):
        assert time.monotonic() < deadline, f"processes of {folder} that will not end: {pids}"
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def processes_with(folder: str, after_s: float = 0) -> list[int]:
    """Living processes of a folder: in their environment stands it, or a Slurm's configuration below it."""
    time.sleep(after_s)
    marks = (f"SLURM_CONF={folder}/".encode(), f"{FOLDER}={folder}/".encode())
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "environ").read_bytes().split(b"\0")
            if int(entry.name) != os.getpid() and any((word + b"/").startswith(marks) for word in words):
                found.append(int(entry.name))
    return found
