"""A sweep of real torch.distributed collectives: times of every iteration, and the number of wrong
elements in results whose values are known. Needs torch.

``request.json``: ``{"device", "backend", "init_timeout_s", "sweeps": {collective: [bytes]},
"warmup", "iterations", "links": null or {"size_bytes", "shifts", "iterations"},
"environment", "counters": whether the first rank of a node reads those of its RDMA ports}``. Times are of back-to-back iterations, as nccl-tests takes them: CUDA
events on a GPU, the monotonic clock on a CPU. Each figure includes what PyTorch itself needs to
launch the operation, so the floor at small sizes is a training job's, not nccl-tests'.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from surefoot.benchmarks.collective_sizes import part_count
from surefoot.node import port_counters, program
from surefoot.node.facts import Fact
from surefoot.node.found_network import take_environment
from surefoot.node.group import device_facts, device_of, join, leave
from surefoot.node.links import links
from surefoot.node.rank import Rank

PROGRAM = "surefoot.node.collectives"
CHUNK = 4 * 1024**2
"""Elements that are made or compared at once, so that checking needs little memory beside the message."""


def pattern(rank: int, start: int, stop: int, device: torch.device) -> torch.Tensor:
    """Elements [start, stop) of what `rank` contributes: small integers, so sums over ranks are exact.

    ``(i mod 1021) + (31 rank mod 1009)``: ranks differ from each other, and a part that landed in
    the wrong place differs from the right one. Sums stay below 2²⁴ up to 8,000 ranks.
    """
    index = torch.arange(start, stop, device=device, dtype=torch.int64)
    return (index % 1021 + 31 * rank % 1009).to(torch.float32)


def fill(buffer: torch.Tensor, rank: int) -> None:
    """Write `rank`'s pattern into `buffer`."""
    for start in range(0, buffer.numel(), CHUNK):
        stop = min(start + CHUNK, buffer.numel())
        buffer[start:stop] = pattern(rank, start, stop, buffer.device)


def count_wrong(result: torch.Tensor, expected: Callable[[int, int], torch.Tensor]) -> int:
    """Elements of `result` that differ from ``expected(start, stop)``. NaN differs from everything."""
    wrong = torch.zeros((), dtype=torch.int64, device=result.device)
    for start in range(0, result.numel(), CHUNK):
        stop = min(start + CHUNK, result.numel())
        wrong += (result[start:stop] != expected(start, stop)).sum()
    return int(wrong.item())


class Operation:
    """One collective at one size: buffers, the call, and what its result must be."""

    def __init__(self, name: str, size_bytes: int, rank: int, world: int, device: torch.device) -> None:
        self.name, self.rank, self.world, self.device = name, rank, world, device
        count = part_count(name, size_bytes, world)
        self.part = count
        send = count * world if name in ("reduce_scatter", "alltoall") else count
        receive = {"all_gather": count * world, "alltoall": count * world, "reduce_scatter": count, "sendrecv": count}
        self.send = torch.empty(send, device=device)
        in_place = name not in receive
        self.result = self.send if in_place else torch.empty(receive[name], device=device)

    def fresh(self) -> None:
        """Put this rank's data into the send buffer and something wrong into the result."""
        if self.result is not self.send:
            self.result.fill_(-1)
        fill(self.send, self.rank)

    def run(self) -> None:
        """The collective itself."""
        # torch 2.13 renamed two collectives; older releases know them by their old names only.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        if self.name == "all_reduce":
            dist.all_reduce(self.send)
        elif self.name == "all_gather":
            gather(self.result, self.send)
        elif self.name == "reduce_scatter":
            scatter(self.result, self.send)
        elif self.name == "alltoall":
            dist.all_to_all_single(self.result, self.send)
        elif self.name == "broadcast":
            dist.broadcast(self.send, src=0)
        elif self.name == "sendrecv":
            right, left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
            sides = [dist.P2POp(dist.isend, self.send, right), dist.P2POp(dist.irecv, self.result, left)]
            for work in dist.batch_isend_irecv(sides):
                work.wait()
        else:
            raise ValueError(f"no such collective: {self.name!r}")

    def expected(self, start: int, stop: int) -> torch.Tensor:
        """Elements [start, stop) of the right result on this rank."""
        if self.name == "broadcast":
            return pattern(0, start, stop, self.device)
        if self.name == "sendrecv":
            return pattern((self.rank - 1) % self.world, start, stop, self.device)
        if self.name in ("all_reduce", "reduce_scatter"):
            shift = self.rank * self.part if self.name == "reduce_scatter" else 0
            total = torch.zeros(stop - start, device=self.device)
            for rank in range(self.world):
                total += pattern(rank, start + shift, stop + shift, self.device)
            return total
        # all_gather and alltoall: part k of the result comes from rank k.
        index = torch.arange(start, stop, device=self.device, dtype=torch.int64)
        source, offset = index // self.part, index % self.part
        position = offset + self.rank * self.part if self.name == "alltoall" else offset
        return (position % 1021 + 31 * source % 1009).to(torch.float32)

    def verify(self) -> int:
        """Run once on fresh data; the number of wrong elements on this rank."""
        self.fresh()
        self.run()
        return count_wrong(self.result, self.expected)


def timed(operation: Operation, iterations: int) -> tuple[list[float], float]:
    """Microseconds of each of `iterations` back-to-back runs, and of all of them by the host's clock.

    A mark stands before the first run and after each, so that the times leave nothing out: what
    goes on between two runs belongs to the second. The barrier before them is not timed.
    """
    dist.barrier()
    if operation.device.type == "cpu":
        begun = time.perf_counter()
        clock = [time.perf_counter()]
        for _ in range(iterations):
            operation.run()
            clock.append(time.perf_counter())
        block_us = (time.perf_counter() - begun) * 1e6
        return [(after - before) * 1e6 for before, after in pairwise(clock)], block_us
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    marks[0].record()  # on an idle device it is passed at once
    begun = time.perf_counter()
    for mark in marks[1:]:
        operation.run()
        mark.record()
    torch.cuda.synchronize()
    block_us = (time.perf_counter() - begun) * 1e6
    return [before.elapsed_time(after) * 1e3 for before, after in pairwise(marks)], block_us


def measure(name: str, size_bytes: int, rank: Rank, device: torch.device) -> dict[str, Any]:
    """Verify, warm up, time, verify again: rare corruption shows up under load, not on the first run."""
    operation = Operation(name, size_bytes, rank.rank, rank.world_size, device)
    wrong = operation.verify()
    for _ in range(rank.request["warmup"]):
        operation.run()
    operation.fresh()
    times, block_us = timed(operation, rank.request["iterations"])
    wrong += operation.verify()
    return {
        "collective": name, "size_bytes": size_bytes, "times_us": times, "block_us": block_us,
        "wrong": wrong, "checked": 2 * operation.result.numel(),
    }  # fmt: skip


def free_memory(device: torch.device, local_world: int) -> int:
    """Bytes that this rank may count on: free device memory, or its share of the host's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(rows["MemAvailable"].split()[0]) * 1024
    limit = Path("/sys/fs/cgroup/memory.max")
    used = Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return max(0, free) // local_world


def agreed_cap(free_bytes: int, device: torch.device) -> int:
    """Largest message that fits on every rank: a quarter of the least free memory.

    Two buffers are ours, and gloo and NCCL may stage copies of both.
    """
    cap = torch.tensor([free_bytes // 4], dtype=torch.int64, device=device)
    dist.all_reduce(cap, op=dist.ReduceOp.MIN)
    return int(cap.item())


def port_readings(rank: Rank) -> Fact | None:
    """Counters of this node's RDMA ports, where they were asked for and this is the node's first rank."""
    return port_counters.read() if rank.request["counters"] and rank.local_rank == 0 else None


def main(rank: Rank) -> None:
    """The sweep of one rank."""
    network = take_environment(rank)
    device = device_of(rank)
    join(rank, device)
    local_world = int(os.environ["LOCAL_WORLD_SIZE"])
    free_bytes = free_memory(device, local_world)
    cap = agreed_cap(free_bytes, device)
    before = port_readings(rank)
    dist.barrier()  # nothing that is counted on begins before all have read
    work = [(name, size) for name, sizes in rank.request["sweeps"].items() for size in sizes if size <= cap]
    points = []
    for number, (name, size) in enumerate(work):
        rank.progress(number, len(work), f"{name} {size} B")
        points.append(measure(name, size, rank, device))
    asked = rank.request["links"]
    between = links(rank, device, asked, local_world) if asked is not None and asked["size_bytes"] <= cap else []
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()
    after = port_readings(rank)
    data = {
        "rank": rank.rank, "backend": dist.get_backend(), "world_size": dist.get_world_size(), "device": device_facts(device),
        "free_bytes": free_bytes, "cap_bytes": cap, "points": points, "links": between,
        "network": network, "ports": None if before is None or after is None else {"before": before, "after": after},
    }  # fmt: skip
    leave()
    rank.report(data)


if __name__ == "__main__":
    program.run(PROGRAM, main)
