"""``surefoot preflight`` on a node of eight GPUs that are pretended (`fake_gpus`): each rank on its own, or named."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_gpus import FakeGpus
from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.cli import run
from surefoot.model.status import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CLUSTER = """
name: here
root: {root}
python: {python}
node_groups: [{{name: nodes, count: 1, gpus_per_node: {gpus}, gpu_model: H200}}]
software: {{driver: 580.95.05}}
"""
HOST = socket.gethostname()


@pytest.fixture
def fake(tmp_path: Path) -> FakeGpus:
    found = FakeGpus(tmp_path / "fake")
    found.node(HOST)
    return found


def preflight(folder: Path, python: str, *words: str, gpus: int = 8) -> int:
    path = folder / "here.yaml"
    path.write_text(CLUSTER.format(root=folder / "root", python=python, gpus=gpus))
    return run(["preflight", "--cluster", str(path), "--set", "mesh.backend=gloo", *words])


def result(folder: Path, rung: str) -> Any:
    (path,) = (folder / "root/runs").glob(f"*/rungs/{rung}/result.json")
    return json.loads(path.read_text())


def not_passed(found: Any) -> dict[str, str]:
    """Check → what was found, of those that did not pass."""
    return {c["id"]: str(c["actual"]) for c in found["judgement"]["checks"] if c["status"] != "PASSED"}


def test_eight_ranks_each_take_the_gpu_of_their_local_rank(
    fake: FakeGpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preflight(tmp_path, fake.python()) == ExitCode.PROVED
    assert capsys.readouterr().out.splitlines()[-1] == SUCCESS
    mesh = result(tmp_path, "mesh")
    rows = mesh["judgement"]["details"]["ranks"]
    assert [(row["local_rank"], row["uuid"]) for row in rows] == [(i, f"{HOST}-{i}") for i in range(8)]
    assert "over gloo" in mesh["judgement"]["summary"]


def test_a_node_whose_torch_sees_no_gpu_is_no_success_over_gloo_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ladder = tmp_path / "mesh.yaml"
    ladder.write_text("name: m\nrungs: [{rung: runner}, {rung: sync, needs: [runner]}, {rung: mesh, needs: [sync]}]\n")
    assert preflight(tmp_path, sys.executable, "--ladder", str(ladder), gpus=2) == ExitCode.DISPROVED
    said = capsys.readouterr()
    assert SUCCESS not in said.out + said.err
    assert "sees 0" in not_passed(result(tmp_path, "mesh"))["mesh.complete"]


def test_two_ranks_that_were_shown_one_gpu_are_named(
    fake: FakeGpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.node(
        HOST, count=2, ranks='[ -z "$LOCAL_WORLD_SIZE" ] || [ $LOCAL_WORLD_SIZE = 1 ] || export CUDA_VISIBLE_DEVICES=1'
    )
    assert preflight(tmp_path, fake.python(), gpus=2) == ExitCode.DISPROVED
    assert SUCCESS not in capsys.readouterr().out
    assert f"used the same GPU as rank 0 on {HOST}" in not_passed(result(tmp_path, "mesh"))["mesh.devices"]
