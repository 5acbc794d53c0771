"""The project's own playbooks on a lab that stands, as a person runs them; what happened, event by event."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.lab.provisioning import SITE, require
from surefoot.provision.commands import environment, named
from surefoot.provision.running import control_sockets

KILLING = Path(__file__).parent / "killing"
"""A callback of tests: it kills Ansible when a named host is done with a named task."""


@dataclass(frozen=True)
class Played:
    """A playbook that ended, or was ended."""

    code: int
    text: str = field(repr=False)
    """All that it printed."""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith('{"event"')]

    @property
    def problems(self) -> list[str]:
        """Where what failed, a line each."""
        rows = [e for e in self.events if e.get("status") in ("failed", "unreachable") and not e.get("ignored")]
        return [f"{_where(each)}: {each.get('message', '')}" for each in rows]

    @property
    def changed(self) -> list[str]:
        """What was changed where, a line each."""
        rows = [each for each in self.events if each.get("status") == "changed"]
        return [f"{_where(each)}: {each.get('path') or each.get('item') or ''}" for each in rows]

    @property
    def stats(self) -> dict[str, dict[str, int]]:
        """Host → its figures at the end. Empty where it was ended before."""
        last = self.events[-1] if self.events else {}
        return {host: row for host, row in last.get("hosts", {}).items() if host != "localhost"} if last["event"] == "stats" else {}  # fmt: skip

    def well(self, *, changed: int | None = None) -> Played:
        """Asserts that it ended well and, where that is said, how much every host was changed."""
        assert self.code == 0, "\n".join(self.problems) or self.text[-3000:]
        if changed is not None:
            found = {host: row["changed"] for host, row in self.stats.items()}
            assert found == dict.fromkeys(self.stats, changed), self.changed
        return self


def _where(event: Mapping[str, Any]) -> str:
    return f"{event.get('host')}: {event.get('role', '')}: {event.get('task')}"


def run(
    inventories: Sequence[str],
    folder: Path,
    playbook: str,
    *words: str,
    env: Mapping[str, str] | None = None,
    kill_after: float | tuple[str, str] | None = None,
) -> Played:
    """A playbook of the project, or one of a test's own by its whole path. `folder`: what Ansible keeps.

    `kill_after`: Ansible and all that it started here die of SIGKILL, after so many seconds, or when a host is
    done with a task and before the next one begins: ``("n1", "The key is the cluster's")``.
    """
    with control_sockets() as sockets:
        own = environment(str(SITE), os.environ, sockets=str(sockets)) | {"ANSIBLE_HOME": str(folder)} | dict(env or {})
        if isinstance(kill_after, tuple):
            host, task = kill_after
            own.setdefault("ANSIBLE_CALLBACK_PLUGINS", str(SITE / "plugins/callback"))
            own |= {
                "ANSIBLE_CALLBACK_PLUGINS": f"{own['ANSIBLE_CALLBACK_PLUGINS']}:{KILLING}",
                "KILL_AFTER_HOST": host,
                "KILL_AFTER_TASK": task,
            }
        process = subprocess.Popen(
            [require(), *named(inventories), *words, str(SITE / playbook)],
            cwd=SITE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own,
            start_new_session=True,
        )  # fmt: skip
        try:
            text, _ = process.communicate(timeout=kill_after if isinstance(kill_after, int | float) else 900)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            assert kill_after is not None, f"not done after 900 s:\n{text[-3000:]}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return Played(process.returncode, text)


def play(inventories: Sequence[str], folder: Path, playbook: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, events) of a playbook of the project. `folder`: what Ansible keeps."""
    played = run(inventories, folder, playbook, *words)
    return played.code, played.events


def totals(events: list[dict[str, Any]], name: str) -> dict[str, int]:
    """Host → its figure `name` at the end: changed, failures, …"""
    return {host: counts[name] for host, counts in events[-1]["hosts"].items() if host != "localhost"}


def differing(events: list[dict[str, Any]], *statuses: str) -> list[tuple[str, ...]]:
    """(host, role, task, message) of the results of these statuses."""
    return [
        (each["host"], each.get("role", ""), each["task"], each.get("message", ""))
        for each in events
        if each["event"] == "result" and each["status"] in statuses
    ]
