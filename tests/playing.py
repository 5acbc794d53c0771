"""The project's own playbooks on a lab that stands, as a person runs them; what happened, event by event."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.lab.provisioning import SITE, require
from surefoot.provision.commands import environment, named
from surefoot.provision.running import control_sockets


def play(inventories: Sequence[str], folder: Path, playbook: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """(exit code, events) of a playbook of the project. `folder`: what Ansible keeps."""
    with control_sockets() as sockets:
        done = subprocess.run(
            [require(), *named(inventories), *words, str(SITE / playbook)],
            cwd=SITE, capture_output=True, text=True, timeout=400, check=False,
            env=environment(str(SITE), os.environ, sockets=str(sockets)) | {"ANSIBLE_HOME": str(folder)},
        )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, events


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
