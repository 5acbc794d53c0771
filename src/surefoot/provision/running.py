"""Runs Ansible's commands for the programs `look` and `check`, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.model.cluster import Ansible
from surefoot.provision import commands
from surefoot.provision.masks import known_secrets, masked, masked_data
from surefoot.provision.tools import NOT_FOUND_ACTION, find_tool

PLAYBOOKS = Path(__file__).parent / "playbooks"
AT_HOST = Path(__file__).parent / "at_host.py"
_GRACE_S = 5.0
_LONGEST_PLACE = 20
"""Characters: a socket's path holds 107, of which its name has 40, ssh wants 17, and the folder's own name has 27."""


@dataclass
class Running:
    """Ansible's commands on one site, until a deadline."""

    asked: Ansible
    folder: Path
    """A folder of this program's own, gone at its end."""
    deadline: float
    """By the monotonic clock."""
    known: tuple[str, ...] = field(default_factory=lambda: known_secrets(os.environ))

    def tool(self, name: str) -> str:
        """Path of a command. Exits with a word of what to install where there is none."""
        found = find_tool(name, self.asked.python)
        if found is None:
            sys.exit(f"no {name} on this machine: {NOT_FOUND_ACTION}")
        return found

    def run(self, argv: Sequence[str]) -> dict[str, Any]:
        """What a command answered, with secrets masked, in the form of `surefoot.rungs.slurm_view.Answer`."""
        environment = commands.environment(self.asked.site, os.environ, sockets=str(self.folder))
        started = time.time()
        out, err, code, error = "", "", None, ""
        try:
            process = subprocess.Popen(
                list(argv),
                cwd=self.asked.site,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as problem:
            error = f"cannot be started: {problem}"
        else:
            try:
                out, err = process.communicate(timeout=max(1.0, self.deadline - time.monotonic()))
                code = process.returncode
            except subprocess.TimeoutExpired:
                error = f"did not end within {time.time() - started:.0f} s"
                out, err = _ended(process)
            except BaseException:
                _ended(process)
                raise
        if code is not None and code < 0:
            error, code = f"died of signal {-code}", None
        return {
            "argv": [Path(argv[0]).name, *argv[1:]],
            "exit_code": code,
            "stdout": self.mask(out).splitlines(),
            "stderr": self.mask(err).splitlines(),
            "error": error,
            "started_at": started,
            "ended_at": time.time(),
        }

    def mask(self, text: str) -> str:
        """Text without secrets. A JSON document, or lines of them, stay such."""
        try:
            document = json.loads(text)
        except ValueError:
            return "\n".join(self._line(line) for line in text.splitlines())
        return json.dumps(masked_data(document, self.known), indent=1)

    def _line(self, line: str) -> str:
        if not line.startswith("{"):
            return masked(line, self.known)
        try:
            return json.dumps(masked_data(json.loads(line), self.known))
        except ValueError:
            return masked(line, self.known)

    def written(self, name: str, content: Any) -> str:
        """Path of a file with this content as JSON, in this program's own folder."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command; what it said. Ansible ends its own workers when it is told to end."""
    process.terminate()
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return out, err


@contextlib.contextmanager
def running(asked: dict[str, Any]) -> Iterator[Running]:
    """Ansible's commands for one program; afterwards its files and ssh's control connections are gone."""

    def ended(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, ended)
    with control_sockets() as folder:
        yield Running(
            asked=Ansible.model_validate(asked["ansible"]),
            folder=folder,
            deadline=time.monotonic() + float(asked["limit_s"]),
        )


@contextlib.contextmanager
def control_sockets() -> Iterator[Path]:
    """A new folder for the sockets of the connections that Ansible keeps open; they and it are gone afterwards."""
    place = "/tmp" if len(tempfile.gettempdir()) > _LONGEST_PLACE else None  # noqa: S108 - mode 700, with a random name
    with tempfile.TemporaryDirectory(prefix="surefoot-ansible-", dir=place, ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            _close_connections(Path(folder))


def _close_connections(folder: Path) -> None:
    """Ansible keeps an ssh open to every host for the next task: there is none."""
    for socket in folder.iterdir():
        if socket.is_socket():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "whoever"],
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    timeout=5,
                    check=False,
                )


def printed(document: dict[str, Any]) -> None:
    """The program's one answer."""
    sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
