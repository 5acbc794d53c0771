"""rolling.yml without hosts: what a part of it leaves out, by a real Ansible, and how many GPUs a node is taken to have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loaded import loaded

ANSIBLE = Path(__file__).parents[2] / "ansible"


@pytest.mark.slow
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


NODE = "NodeName=n1 Arch=x86_64 CoresPerSocket=1 Gres={gres} NodeAddr=10.77.0.11 State=IDLE+DRAIN CfgTRES={tres} AllocTRES= Reason=x"


def gpus(gres: str, tres: str = "cpu=96,mem=2000000M,billing=96") -> int:
    found: int = loaded("plugins/filter/node_gpus.py").node_gpus(NODE.format(gres=gres, tres=tres))
    return found


def test_gpus_are_counted_by_accounting_where_it_counts_them() -> None:
    assert gpus("gpu:fake:8(S:0-1)", "cpu=96,mem=2000000M,billing=96,gres/gpu=7,gres/gpu:fake=7") == 7


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gpu:fake:8", 8), ("gpu:8(S:0,2)", 8), ("gpu:h100:8(S:0-1),gpu:1g.10gb:4(S:0,1),shard:32", 12), ("(null)", 0), ("shard:16", 0)],
)  # fmt: skip
def test_without_accounting_gpus_are_counted_by_the_nodes_own_line(gres: str, count: int) -> None:
    assert gpus(gres) == count


@pytest.mark.parametrize(
    "shown", ["", "slurm_load_node error: Unable to contact slurm controller", "NodeName=n1 State=IDLE"]
)
def test_an_answer_that_says_nothing_of_gpus_is_no_node_without_them(shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape("says neither Gres= nor gres/gpu")):
        loaded("plugins/filter/node_gpus.py").node_gpus(shown)
