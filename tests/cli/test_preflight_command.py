"""``surefoot preflight`` with real ranks: the stable line stands where everything passed, and nowhere else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.cli import run
from surefoot.model.status import ExitCode
from tampered_rank import tampered

pytestmark = pytest.mark.slow

CLUSTER = """
name: here
root: {root}
python: {python}
node_groups: [{{name: nodes, count: 1}}]
"""


def cluster(folder: Path, python: str = sys.executable) -> Path:
    path = folder / "here.yaml"
    path.write_text(CLUSTER.format(root=folder / "root", python=python))
    return path


def test_a_sound_machine_ends_with_the_stable_line_and_exit_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["preflight", "--cluster", str(cluster(tmp_path)), "--ranks-per-node", "2"]) == ExitCode.PROVED
    assert capsys.readouterr().out.splitlines()[-1] == SUCCESS


def test_one_rank_that_fails_is_named_and_the_stable_line_is_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tampered(tmp_path / "inject", 1, "ALL_REDUCE", "raise RuntimeError('CUDA error: device-side assert')")
    asked = ["preflight", "--cluster", str(cluster(tmp_path, python)), "--ranks-per-node", "2", "--json"]
    assert run(asked) == ExitCode.DISPROVED
    said = capsys.readouterr()
    assert SUCCESS not in said.out + said.err
    answer = json.loads(said.out)
    assert answer["asked"] == {
        "rungs": ["runner", "sync", "precheck", "mesh"], "status": "FAILED", "exit_code": 1, "interrupted": False,
    }  # fmt: skip
    assert "rank 1 on" in said.err


def test_more_nodes_than_there_are_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["preflight", "--cluster", str(cluster(tmp_path)), "--nodes", "9"]) != ExitCode.PROVED
    assert SUCCESS not in capsys.readouterr().out
