"""Climbs on a lab, as a user starts them: real processes here, ssh, a real Slurm over two hosts and more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from drilling import Drill
from held import Held
from surefoot.lab import machine
from surefoot.lab.network import MGMT, SWITCH, namespace, port
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, LabPaths, lab_home
from surefoot.lab.spec import Tier


def lab(*words: str, name: str) -> str:
    """``surefoot lab WORDS --name NAME``, which must end well; what it printed."""
    command, *rest = words
    argv = [sys.executable, "-m", "surefoot", "lab", command, "--name", name, *rest]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def lab_here(held: Held, letter: str, *words: str) -> Iterator[LabPaths]:
    """A lab of this session's own, made by ``surefoot lab up WORDS`` and gone afterwards. Fails where none can be."""
    home = lab_home(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))
    if missing := machine.problems(Tier.HOSTS, home.folder):
        pytest.fail(f"this machine cannot hold a lab: {'; '.join(each.what for each in missing)}", pytrace=False)
    name = held.lab(letter)
    try:
        lab("up", *words, name=name)
        yield home.lab(name)
    finally:
        lab("down", "--purge", name=name)


@dataclass
class LabDrill(Drill):
    """Commands that climb on a lab. Runs are kept below `root`, and on the lab's shared root."""

    lab: LabPaths | None = None
    limit_s: float = 500
    """Hosts of a lab share this machine's cores with each other, and with other labs."""

    @property
    def paths(self) -> LabPaths:
        assert self.lab is not None
        return self.lab

    @property
    def on_lab(self) -> tuple[str, str]:
        return "--cluster", str(self.paths.cluster)

    def on_head(self, *argv: str) -> str:
        """What a command prints on the head, run by the lab's user."""
        command = ["ssh", "-F", str(self.paths.ssh_config), "head", *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def queue(self) -> list[str]:
        """Jobs that Slurm has: id and name."""
        return self.on_head("squeue", "-h", "-o", "%i_%j").split()

    def shared_run(self) -> Path:
        """The run as it lies on the lab's shared root."""
        return self.paths.shared / "runs" / self.run_folder().name

    @contextmanager
    def link_cut(self, seconds: float) -> Iterator[None]:
        """For so long this machine reaches no host of the lab; the hosts reach each other."""
        name = self.paths.folder.name
        change = ["ip", "-n", namespace(name, SWITCH), "link", "set", port(MGMT)]
        subprocess.run([*change, "down"], check=True)
        back = threading.Timer(seconds, lambda: subprocess.run([*change, "up"], check=True))
        back.start()
        try:
            yield
        finally:
            back.join()


def events(run: Path) -> list[dict[str, object]]:
    """What happened in a run so far."""
    path = run / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
