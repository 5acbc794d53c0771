"""The steps of a mesh that need torch: device, process group, clocks, a training step, an all-reduce of known data."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import torch
import torch.distributed as dist

from surefoot.benchmarks.mesh_steps import Phase, digest_text, known_values
from surefoot.node import ddp
from surefoot.node.facts import fact, gpus
from surefoot.node.group import device_facts, device_of, join, leave
from surefoot.node.rank import Rank, say
from surefoot.node.trail import Trail

CLOCK_ROUNDS = 7
"""Of each, the quickest counts: what else a node does makes an answer later, never earlier."""


def go(rank: Rank, trail: Trail) -> dict[str, Any]:
    """All of them, each a phase of the trail. What each gave."""
    with trail.phase(Phase.DEVICE):
        device = device_of(rank)
        trail.tell(device=device_facts(device), near=near(device), peers=peers(device))
    with trail.phase(Phase.RENDEZVOUS):
        join(rank, device)
    with trail.phase(Phase.FIRST_COLLECTIVE):
        dist.barrier()
    with trail.phase(Phase.CLOCKS):
        clocks = compared_clocks(device)
    with trail.phase(Phase.STEP):
        step = ddp.step(rank, device)
    with trail.phase(Phase.ALL_REDUCE):
        summed = all_reduced(rank, device)
    with trail.phase(Phase.LEAVING):
        leave()
    if rank.rank == 0 and ddp.fits(rank, step["loss_sum"]):
        say(f"rank 0: sum of losses {step['loss_sum']:.6f} over {rank.world_size} ranks, as computed by hand")
    return {"step": step, "summed": summed, "clocks": clocks, "near": near(device), "peers": peers(device)}


def near(device: torch.device) -> dict[str, Any] | None:
    """NUMA node and CPUs next to the device's GPU; None on a CPU."""
    if device.type != "cuda":
        return None
    address = f"{device_facts(device)['pci_bus_id']}.0"
    return {"numa_node": fact(lambda: gpus.numa_node(address)), "cpus": fact(lambda: gpus.local_cpus(address))}


def peers(device: torch.device) -> list[int] | None:
    """Other GPUs that this one reads directly, by index; None on a CPU."""
    if device.type != "cuda":
        return None
    others = [index for index in range(torch.cuda.device_count()) if index != device.index]
    return [index for index in others if torch.cuda.can_device_access_peer(device.index, index)]


def compared_clocks(device: torch.device) -> list[dict[str, float]]:
    """This rank's clock at the end of each of `CLOCK_ROUNDS` barriers, and how long it was in it. Seconds.

    All ranks leave a barrier within the time that the last one to come spends in it, so their clocks
    read the same moment to that accuracy.
    """
    rounds = []
    for _ in range(CLOCK_ROUNDS):
        begun = time.monotonic()
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rounds.append({"at": time.time(), "within_s": time.monotonic() - begun})
    return rounds


def all_reduced(rank: Rank, device: torch.device) -> dict[str, Any]:
    """The sum over ranks of known whole numbers: digest, and the first few for people."""
    values = torch.tensor(known_values(rank.request["seed"], rank.rank), dtype=torch.float32, device=device)
    dist.all_reduce(values)
    found = [round(value) for value in values.cpu().tolist()]
    return {"first": found[:8], "digest": hashlib.sha256(digest_text(found).encode()).hexdigest()}
