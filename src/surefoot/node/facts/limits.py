"""What a process may use here, and the environment that changes what NCCL does. Standard library only."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from surefoot.node.facts import Fact, fact

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (it is measured, nothing is put there)
CHANGES_COLLECTIVES = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|GLOO|UCX|FI|OMPI_MCA|CUDA|OMP|HSA|RCCL)_[A-Z0-9_]+"
)
"""Variables that NCCL, gloo, libfabric, UCX, Open MPI and CUDA read. Nothing secret has such a name."""


def facts() -> dict[str, Fact]:
    """All of them. Sizes in bytes."""
    return {
        "memlock": fact(lambda: limit(resource.RLIMIT_MEMLOCK)),
        "nofile": fact(lambda: limit(resource.RLIMIT_NOFILE)),
        "processes": fact(lambda: limit(resource.RLIMIT_NPROC)),
        "stack": fact(lambda: limit(resource.RLIMIT_STACK)),
        "cpu_quota": fact(cpu_quota),
        "cgroup_cpus": fact(cgroup_cpus),
        "shared_memory": fact(shared_memory),
        "variables": fact(variables),
    }


def limit(which: int) -> int | None:
    """A soft resource limit; None: unlimited."""
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def cgroups(top: Path = CGROUP, own: Path = OWN_CGROUP) -> list[Path]:
    """Folders of this process's cgroup (version 2) and of those above it, its own first."""
    mine = next((r.split("::", 1)[1] for r in own.read_text().splitlines() if r.startswith("0::")), "/")
    folder = top / mine.lstrip("/")
    return [place for place in (folder, *folder.parents) if place == top or top in place.parents]


def memory_limit(top: Path = CGROUP, own: Path = OWN_CGROUP) -> int | None:
    """The least cgroup memory limit on the way from this process to the root; None: there is none."""
    limits = []
    for place in cgroups(top, own):
        file = place / "memory.max"
        if file.is_file() and file.read_text().strip() != "max":
            limits.append(int(file.read_text()))
    old = top / "memory" / "memory.limit_in_bytes"
    # cgroup v1 writes a number near 2^63 for "no limit".
    if old.is_file() and int(old.read_text()) < 1 << 60:
        limits.append(int(old.read_text()))
    return min(limits, default=None)


def cpu_quota(top: Path = CGROUP, own: Path = OWN_CGROUP) -> float | None:
    """CPUs' worth of time that the cgroup grants (``cpu.max``); None: there is no such limit."""
    quotas = []
    for place in cgroups(top, own):
        file = place / "cpu.max"
        if file.is_file():
            quota, period = file.read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def cgroup_cpus(top: Path = CGROUP, own: Path = OWN_CGROUP) -> str:
    """CPUs of the nearest cgroup that says (``cpuset.cpus.effective``). Raises LookupError where none does."""
    for place in cgroups(top, own):
        file = place / "cpuset.cpus.effective"
        if file.is_file() and (cpus := file.read_text().strip()):
            return cpus
    raise LookupError(f"no cgroup of this process below {top} says which CPUs it may use")


def shared_memory(folder: Path = SHARED_MEMORY) -> int:
    """Bytes that /dev/shm holds: NCCL and data loaders fail in odd ways where it is small."""
    room = os.statvfs(folder)
    return room.f_blocks * room.f_frsize


def variables() -> dict[str, str]:
    """Those of the environment that change what NCCL and its like do."""
    return {name: value for name, value in sorted(os.environ.items()) if CHANGES_COLLECTIVES.fullmatch(name)}
