"""rolling.yml by a real Ansible, without hosts: what a part of it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ANSIBLE = Path(__file__).parents[2] / "ansible"


@pytest.mark.parametrize("words", [(), ("--tags", "slurm")], ids=["all", "slurm"])
def test_no_part_of_a_rolling_change_leaves_out_to_drain_to_verify_and_to_resume(words: tuple[str, ...]) -> None:
    tool = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [tool, "-i", "inventory/common", "-i", "inventory/two-sparks", "rolling.yml", "--list-tasks", *words],
        cwd=ANSIBLE, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    nodes = done.stdout.split("Nodes, one after the other")[1]
    wanted = ("Node takes no new jobs", "slurm : ", "Slurm knows the node, with all its GPUs", "Node takes jobs again")
    assert [task for task in wanted if task not in nodes] == []
    assert sorted(wanted, key=nodes.index) == list(wanted)
