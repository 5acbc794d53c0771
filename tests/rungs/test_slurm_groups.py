"""Groups of a cluster file that name no hosts share Slurm's nodes: each node counts once."""

from __future__ import annotations

import pytest

from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.rungs.slurm_view import Node, declared_nodes


def node(name: str, gpus: int = 0, state: str = "IDLE") -> Node:
    return Node(name, state, "", gpus, "22.05.8", f"NodeName={name} Partitions=gpu")


def too_few(nodes: list[Node], *groups: NodeGroup) -> list[bool]:
    cluster = Cluster(name="c", root="/r", node_groups=groups)
    return [declared.too_few for declared in declared_nodes(cluster, nodes)]


PAIR = [NodeGroup(name="a", count=2), NodeGroup(name="b", count=2)]


@pytest.mark.parametrize(("count", "expected"), [(2, [False, True]), (3, [False, True]), (4, [False, False])])
def test_two_groups_of_two_want_four_nodes(count: int, expected: list[bool]) -> None:
    assert too_few([node(f"n{number}") for number in range(count)], *PAIR) == expected


def test_a_spare_node_makes_up_for_one_that_is_drained() -> None:
    nodes = [node("n1", state="IDLE+DRAIN"), *[node(f"n{number}") for number in range(2, 6)]]
    assert too_few(nodes, *PAIR) == [False, False]
    assert too_few(nodes[:-1], *PAIR) == [False, True]


def test_each_group_gets_the_nodes_with_its_gpus() -> None:
    nodes = [node("n1", 4), node("n2", 4), node("n3", 8), node("n4", 8)]
    groups = (NodeGroup(name="big", count=2, gpus_per_node=8), NodeGroup(name="small", count=2, gpus_per_node=4))
    found = declared_nodes(Cluster(name="c", root="/r", node_groups=groups), nodes)
    assert [[each.name for each in declared.nodes] for declared in found] == [["n3", "n4"], ["n1", "n2"]]
