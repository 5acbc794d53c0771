"""Without the `train` extra Surefoot judges, shows and reports; only rungs that train need it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from drilling import Drill, statuses
from surefoot.cli import COMMANDS
from surefoot.config.load import load_cluster

pytestmark = pytest.mark.slow

BLOCKER = """
import sys

class Blocker:
    names = {"torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "matplotlib"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drill:
    """A machine without the extras, as far as the Python of commands and of jobs can tell."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCKER)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    cluster = load_cluster("local").text
    (tmp_path / "bare.yaml").write_text(cluster.replace("root: .surefoot", f"root: .surefoot\npython: {python}"))
    return Drill(tmp_path / "root")


def test_a_climb_ends_at_the_first_rung_that_needs_torch_and_says_what_to_install(bare: Drill) -> None:
    cluster = str(bare.root.parent / "bare.yaml")
    done = bare.run("climb", "--cluster", cluster, "--set", "fake_trainer.seconds=0.1")
    assert done.returncode == 2, done.stderr
    assert "No module named 'torch'" in done.stdout
    assert "install surefoot[train] for the interpreter" in done.stdout
    answer = bare.json("show", code=2)
    found = statuses(answer)
    assert [found[name] for name in ("runner", "sync", "scheduler", "fake_trainer")] == ["PASSED"] * 4
    assert found["precheck"] == "INCONCLUSIVE"
    assert found["finetune"] == "BLOCKED"
    assert bare.json("judge", "latest", code=2)["differs_from_recorded"] == []
    assert bare.run("report").returncode == 2
    assert bare.run("runs").returncode == 0


def test_a_schema_needs_no_extra(bare: Drill) -> None:
    assert json.loads(bare.run("schema", "ladder", root=False).stdout)["title"] == "Surefoot ladder"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_needs_no_extra(bare: Drill, command: str) -> None:
    done = bare.run(command, "--help", root=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: surefoot {command}")
