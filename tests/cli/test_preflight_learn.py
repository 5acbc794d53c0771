"""``surefoot preflight --learn``: what was seen is a cluster file that the same nodes pass, and others do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.cli import run
from surefoot.config.load import load_cluster
from surefoot.model.status import ExitCode

CLUSTER = "name: here\nroot: {root}\npython: {python}\nnode_groups: [{{name: nodes, count: 1}}]\n"


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "here.yaml"
    path.write_text(CLUSTER.format(root=tmp_path / "root", python=sys.executable))
    return path


@pytest.mark.slow
def test_the_same_node_passes_what_was_learnt_and_one_altered_fact_fails_by_its_name(
    tmp_path: Path, declared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt = tmp_path / "learnt.yaml"
    small = ["--ranks-per-node", "1"]
    assert run(["preflight", "--cluster", str(declared), "--learn", str(learnt), *small]) == ExitCode.PROVED
    assert "TO BE REVIEWED" in learnt.read_text()
    expect = load_cluster(learnt).record.node_groups[0].expect
    assert len(expect) > 10
    assert run(["preflight", "--cluster", str(learnt), *small]) == ExitCode.PROVED
    learnt.write_text(re.sub(r"^( +kernel: ).*", r"\g<1>another", learnt.read_text(), flags=re.MULTILINE))
    capsys.readouterr()
    again = tmp_path / "again.yaml"
    assert run(["preflight", "--cluster", str(learnt), "--learn", str(again), *small]) == ExitCode.DISPROVED
    assert "nodes has kernel = another" in capsys.readouterr().out
    assert "precheck.expect.nodes.kernel FAILED" in again.read_text()
    assert load_cluster(again).record.node_groups[0].expect == expect


def test_a_file_that_exists_is_refused_before_anything_runs(tmp_path: Path, declared: Path) -> None:
    assert run(["preflight", "--cluster", str(declared), "--learn", str(declared)]) == ExitCode.REQUEST
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
def test_of_two_that_learn_one_file_at_once_one_writes_it_and_the_other_says_so(tmp_path: Path, declared: Path) -> None:
    learnt, ladder = tmp_path / "learnt.yaml", tmp_path / "short.yaml"
    ladder.write_text("name: short\nrungs: [{rung: runner}, {rung: sync}, {rung: precheck, needs: [sync]}]\n")
    words = ["preflight", "--cluster", str(declared), "--ladder", str(ladder), "--learn", str(learnt)]
    command = [sys.executable, "-m", "surefoot", *words]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert sorted(process.returncode for process in both) == [ExitCode.PROVED, ExitCode.MACHINERY], said
    assert sum(f"{learnt} exists by now" in err for _, err in said) == 1, said
    assert load_cluster(learnt).record.node_groups[0].expect


@pytest.mark.slow
def test_without_a_pre_check_nothing_is_written_and_nothing_is_proved(tmp_path: Path, declared: Path) -> None:
    ladder = tmp_path / "short.yaml"
    ladder.write_text("name: short\nrungs: [{rung: runner}]\n")
    learnt = tmp_path / "learnt.yaml"
    asked = ["preflight", "--cluster", str(declared), "--ladder", str(ladder), "--learn", str(learnt)]
    assert run(asked) == ExitCode.UNPROVED
    assert not learnt.exists()


SINFO = """#!/bin/sh
printf 'n1\\037gpu*\\037idle\\03764\\0371000\\037gpu:h100:8\\037none\\n'
printf 'n2\\037gpu*\\037drained\\03764\\0371000\\037gpu:h100:8\\037bad rail\\n'
"""


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--cluster", "local"], ExitCode.REQUEST, "two clusters"),
        (["--partition", "none"], ExitCode.MACHINERY, "it shows: gpu"),
        (["--shared-root", "/a%b"], ExitCode.REQUEST, "--shared-root"),
        (["--learn", "learnt.yaml"], ExitCode.DISPROVED, "n2 is drained (bad rail)"),
    ],
)
def test_what_slurm_cannot_answer_is_told_with_what_it_shows(
    *,
    more: list[str],
    code: ExitCode,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "sinfo"
    program.write_text(SINFO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUREFOOT_ROOT", raising=False)
    assert run(["preflight", "--slurm", *more]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err
    assert not (tmp_path / "learnt.yaml").exists()


def test_off_a_login_node_the_next_step_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["preflight", "--slurm"]) == ExitCode.REQUEST
    assert "--cluster FILE" in capsys.readouterr().err
