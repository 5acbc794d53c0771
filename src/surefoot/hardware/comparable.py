"""Facts that nodes of one kind should share, as one text each: what the drift matrix compares and a cluster file may claim.

Left out on purpose: what differs by nature (names, addresses, serial numbers, UUIDs) and what changes
by the minute (free memory, clocks, temperatures, counters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from surefoot.hardware.fact import Fact
from surefoot.hardware.facts import Mount, NodeFacts
from surefoot.hardware.fleet_values import Unknown
from surefoot.hardware.gpu_facts import Gpu, Mode
from surefoot.units import GIB

T = TypeVar("T")
Texts = dict[str, str | Unknown]

SHARED_KINDS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "virtiofs", "9p")
"""File systems over a network: mounted alike everywhere, or a job finds other files on another node."""
OWN_OPTIONS = ("clientaddr=", "addr=", "mountaddr=", "size=", "fd=", "pgrp=", "pipe_ino=", "minor=")
"""Mount options that hold a node's own address, size or handle."""


def comparable(facts: NodeFacts) -> Texts:
    """Key → text, for one node. GPUs are numbered by PCI address: ``gpu0.vbios``."""
    found: Texts = {name: _text(getattr(facts, name)) for name in _PLAIN}
    found |= {name: limit_text(getattr(facts, name)) for name in _LIMITS}
    found |= {name: _text(getattr(facts, name), _gib) for name in _SIZES}
    found["numa_nodes"] = _text(facts.numa_nodes, lambda nodes: f"{len(nodes)}: {'; '.join(nodes.values())}")
    found["clock.synchronised"] = _text(facts.clock, lambda clock: _yes(clock.synchronised))
    found["driver.library"] = _text(facts.driver_versions, lambda versions: versions.driver)
    found["driver.cuda"] = _text(facts.driver_versions, lambda versions: versions.cuda)
    found["nccl.library"] = _text(facts.nccl_library, lambda library: library.version)
    found["root.kind"] = _text(facts.root_mount, lambda mount: mount.kind)
    found["root.options"] = _text(facts.root_mount, _options)
    for mount in facts.mounts.value or ():
        if mount.kind in SHARED_KINDS:
            found[f"mount {mount.place}"] = f"{mount.kind} {mount.source} {_options(mount)}"
    for name, value in (facts.variables.value or {}).items():
        if not name.startswith("CUDA_VISIBLE"):
            found[f"variable {name}"] = value
    found["gpus"] = _text(facts.gpus, lambda gpus: str(len(gpus)))
    for number, gpu in enumerate(sorted(facts.gpus.value or (), key=lambda gpu: gpu.pci_bus_id.shown)):
        found |= {f"gpu{number}.{key}": text for key, text in _gpu(gpu).items()}
    for listed, names in _LISTS.items():
        if (reason := getattr(facts, listed).unknown) is not None:
            found[names] = Unknown(reason)
    return found


_LISTS = {"gpus": "gpu*", "mounts": "mount *", "variables": "variable *"}
"""Fact that lists things → the names of their facts. A node that cannot list them does not lack them."""


_PLAIN = (
    "cpu", "cpus", "cpus_online", "sockets", "cores", "microcode", "kernel", "machine", "os", "python", "driver", "torch",
    "cuda", "nccl", "cpu_quota", "pci_gpus",
)  # fmt: skip
_LIMITS = ("memlock", "nofile", "processes", "stack")
INFINITY = 2**64 - 1
"""``RLIM_INFINITY`` as the kernel counts; a probe writes null for it."""
_SIZES = ("memory_total", "memory_limit", "shared_memory")


def _gpu(gpu: Gpu) -> Texts:
    return {
        "name": _text(gpu.name),
        "memory": _text(gpu.memory_bytes, _gib),
        "vbios": _text(gpu.vbios),
        "numa_node": _text(gpu.numa_node),
        "ecc": _text(gpu.ecc, _mode),
        "mig": _text(gpu.mig, _mode),
        "persistence": _text(gpu.persistence, _yes),
        "compute_mode": _text(gpu.compute_mode),
        "power_limit": _text(gpu.power_limit_w, lambda watts: f"{watts:g} W"),
        "sm_clock_max": _text(gpu.sm_clock_max_mhz, lambda mhz: f"{mhz} MHz"),
        "memory_clock_max": _text(gpu.memory_clock_max_mhz, lambda mhz: f"{mhz} MHz"),
        "pcie_generation_max": _text(gpu.pcie_generation_max),
        "pcie_width": _text(gpu.pcie_width),
        "nvlinks": _text(gpu.nvlinks, lambda links: f"{sum(links)} of {len(links)} up"),
        "fabric": _text(gpu.fabric),
    }


def _text(fact: Fact[T], write: Callable[[T], str] = str) -> str | Unknown:
    if fact.unknown is not None:
        return Unknown(fact.unknown)
    return "none" if fact.value is None else write(fact.value)


def limit_text(fact: Fact[Any]) -> str | Unknown:
    """A resource limit: ``unlimited`` where there is none, whichever of the two ways says so."""
    if fact.unknown is None and fact.value in (None, INFINITY):
        return "unlimited"
    return _text(fact)


def _gib(size_bytes: int) -> str:
    """To the nearest GiB: firmware keeps a little more on one node than on another."""
    return f"{round(size_bytes / GIB)} GiB"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _mode(mode: Mode) -> str:
    words = ("off", "on")
    text = words[mode.current]
    return text if mode.current == mode.pending else f"{text}, {words[mode.pending]} after a reset"


def _options(mount: Mount) -> str:
    return ",".join(_without(mount.options, OWN_OPTIONS))


def _without(options: Iterable[str], beginnings: tuple[str, ...]) -> list[str]:
    return [option for option in options if not option.startswith(beginnings)]
