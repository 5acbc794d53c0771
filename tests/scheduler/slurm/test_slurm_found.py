"""A cluster without a cluster file: what Slurm tells, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surefoot.errors import SchedulerError
from surefoot.hostlist import expand
from surefoot.model.cluster import SlurmScheduler
from surefoot.scheduler.slurm.found import cluster_of
from surefoot.scheduler.slurm.parse import NodeRow


def row(
    name: str, *, partition: str = "gpu", state: str = "idle", gpus: int = 8, reason: str = "", responds: bool = True
) -> NodeRow:
    return NodeRow(name, partition, partition == "gpu", state, 64, 1000, gpus, reason, responds)


def test_nodes_that_differ_are_groups_of_their_own() -> None:
    found = cluster_of([row("n1"), row("n2"), row("n3", gpus=4), row("c1", partition="cpu")], "", "/r")
    assert [(g.count, expand(g.hosts), g.gpus_per_node, g.min_cpus) for g in found.cluster.node_groups] == [
        (1, ["n3"], 4, 64),
        (2, ["n1", "n2"], 8, 64),
    ]
    assert found.cluster.scheduler == SlurmScheduler(kind="slurm", partition="gpu")
    assert all(not g.expect and not g.rails and not g.gpu_model for g in found.cluster.node_groups)


def test_nodes_out_of_service_are_named_and_counted() -> None:
    found = cluster_of(
        [row("n1"), row("n2", state="drained", reason="bad rail"), row("n3", responds=False)], "gpu", "/r"
    )
    assert found.told == "1 of 3 nodes; left out: n2 is drained (bad rail), n3 is idle, and does not respond"


def test_an_unknown_partition_says_which_there_are() -> None:
    with pytest.raises(SchedulerError, match="no node in partition 'x'; it shows: gpu"):
        cluster_of([row("n1")], "x", "/r")


def test_no_usable_node_is_an_error_that_names_each() -> None:
    with pytest.raises(SchedulerError, match="n1 is down"):
        cluster_of([row("n1", state="down")], "gpu", "/r")


def test_gpus_of_two_types_are_two_groups_that_say_so() -> None:
    mixed = [replace(row("n1"), gpu_type="h100"), replace(row("n2"), gpu_type="a100")]
    assert [(g.name, g.hosts) for g in cluster_of(mixed, "gpu", "/r").cluster.node_groups] == [
        ("8gpu-a100-64cpu", "n2"),
        ("8gpu-h100-64cpu", "n1"),
    ]


def test_nodes_of_more_cpus_come_first_so_that_each_fits_its_own_group() -> None:
    mixed = [row("n1"), replace(row("n2"), cpus=128)]
    assert [g.min_cpus for g in cluster_of(mixed, "gpu", "/r").cluster.node_groups] == [128, 64]
