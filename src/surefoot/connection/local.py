"""Commands on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from surefoot.connection import trees
from surefoot.connection.base import CommandResult
from surefoot.errors import ConnectionFailedError, StorageError
from surefoot.files import tree_files, write_atomic

_POLL_S = 0.05


class LocalConnection:
    """This machine. Commands get a session of their own, so that ending one ends its children."""

    @property
    def host(self) -> str:
        return socket.gethostname()

    @property
    def remote(self) -> bool:
        return False

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        cancel: threading.Event | None = None,
        stdin: bytes | None = None,
        repeatable: bool = False,  # noqa: ARG002 - this link does not break
    ) -> CommandResult:
        started = time.time()
        deadline = time.monotonic() + timeout_s
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            source.write(stdin or b"")
            source.seek(0)
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=source,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise ConnectionFailedError(
                    f"cannot start {argv[0]!r} on {self.host}: {error}",
                    next_action="check that the program exists there and is executable",
                ) from error
            timed_out = False
            while process.poll() is None:
                timed_out = time.monotonic() > deadline
                if timed_out or (cancel is not None and cancel.is_set()):
                    _kill_session(process)
                    break
                time.sleep(_POLL_S)
            code = process.poll()
            if code is None:
                raise ConnectionFailedError(
                    f"{argv[0]!r} on {self.host} (pid {process.pid}) does not end, not even of KILL",
                    next_action="it hangs in the kernel (a dead file server, a driver): see dmesg there",
                )
            out.seek(0)
            err.seek(0)
            return CommandResult(
                exit_code=code if code >= 0 and not timed_out else None,
                signal=-code if code < 0 and not timed_out else None,
                stdout=out.read(),
                stderr=err.read(),
                started_at=started,
                ended_at=time.time(),
            )

    def read_many(self, paths: Iterable[Path]) -> dict[Path, bytes]:
        found = {}
        for path in paths:
            try:
                found[path] = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except (OSError, ValueError) as error:
                raise StorageError(f"cannot read {path}: {error}") from error
        return found

    def write(self, files: Mapping[Path, bytes]) -> None:
        for path, data in files.items():
            write_atomic(path, data)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def close(self) -> None:
        """Nothing to let go of."""

    def get_tree(self, source: Path, destination: Path) -> dict[str, str]:
        if source.resolve() == destination.resolve():
            return tree_files(source, skip=())
        temporary = trees.beside(destination)
        try:
            shutil.copytree(source, temporary, symlinks=True)
            digests = tree_files(temporary, skip=())
            trees.compare(digests, tree_files(source, skip=()), f"copy of {source}")
            trees.replace_folder(temporary, destination)
        except (OSError, shutil.Error) as error:
            raise StorageError(
                f"cannot copy {source} to {destination}: {error}",
                next_action="free space or fix permissions there, then resume the run",
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return digests

    def put_tree(self, files: Mapping[str, Path | bytes], destination: Path) -> bool:
        if destination.exists():
            return False
        temporary = trees.beside(destination)
        try:
            for name, source in files.items():
                target = temporary / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as writer:
                    writer.write(source if isinstance(source, bytes) else source.read_bytes())
                    writer.flush()
                    os.fsync(writer.fileno())
            temporary.rename(destination)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if destination.exists():  # another climb was first; what it put there is verified like ours
                return False
            raise StorageError(
                f"cannot copy to {destination}: {error.strerror or error}",
                next_action="free space or fix permissions there, then resume the run",
            ) from error
        return True


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(wait_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        else:
            return
