"""Commands and files on another machine, by the system's OpenSSH.

The user's ssh_config, jump hosts, agents and known_hosts are ssh's business and stay as they are.
One master connection is shared by all commands, so that a question costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from surefoot.connection import trees
from surefoot.connection.base import CommandResult
from surefoot.connection.remote import Heard, check_host, command_text, hear, hopeless, last_line, never_sent
from surefoot.errors import ConnectionFailedError, StorageError

_POLL_S = 0.01
_KILL_WAIT_S = 2.0
_TRANSFER_S = 3600.0
_HURRIED_S = 20.0
_PERSIST_S = 20
"""The shared connection ends by itself after so long without a command: a killed process leaves none behind.
Longer than any pause between two questions of a climb."""
_MOST_WRITTEN = 60
"""Files in one command: three words of it each, two of them paths."""
_SHELL_S = 60.0
"""From the login to the command: start-up files that take longer wait for something that does not come."""
_EXISTS = 17
_HIGHEST_SIGNAL = 64
T = TypeVar("T")

_READ_MANY = """
for f in "$@"; do
  if [ -f "$f" ] && t=$(wc -c <"$f"); then printf '%s\\n' "$((t))"; head -c "$((t))" -- "$f"; else printf -- '-\\n'; fi
done
"""
_WRITE = """
set -e; umask 022; t=
trap '[ -z "$t" ] || rm -f -- "$t"' EXIT
while [ $# -gt 0 ]; do
  d=$1; t=$2; mkdir -p -- "${d%/*}"
  head -c "$3" >"$t"; [ "$(wc -c <"$t")" -eq "$3" ]; sync -- "$t" 2>/dev/null || sync; mv -fT -- "$t" "$d"
  shift 3
done
"""
_PUT = f"""
set -e; umask 022; d=$1; t=$2
[ ! -e "$d" ] || exit {_EXISTS}
mkdir -p -- "$t"; tar -xf - -C "$t"; cd -- "$t"
find . -type f -exec sync -- {{}} + 2>/dev/null || sync
find . -type f -exec sha256sum -- {{}} +
"""
_PLACE = f"""
if mv -nT -- "$2" "$1" && [ ! -e "$2" ]; then exit 0; fi
[ -e "$1" ] || exit 1
rm -rf -- "$2"; exit {_EXISTS}
"""
_END = """
kill -s TERM -- "-$1" || exit 0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  sleep 0.1; kill -s 0 -- "-$1" 2>/dev/null || exit 0
done
kill -s KILL -- "-$1"
"""
_SUMS = 'cd -- "$1" && find . -type f -exec sha256sum -- {} +'


class _LinkDown(Exception):  # noqa: N818 - becomes ConnectionFailedError unless trying again helps
    """The link broke. `begun`: the command may have run."""

    def __init__(self, stderr: bytes, *, begun: bool) -> None:
        super().__init__(last_line(stderr))
        self.stderr = stderr
        self.begun = begun


class _ShellFailed(_LinkDown):
    """The host took the login, and its shell did not come to the command."""

    def __init__(self, why: str, output: bytes, *, begun: bool) -> None:
        super().__init__(output, begun=begun)
        self.why = f"{why}; the last it printed: {self}" if output.strip() else why


@dataclass(frozen=True)
class _Spoken:
    """How one command over ssh ended. All None: it ran out of time."""

    heard: Heard
    signal: int | None
    timed_out: bool


class SshConnection:
    """A login host. Safe to use from several threads.

    `config` is another ssh_config than the user's; `patience_s` is how long a broken link is tried
    again for commands that may be repeated: at most `_HURRIED_S` once `hurry` is set.
    """

    def __init__(
        self,
        host: str,
        *,
        config: Path | None = None,
        patience_s: float = 120,
        keep_alive_s: int = 10,
        hurry: threading.Event | None = None,
    ) -> None:
        self._host = check_host(host)
        self._patience_s = patience_s
        self._hurry = hurry or threading.Event()
        # A socket's path may have about 100 characters, and ssh appends 17 while it makes it.
        _sweep(_short_folder())
        self._folder = Path(tempfile.mkdtemp(prefix=f"sf-{os.getpid()}-", dir=_short_folder()))
        self._socket = self._folder / "m"
        options = {
            "BatchMode": "yes",
            "ControlPath": str(self._socket),
            "ServerAliveInterval": str(keep_alive_s),
            "ServerAliveCountMax": "3",
            "ConnectTimeout": "15",
            "ForwardX11": "no",
            "RequestTTY": "no",
        }
        self._ssh = ["ssh", *(["-F", str(config)] if config else [])]
        for name, value in options.items():
            self._ssh += ["-o", f"{name}={value}"]
        self._lock = threading.Lock()
        self._was_up = False
        self._shell_works = False
        """A command has begun there: what fails later may pass."""

    @property
    def host(self) -> str:
        return self._host

    @property
    def remote(self) -> bool:
        return True

    # -- commands

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
        started = time.time()
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out:
            source.write(stdin or b"")
            source.flush()
            spoken = self._speak(
                argv, env or {}, source, out, timeout_s=timeout_s, cancel=cancel, repeatable=repeatable
            )
            return _result(spoken, out.read(), started)

    def _speak(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        source: IO[bytes],
        out: IO[bytes],
        *,
        timeout_s: float = _TRANSFER_S,
        cancel: threading.Event | None = None,
        repeatable: bool = True,
    ) -> _Spoken:
        """Run a command; `out` then stands where its output begins."""

        def once() -> _Spoken:
            mark = f"surefoot-{secrets.token_hex(8)}"
            text = command_text(argv, env, mark)
            os.lseek(source.fileno(), 0, os.SEEK_SET)  # a try before this one moved them
            os.lseek(out.fileno(), 0, os.SEEK_SET)
            os.ftruncate(out.fileno(), 0)
            return self._once(text, mark, source, out, timeout_s=timeout_s, cancel=cancel)

        spoken = self._try(once, argv[0] if argv else "", cancel, repeatable)
        if spoken.heard.absent:
            raise ConnectionFailedError(
                f"cannot start {argv[0]!r} on {self._host}: {last_line(spoken.heard.stderr)}",
                next_action="check that the program exists there and is executable",
            )
        return spoken

    def _try(self, once: Callable[[], T], what: str, cancel: threading.Event | None, repeatable: bool) -> T:
        """Until it works, or trying again is pointless, or not safe, or took too long."""
        began = time.monotonic()
        pause = 0.25
        while True:
            try:
                self._open()
                return once()
            except _LinkDown as down:
                advice = hopeless(down.stderr)
                unsafe = down.begun and not repeatable
                stopped = cancel is not None and cancel.is_set()
                patience_s = min(self._patience_s, _HURRIED_S) if self._hurry.is_set() else self._patience_s
                tired = time.monotonic() + pause > began + patience_s
                if isinstance(down, _ShellFailed) and (unsafe or stopped or tired or not self._shell_works):
                    raise self._no_shell(down, unsafe) from down
                if unsafe or advice or stopped or tired or not self._was_up:
                    raise self._failed(down, what, unsafe, advice) from down
            if cancel is None:
                time.sleep(pause)
            else:
                cancel.wait(pause)
            pause = min(pause * 2, 8.0)

    def _failed(self, down: _LinkDown, what: str, unsafe: bool, advice: str | None) -> ConnectionFailedError:
        if unsafe:
            return ConnectionFailedError(
                f"the link to {self._host} broke while {what!r} ran there ({down}); it may have run to its end",
                next_action="check the network, then resume the run",
            )
        return ConnectionFailedError(
            f"cannot reach {self._host} by ssh: {down}",
            next_action=advice or f"check that `ssh {self._host} true` works, then resume the run",
        )

    def _no_shell(self, down: _ShellFailed, unsafe: bool) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"{self._host} can be reached by ssh, and {down.why}{' (it may have run later)' if unsafe else ''}",
            next_action=f"try `ssh {self._host} 'echo works'`; look at the start-up files there (~/.bashrc, "
            "/etc/profile.d): without a terminal they must not exit, exec or ask; and whether the home folder answers",
        )

    def _open(self) -> None:
        """Make the shared connection where there is none. Raises _LinkDown."""
        if self._socket.exists():
            return
        with self._lock:
            if self._socket.exists():
                return
            master = [
                *self._ssh,
                "-o",
                "ControlMaster=yes",
                "-o",
                f"ControlPersist={_PERSIST_S}",
                "-N",
                "-f",
                "--",
                self._host,
            ]
            with tempfile.TemporaryFile() as err:  # a pipe would stay open for as long as the master lives
                try:
                    code = subprocess.run(
                        master, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, timeout=90, check=False
                    ).returncode
                except subprocess.TimeoutExpired:
                    code = 255
                except OSError as error:
                    raise ConnectionFailedError(
                        f"cannot start ssh: {error}", next_action="install OpenSSH's client (ssh) on this machine"
                    ) from error
                err.seek(0)
                if code != 0:
                    raise _LinkDown(err.read(), begun=False)
            self._was_up = True

    def _once(
        self,
        text: str,
        mark: str,
        source: IO[bytes],
        out: IO[bytes],
        *,
        timeout_s: float,
        cancel: threading.Event | None,
    ) -> _Spoken:
        started = time.monotonic()
        deadline = started + timeout_s
        with tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                [*self._ssh, "-o", "ControlMaster=no", "--", self._host, text], stdin=source, stdout=out, stderr=err
            )
            pause = 0.002
            ended_by: str | None = None
            begun = False
            while process.poll() is None:
                if cancel is not None and cancel.is_set():
                    ended_by = "cancel"
                elif time.monotonic() > deadline:
                    ended_by = "time"
                elif not begun and time.monotonic() > started + _SHELL_S:
                    begun = hear(_all_of(err), mark).begun
                    if not begun:
                        ended_by = "shell"
                if ended_by:
                    self._end_there(hear(_all_of(err), mark).leader)
                    process.kill()
                    process.wait()
                    break
                time.sleep(pause)
                pause = min(pause * 1.5, _POLL_S)
            heard = hear(_all_of(err), mark)
        self._shell_works |= heard.begun
        if not heard.begun and (ended_by == "shell" or (ended_by is None and process.returncode in range(255))):
            what = "did not come" if ended_by else f"ended with exit code {process.returncode} before it came"
            why = f"its login shell {what} to the command{f' in {_SHELL_S:g} s' if ended_by else ''}"
            raise _ShellFailed(why, _all_of(out) + heard.stderr, begun=ended_by is not None)
        if ended_by is None and heard.status is None:
            if process.returncode == 255 and not heard.begun:
                self._forget_dead_master()
            raise _LinkDown(heard.stderr, begun=heard.begun or not never_sent(heard.stderr))
        _skip_to_output(out, mark.encode())
        return _Spoken(heard, 15 if ended_by == "cancel" else None, ended_by == "time")

    def _end_there(self, leader: int | None) -> None:
        """TERM, then KILL, to the session of a command on the other side; as well as the link allows."""
        if leader is None or not self._socket.exists():
            return
        text = command_text(["sh", "-c", _END, "sh", str(leader)], {}, "surefoot-end")
        try:
            subprocess.run(
                [*self._ssh, "-o", "ControlMaster=no", "--", self._host, text],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_KILL_WAIT_S * 3,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return  # the link is down: the caller learns that by itself

    def _forget_dead_master(self) -> None:
        """Remove the socket of a master that no longer answers, so that the next try makes a new one."""
        with self._lock:
            try:
                alive = self._tell_master("check").returncode == 0
            except (OSError, subprocess.TimeoutExpired):  # stopped, or hung
                alive = False
            if not alive:
                self._socket.unlink(missing_ok=True)

    def _tell_master(self, what: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._ssh, "-O", what, "--", self._host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=15,
            check=False,
        )

    # -- files

    def read_many(self, paths: Iterable[Path]) -> dict[Path, bytes]:
        wanted = list(dict.fromkeys(paths))
        found: dict[Path, bytes] = {}
        for begin in range(0, len(wanted), 200):  # a command line has an end
            part = wanted[begin : begin + 200]
            result = self._sh(_READ_MANY, [str(path) for path in part], repeatable=True)
            if result.timed_out:
                raise self._refused(f"read {part[0]}{' and others' if part[1:] else ''}", result)
            found.update(self._split(result.stdout, part))
        return found

    def _split(self, data: bytes, paths: list[Path]) -> dict[Path, bytes]:
        found, at = {}, 0
        for path in paths:
            line_end = data.find(b"\n", at)
            size = data[at:line_end] if line_end >= 0 else b""
            at = line_end + 1
            if size == b"-":
                continue
            if not size.isdigit() or at + int(size) > len(data):
                raise StorageError(f"cannot read {path} on {self._host}: it changed while it was read")
            found[path] = data[at : at + int(size)]
            at += int(size)
        return found

    def write(self, files: Mapping[Path, bytes]) -> None:
        wanted = list(files.items())
        for begin in range(0, len(wanted), _MOST_WRITTEN):  # a command line has an end
            part = wanted[begin : begin + _MOST_WRITTEN]
            words = [word for path, data in part for word in (str(path), str(trees.beside(path)), str(len(data)))]
            result = self._sh(_WRITE, words, stdin=b"".join(data for _, data in part), repeatable=True)
            if result.exit_code != 0:
                named = ", ".join(str(path) for path, _ in part[:4])
                more = f" and {len(part) - 4} more" if len(part) > 4 else ""
                raise self._refused(f"write {named}{more}", result)

    def exists(self, path: Path) -> bool:
        result = self._sh('[ -e "$1" ]', [str(path)], repeatable=True)
        if result.exit_code not in (0, 1):
            raise self._refused(f"look for {path}", result)
        return result.exit_code == 0

    def put_tree(self, files: Mapping[str, Path | bytes], destination: Path) -> bool:
        temporary = trees.beside(destination)
        with tempfile.TemporaryFile() as stream, tempfile.TemporaryFile() as out:
            here = trees.pack(files, stream)
            stream.flush()
            argv = ["sh", "-c", _PUT, "sh", str(destination), str(temporary)]
            started = time.time()
            # Safe to repeat: the folder that it fills is this thread's own, and packed over again.
            spoken = self._speak(argv, {}, stream, out)
            result = _result(spoken, out.read(), started)
        if result.exit_code == _EXISTS:
            return False
        try:
            if result.exit_code != 0:
                raise self._refused(f"copy to {destination}", result)
            trees.compare(here, trees.read_sums(result.stdout), f"copy to {destination} on {self._host}")
        except StorageError:
            self._sh('rm -rf -- "$1"', [str(temporary)], repeatable=True)
            raise
        placed = self._sh(_PLACE, [str(destination), str(temporary)], repeatable=True)
        if placed.exit_code not in (0, _EXISTS):
            raise self._refused(f"copy to {destination}", placed)
        return placed.exit_code == 0

    def get_tree(self, source: Path, destination: Path) -> dict[str, str]:
        temporary = trees.beside(destination)
        try:
            with tempfile.TemporaryFile() as nothing, tempfile.TemporaryFile() as out:
                argv = ["tar", "-cf", "-", "-C", str(source), "."]
                started = time.time()
                spoken = self._speak(argv, {}, nothing, out)
                if spoken.heard.status != 0:
                    raise self._refused(f"read {source}", _result(spoken, b"", started))
                digests = trees.unpack(out, temporary)
            sums = self._sh(_SUMS, [str(source)], repeatable=True, timeout_s=_TRANSFER_S)
            if sums.exit_code != 0:
                raise self._refused(f"read {source}", sums)
            trees.compare(digests, trees.read_sums(sums.stdout), f"copy of {source} from {self._host}")
            trees.replace_folder(temporary, destination)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return digests

    def _sh(
        self,
        script: str,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        repeatable: bool = False,
        timeout_s: float = 120,
    ) -> CommandResult:
        """A script of ours, its arguments beside it."""
        return self.run(["sh", "-c", script, "sh", *arguments], stdin=stdin, repeatable=repeatable, timeout_s=timeout_s)

    def _refused(self, what: str, result: CommandResult) -> StorageError:
        why = "it took too long" if result.timed_out else last_line(result.stderr)
        return StorageError(
            f"cannot {what} on {self._host}: {why}",
            next_action="free space or fix permissions there, then resume the run",
        )

    def close(self) -> None:
        """End the shared connection."""
        if self._socket.exists():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # then it ends by itself (ControlPersist)
                self._tell_master("exit")
        shutil.rmtree(self._folder, ignore_errors=True)


def _short_folder() -> str:
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return own if own and len(own) < 50 and os.access(own, os.W_OK) else "/tmp"  # noqa: S108 - mkdtemp makes it private


def _sweep(folder: str) -> None:
    """Remove the empty folders of processes that were killed: their sockets have gone with their masters."""
    for path in Path(folder).glob("sf-*-*"):
        pid = path.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):  # not empty yet, or another user's
                path.rmdir()


def _all_of(stream: IO[bytes]) -> bytes:
    # By its descriptor: the position belongs to ssh, which still writes.
    return os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0)


def _skip_to_output(out: IO[bytes], mark: bytes) -> None:
    """Stand behind the mark: before it lies what the other side's login scripts printed."""
    out.seek(0)
    head = out.read(1 << 20)
    found = head.find(mark)
    out.seek(found + len(mark) if found >= 0 else 0)


def _result(spoken: _Spoken, stdout: bytes, started: float) -> CommandResult:
    """A shell tells death by signal n as 128 + n, and nothing else tells it: read so."""
    code: int | None = spoken.heard.status
    signal = spoken.signal
    if signal is not None or spoken.timed_out:
        code = None
    elif code is not None and 128 < code <= 128 + _HIGHEST_SIGNAL:
        signal = code - 128
        code = None
    return CommandResult(
        exit_code=code,
        signal=signal,
        stdout=stdout,
        stderr=spoken.heard.stderr,
        started_at=started,
        ended_at=time.time(),
    )
