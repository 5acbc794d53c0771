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
from collections.abc import Mapping, Sequence
from pathlib import Path

from surefoot.connection.base import CommandResult
from surefoot.errors import ConnectionFailedError, StorageError

_POLL_S = 0.05


class LocalConnection:
    """This machine. Commands get a session of their own, so that ending one ends its children."""

    @property
    def host(self) -> str:
        return socket.gethostname()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        cancel: threading.Event | None = None,
    ) -> CommandResult:
        started = time.time()
        deadline = time.monotonic() + timeout_s
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
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

    def put_tree(self, files: Mapping[str, Path | bytes], destination: Path) -> bool:
        if destination.exists():
            return False
        temporary = destination.with_name(f".{destination.name}.{os.getpid()}.{threading.get_ident()}")
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
