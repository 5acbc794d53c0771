"""Where ranks compute: what was declared, or an error; never the CPU of its own accord."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rungs_harness import planned
from surefoot.errors import RequestError
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.ladder import Ddp
from surefoot.rungs.base import Layout, idle_gpu, layout
from surefoot.rungs.table import RUNGS


def cluster(gpus: int) -> Cluster:
    return Cluster(name="here", root="/r", node_groups=(NodeGroup(name="n", count=1, gpus_per_node=gpus),))


def ranks(number: Any) -> Ddp:
    return Ddp(rung="ddp", ranks_per_node=number)


@pytest.mark.parametrize("collective", [False, True])
def test_eight_ranks_on_seven_gpus_are_refused_and_never_go_to_the_cpu(collective: bool) -> None:
    with pytest.raises(RequestError, match="ranks_per_node: 8, but a node of cluster 'here' has 7 GPUs") as refused:
        layout(cluster(7), ranks(8), collective=collective)
    assert "ranks_per_node to 7" in refused.value.next_action


@pytest.mark.parametrize("rung", ["collectives", "compute", "ddp"])
def test_every_rung_that_computes_refuses_more_ranks_than_gpus(rung: str, tmp_path: Path) -> None:
    group = {"name": "g", "count": 1, "gpus_per_node": 1}
    with pytest.raises(RequestError, match="1 GPU,"):
        planned(RUNGS[rung], {"ranks_per_node": 2}, tmp_path, node_groups=[group])


@pytest.mark.parametrize("rung", ["storage", "scheduler", "fake_trainer"])
def test_a_rung_that_computes_nothing_may_have_more_ranks_than_gpus(rung: str, tmp_path: Path) -> None:
    group = {"name": "g", "count": 1, "gpus_per_node": 1}
    jobs = planned(RUNGS[rung], {"ranks_per_node": 4}, tmp_path, node_groups=[group]).plan.jobs
    assert (jobs[-1].world_size, jobs[-1].gpus_per_node) == (4, 0)


@pytest.mark.parametrize(
    ("gpus", "number", "wanted"),
    [
        (0, "auto", Layout(1, 2, "cpu")),
        (0, 8, Layout(1, 8, "cpu")),
        (1, "auto", Layout(1, 2, "cpu")),
        (1, 1, Layout(1, 1, "cuda")),
        (8, "auto", Layout(1, 8, "cuda")),
        (8, 2, Layout(1, 2, "cuda")),
    ],
)
def test_ranks_that_talk_to_each_other(gpus: int, number: Any, wanted: Layout) -> None:
    assert layout(cluster(gpus), ranks(number), collective=True) == wanted


def test_one_gpu_is_left_alone_by_ranks_that_talk_and_used_by_those_that_do_not() -> None:
    assert idle_gpu(cluster(1), layout(cluster(1), ranks("auto"), collective=True))
    assert not idle_gpu(cluster(1), layout(cluster(1), ranks("auto")))
    assert not idle_gpu(cluster(0), layout(cluster(0), ranks("auto"), collective=True))
