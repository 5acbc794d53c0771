"""Transfers between the first ranks of nodes, one link at a time for each receiver. Needs torch."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from surefoot.node.rank import Rank


def links(rank: Rank, device: torch.device, asked: dict[str, Any], per_node: int) -> list[dict[str, Any]]:
    """What this rank received: ``{"source", "size_bytes", "times_us"}`` for each shift; nothing but on a node's first rank.

    Every rank calls this. A barrier stands before each transfer, so that a slow link does not
    delay the transfers of its neighbours.
    """
    found = []
    for shift in asked["shifts"]:
        source, target = ((rank.rank + side * shift * per_node) % rank.world_size for side in (-1, 1))
        times = []
        for _ in range(1 + asked["iterations"]):  # the first one makes the connection
            dist.barrier()
            if rank.rank % per_node == 0:
                times.append(receive(source, target, asked["size_bytes"], device))
        if times:
            found.append({"source": source, "size_bytes": asked["size_bytes"], "times_us": times[1:]})
    dist.barrier()
    return found


def receive(source: int, target: int, size_bytes: int, device: torch.device) -> float:
    """Send to `target` while receiving from `source`; microseconds until everything has been received."""
    outgoing = torch.zeros(size_bytes // 4, device=device)
    incoming = torch.empty_like(outgoing)
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    sides = [dist.P2POp(dist.irecv, incoming, source), dist.P2POp(dist.isend, outgoing, target)]
    works = dist.batch_isend_irecv(sides)
    works[0].wait()
    if device.type == "cuda":
        torch.cuda.synchronize()
    took_us = (time.perf_counter() - begun) * 1e6
    for work in works[1:]:
        work.wait()
    return took_us
