"""What collectives must move between nodes: no more than any algorithm moves, and nothing of what may take one NIC."""

from __future__ import annotations

import pytest

from surefoot.benchmarks.collective_sizes import busbw_factor
from surefoot.benchmarks.nccl_rails import PortBytes
from surefoot.benchmarks.node_bytes import least_bytes, least_of_all

S = 1200


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_ring_moves_at_least_that_much_each_way(nodes: int) -> None:
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        for amount in least_bytes(name, S, nodes, root=False):
            assert 0 < amount <= S * busbw_factor(name, nodes)


def test_each_collective_by_hand_on_three_nodes() -> None:
    assert least_bytes("all_reduce", S, 3, root=False) == PortBytes(1200, 1200)
    assert least_bytes("all_gather", S, 3, root=False) == PortBytes(400, 800)
    assert least_bytes("reduce_scatter", S, 3, root=False) == PortBytes(800, 400)
    assert least_bytes("broadcast", S, 3, root=True) == PortBytes(1200, 0)
    assert least_bytes("broadcast", S, 3, root=False) == PortBytes(0, 1200)


@pytest.mark.parametrize("name", ["alltoall", "sendrecv"])
def test_pairs_of_ranks_are_not_counted_on(name: str) -> None:
    assert least_bytes(name, S, 2, root=True) == PortBytes(0, 0)


def test_points_and_runs_add_up_and_one_node_moves_nothing() -> None:
    points = [("all_reduce", 100), ("broadcast", 10), ("alltoall", 10**9)]
    assert least_of_all(points, 12, 2, root=True) == PortBytes(12 * 110, 12 * 100)
    assert least_of_all(points, 12, 1, root=True) == PortBytes(0, 0)
