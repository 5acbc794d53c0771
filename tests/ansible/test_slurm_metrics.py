"""What counts Slurm's nodes and jobs for the node exporter: every node once, and no count where Slurm was not understood."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from loaded import loaded

PROGRAM = Path(__file__).parents[2] / "ansible/roles/monitoring/files/slurm_metrics.py"


@pytest.fixture(scope="module")
def counts() -> ModuleType:
    return loaded("roles/monitoring/files/slurm_metrics.py")


def run(folder: Path, sinfo: str, squeue: str) -> tuple[int, str, str]:
    """The program with commands of Slurm's that are these shell scripts: exit code, standard error, the file."""
    for name, script in (("sinfo", sinfo), ("squeue", squeue)):
        command = folder / name
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    file = folder / "slurm.prom"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(file)],
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr, file.read_text() if file.exists() else ""


def test_a_node_in_two_partitions_is_counted_once(counts: ModuleType) -> None:
    nodes = counts.read_nodes("n1|idle\nn2|mixed\nn1|idle\n")
    text = counts.metrics(nodes, {}, 0)
    assert 'surefoot_slurm_nodes{state="idle"} 1\n' in text
    assert 'surefoot_slurm_nodes{state="mixed"} 1\n' in text
    assert 'surefoot_slurm_nodes{state="down"} 0\n' in text


@pytest.mark.parametrize(
    ("line", "unavailable"),
    [
        ("n1|idle", None),
        ("n1|allocated+", None),
        ("n1|idle~", None),
        ("n1|powering_up#", None),
        ("n1|idle*", "not_responding"),
        ("n1|down*", "down"),
        ("n1|down", "down"),
        ("n1|drained", "drained"),
        ("n1|draining@", "draining"),
        ("n1|inval", "inval"),
        ("n1|unknown*", "unknown"),
        ("n1|failing", "failing"),
    ],
)
def test_each_node_that_takes_no_jobs_is_named_with_its_state(
    counts: ModuleType, line: str, unavailable: str | None
) -> None:
    text = counts.metrics(counts.read_nodes(line), {}, 0)
    named = [row for row in text.splitlines() if row.startswith("surefoot_slurm_node_unavailable{")]
    assert named == (
        [] if unavailable is None else [f'surefoot_slurm_node_unavailable{{node="n1",state="{unavailable}"}} 1']
    )
    assert f"surefoot_slurm_nodes_not_responding {int('*' in line)}\n" in text


@pytest.mark.parametrize("text", ["", "n1\n", "n1|\n", "n1|idle|x\n", "slurm_load_partitions: Unable to contact\n"])
def test_what_is_not_a_list_of_nodes_is_refused_with_its_line(counts: ModuleType, text: str) -> None:
    with pytest.raises(counts.NotUnderstoodError, match="sinfo"):
        counts.read_nodes(text)


def test_a_line_that_is_no_state_of_a_job_is_refused(counts: ModuleType) -> None:
    assert counts.read_jobs("RUNNING\nRUNNING\nPENDING\n") == {"running": 2, "pending": 1}
    with pytest.raises(counts.NotUnderstoodError, match="line 2"):
        counts.read_jobs("RUNNING\n\nPENDING\n")


def test_an_empty_queue_is_counted_as_none(tmp_path: Path) -> None:
    before = time.time()
    code, said, text = run(tmp_path, "echo 'n1|idle'", "true")
    assert (code, said) == (0, "")
    assert 'surefoot_slurm_jobs{state="running"} 0\n' in text
    assert "surefoot_slurm_answers 1\n" in text
    written = float(text.rpartition("surefoot_slurm_written_timestamp_seconds ")[2])
    assert before - 1 < written < time.time() + 1


@pytest.mark.parametrize(
    ("sinfo", "squeue", "why"),
    [
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "true", "sinfo: exit 1: Unable to contact"),
        ("echo 'n1|idle'", "echo broken >&2; exit 3", "squeue: exit 3: broken"),
        ("true", "true", "sinfo names no node"),
    ],
)
def test_counts_of_before_are_gone_where_slurm_does_not_answer(
    tmp_path: Path, sinfo: str, squeue: str, why: str
) -> None:
    assert run(tmp_path, "echo 'n1|idle'", "true")[0] == 0
    code, said, text = run(tmp_path, sinfo, squeue)
    assert code == 1
    assert why in said
    assert "surefoot_slurm_answers 0\n" in text
    assert "surefoot_slurm_nodes" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sinfo", "slurm.prom", "squeue"]
