"""Facts in the form in which the first probe reported them, so that runs of then can still be judged."""

from __future__ import annotations

from typing import Any

NOT_LOOKED_FOR = "the version that recorded this did not look for it"

FIRST = frozenset({
    "cpu", "cpus", "cpus_online", "memory_total", "memory_available", "memory_limit", "disk_free", "kernel", "machine",
    "os", "python", "driver", "pci_gpus", "gpus", "own_name", "memlock", "nofile", "torch", "cuda", "nccl", "torch_gpus",
})  # fmt: skip
"""Every fact of the first probe. Exactly these: a report that merely lacks some of today's is damaged."""
_FIRST_GPU = frozenset({"index", "name", "uuid", "pci_bus_id", "memory_mib"})


def lifted(facts: Any, names: frozenset[str], gpu_names: frozenset[str]) -> Any:
    """Facts of the first probe in today's form (`names`, and `gpu_names` of a GPU); anything else as it is."""
    if not isinstance(facts, dict) or set(facts) != FIRST:
        return facts
    unknown = {"value": None, "unknown": NOT_LOOKED_FOR}
    gpus = facts["gpus"]
    listed = gpus.get("value") if isinstance(gpus, dict) else None
    if isinstance(listed, list):
        gpus = {**gpus, "value": [_gpu(gpu, dict.fromkeys(gpu_names, unknown)) for gpu in listed]}
    return {**dict.fromkeys(names, unknown), **facts, "gpus": gpus}


def _gpu(gpu: Any, unknown: dict[str, Any]) -> Any:
    """One row of nvidia-smi's list: plain values, memory in MiB and null where it is the host's."""
    if not isinstance(gpu, dict) or set(gpu) != _FIRST_GPU:
        return gpu
    known = {name: {"value": gpu[name]} for name in ("name", "uuid", "pci_bus_id")}
    if gpu["memory_mib"] is not None:
        known["memory_bytes"] = {"value": gpu["memory_mib"] * 1024**2}
    return {**unknown, **known}
