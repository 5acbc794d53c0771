"""Joining and leaving a process group, and saying on what device a rank computes. Needs torch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from surefoot.node.rank import Rank


def device_of(rank: Rank) -> torch.device:
    """``cuda:LOCAL_RANK``, ``cuda:0`` of the only GPU that it sees, or ``cpu``: as the request asks.

    One GPU is what a scheduler shows that binds one to each task (``--gpu-bind=single:1``). Whether
    it is this rank's own is for the judge, by UUID: ranks may as well have been given the same one.

    Raises RuntimeError when it sees none, or several and too few.
    """
    if rank.request["device"] == "cpu":
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    index = 0 if seen == 1 else rank.local_rank
    if index >= seen:
        raise RuntimeError(
            f"local rank {rank.local_rank} was asked to use a GPU of its own, but this process sees {seen}"
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def device_facts(device: torch.device) -> dict[str, Any]:
    """Kind, index, name, UUID, PCI bus id and memory of a device. None where a CPU has no such thing."""
    facts: dict[str, Any] = {
        "kind": device.type, "index": device.index, "name": None, "uuid": None, "pci_bus_id": None, "memory_bytes": None,
        "torch": torch.__version__, "cuda": torch.version.cuda, "nccl": None, "threads": torch.get_num_threads(),
    }  # fmt: skip
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        domain, bus, slot = (
            getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")
        )
        facts.update(
            name=properties.name,
            uuid=str(properties.uuid),
            pci_bus_id=None if bus is None else f"{domain or 0:04x}:{bus:02x}:{slot or 0:02x}",
            memory_bytes=properties.total_memory,
            nccl=".".join(str(part) for part in torch.cuda.nccl.version()),
        )
    return facts


_held: list[dist.ProcessGroup] = []
"""Never let go of: see `surefoot.node.program`."""


def join(rank: Rank, device: torch.device) -> None:
    """Join the process group of the request's backend; gives up after ``init_timeout_s``."""
    dist.init_process_group(
        rank.request["backend"],
        timeout=timedelta(seconds=rank.request["init_timeout_s"]),
        device_id=device if rank.request["backend"] == "nccl" else None,
    )
    assert dist.group.WORLD is not None
    _held.append(dist.group.WORLD)


def leave() -> None:
    """Wait for the others, then take the group down in order: NCCL complains otherwise."""
    dist.barrier()
    dist.destroy_process_group()
