"""A real sshd on 127.0.0.1, with keys of its own, for as long as a test runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

import held

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


PROGRAMS = ("sshd", "ssh", "ssh-keygen")


def problems() -> list[str]:
    """What is missing for an sshd on this machine; empty where nothing is."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    found = [f"not installed: {', '.join(missing)} (scripts/setup.sh lab installs them)"] if missing else []
    return found + (["not root: sshd wants /run/sshd"] if os.getuid() != 0 else [])


@dataclass
class Sshd:
    """The server, and an ssh_config whose host `there` it is."""

    folder: Path
    config: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Listen; returns when it does."""
        log = self.folder / "sshd.log"
        before = log.stat().st_size if log.exists() else 0
        self.process = held.start([SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], self.folder, log)
        deadline = time.monotonic() + 30
        while b"Server listening on" not in log.read_bytes()[before:]:  # an answering port could be a stranger's
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def sessions(self) -> list[int]:
        """Process ids of the server's connections (below the listener)."""
        assert self.process is not None
        found, frontier = [], [self.process.pid]
        while frontier:
            path = Path(f"/proc/{frontier[0]}/task/{frontier.pop(0)}/children")
            children = [int(pid) for pid in path.read_text().split()] if path.exists() else []
            mine = [pid for pid in children if _command(pid).startswith("sshd")]
            found += mine
            frontier += mine
        return found

    def cut(self) -> int:
        """End every connection, as a dead link would; returns how many processes had one."""
        sessions = self.sessions()
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(sessions)

    def stop(self) -> None:
        """Stop listening and end every connection."""
        if self.process is not None:
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split("/")[-1]
    except OSError:
        return ""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    """Make keys and configuration in `folder`, start, and stop at the end."""
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\nPidFile none\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nUsePAM no\nMaxSessions 64\nMaxStartups 100\n"
    )
    host_key = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n")
    (folder / "ssh_config").write_text(
        f"Host there\n  HostName 127.0.0.1\n  Port {port}\n  User {getuser()}\n  IdentityFile {folder}/user_key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    server = Sshd(folder, folder / "ssh_config", port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
