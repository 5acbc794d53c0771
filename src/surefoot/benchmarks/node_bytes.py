"""The least that a collective moves into and out of a node, whatever algorithm NCCL takes. Pure.

The factors of busbw (`surefoot.benchmarks.collective_sizes`) are those of a ring over all ranks. Between nodes
a tree or a switch that reduces may move less, so these are what each must move at least: an all-reduce at least
the buffer once each way (the ring's 2 (n - 1) / n is that at n = 2), a reduce-scatter out and an all-gather in
(n - 1) / n of theirs, and 1 / n the other way. n: nodes. NCCL's protocols add to it and take nothing away.
"""

from __future__ import annotations

from collections.abc import Iterable

from surefoot.benchmarks.nccl_rails import PortBytes

OVER_ALL_RAILS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
"""Collectives whose channels NCCL lays over all NICs of a node. Pairs of ranks (alltoall, sendrecv) use the NICs
next to their GPUs, which need not be all, and are not counted on."""


def least_bytes(collective: str, size_bytes: int, nodes: int, *, root: bool) -> PortBytes:
    """Bytes that one run of `size_bytes` moves out of and into a node at least; `root`: the node of rank 0."""
    if nodes < 2 or collective not in OVER_ALL_RAILS:
        return PortBytes(0, 0)
    most, part = size_bytes * (nodes - 1) // nodes, size_bytes // nodes
    return {
        "all_reduce": PortBytes(size_bytes, size_bytes),
        "all_gather": PortBytes(part, most),
        "reduce_scatter": PortBytes(most, part),
        "broadcast": PortBytes(size_bytes, 0) if root else PortBytes(0, size_bytes),
    }[collective]


def least_of_all(points: Iterable[tuple[str, int]], runs: int, nodes: int, *, root: bool) -> PortBytes:
    """Over all points (collective, size in bytes), each run `runs` times."""
    rows = [least_bytes(name, size, nodes, root=root) for name, size in points]
    return PortBytes(runs * sum(row.sent for row in rows), runs * sum(row.received for row in rows))
