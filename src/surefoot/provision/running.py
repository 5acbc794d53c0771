"""Runs Ansible's commands for the programs `look` and `check`, and leaves nothing behind."""

from __future__ import annotations

import base64
import binascii
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

from surefoot.errors import EvidenceError
from surefoot.model.cluster import Ansible
from surefoot.provision import commands
from surefoot.provision.listing import kept
from surefoot.provision.masks import known_secrets, longest_first, masked, masked_data, masked_texts, secrets_in
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
    """Secrets that are masked wherever they stand: the environment's, and the inventory's once it was listed."""

    def tool(self, name: str) -> str:
        """Path of a command. Exits with a word of what to install where there is none."""
        found = find_tool(name, self.asked.python)
        if found is None:
            sys.exit(f"no {name} on this machine: {NOT_FOUND_ACTION}")
        return found

    def run(self, argv: Sequence[str]) -> dict[str, Any]:
        """What a command answered, with secrets masked, in the form of `surefoot.rungs.slurm_view.Answer`."""
        done = self._done(argv)
        return {**done, "stdout": self.mask(done["stdout"]), "stderr": self.mask(done["stderr"])}

    def inventory(self, *, limited: bool = True) -> dict[str, Any]:
        """What ``ansible-inventory --list`` answered: of it what is read. Its secrets are known from then on.

        What is not the whole of an inventory is not recorded, as it cannot be told what in it is a secret; the
        answer's ``error`` says what was wrong with it.
        """
        asked = self.asked if limited else self.asked.model_copy(update={"limit": ""})
        done = self._done(commands.list_inventory(self.tool("ansible-inventory"), asked))
        text, done["stdout"] = done["stdout"], []
        try:
            done["stdout"] = kept(text, file="ansible-inventory").splitlines()
            self.known = longest_first({*self.known, *secrets_in(json.loads(text))})
        except EvidenceError as problem:
            if done["exit_code"] == 0:
                cut = f"{problem.problem} (it printed {len(text)} characters, which are not kept)"
                done |= {"exit_code": None, "error": cut}
        return {**done, "stderr": self.mask(done["stderr"])}

    def _done(self, argv: Sequence[str]) -> dict[str, Any]:
        """A command that ended, or that was ended; what it printed is one text each, with whatever stands in it."""
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
            "stdout": out,
            "stderr": err,
            "error": error,
            "started_at": started,
            "ended_at": time.time(),
        }

    def mask(self, text: str) -> list[str]:
        """Lines without secrets. Those that are JSON stay such; others are one text: a private key has many lines."""
        found: list[str] = []
        plain: list[str] = []
        for line in [*text.splitlines(), None]:
            event = _event(line)
            if line is not None and event is None:
                plain.append(line)
                continue
            found += masked("\n".join(plain), self.known).splitlines()
            plain = []
            if event is not None:
                found.append(json.dumps(self._event_masked(event)))
        return found

    def _event_masked(self, event: dict[str, Any]) -> dict[str, Any]:
        """An event's keys are no names of settings, but hosts and packages may be. What is packed is looked into."""
        if "event" not in event:
            return dict(masked_data(event, self.known))
        told = masked_texts(event, self.known)
        inner = unpacked(event.get("message"))
        return told if inner is None else {**told, "message": packed(masked_texts(inner, self.known))}

    def written(self, name: str, content: Any) -> str:
        """Path of a file with this content as JSON, in this program's own folder."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)


def packed(value: Any) -> str:
    """Base64 of a JSON document: what masks would change in a text, they cannot mistake here."""
    return base64.b64encode(json.dumps(value).encode()).decode()


def unpacked(message: Any) -> Any:
    """The JSON object that a message holds as base64, as those of `at_host` do; None where it holds none."""
    if not isinstance(message, str):
        return None
    try:
        found = json.loads(base64.b64decode(message, validate=True))
    except (ValueError, binascii.Error):
        return None
    return found if isinstance(found, dict) else None


def _event(line: str | None) -> dict[str, Any] | None:
    if line is None or not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


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
