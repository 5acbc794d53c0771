"""Facts of the machine: CPU, NUMA, memory, kernel, operating system, and who Slurm says it is. Standard library only."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

from surefoot import numbers
from surefoot.node.facts import Fact, fact
from surefoot.node.facts.limits import memory_limit

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
SLURM = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_CPUS_ON_NODE",
)
"""What Slurm tells a task of where it is. Absent under another scheduler."""


def facts() -> dict[str, Fact]:
    """All of them. Sizes in bytes."""
    return {
        "hostname": fact(socket.gethostname),
        "slurm": fact(slurm_identity),
        "cpu": fact(cpu_model),
        "cpus": fact(lambda: len(os.sched_getaffinity(0))),
        "cpus_online": fact(os.cpu_count),
        "sockets": fact(sockets),
        "cores": fact(cores),
        "numa_nodes": fact(numa_nodes),
        "microcode": fact(microcode),
        "memory_total": fact(lambda: meminfo("MemTotal")),
        "memory_available": fact(lambda: meminfo("MemAvailable")),
        "memory_limit": fact(memory_limit),
        "kernel": fact(platform.release),
        "machine": fact(platform.machine),
        "os": fact(os_name),
        "boot_id": fact(lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()),
        "own_name": fact(own_addresses),
    }


def slurm_identity() -> dict[str, str] | None:
    """What Slurm calls this job, node and task; None: no Slurm started this process."""
    found = {name: os.environ[name] for name in SLURM if name in os.environ}
    return found or None


def cpuinfo(path: Path = CPUINFO) -> dict[str, str]:
    """The rows of the first processor in /proc/cpuinfo; those that only stand at the end too (Arm)."""
    rows = [line.split(":", 1) for line in path.read_text().splitlines() if ":" in line]
    return {key.strip(): value.strip() for key, value in reversed(rows)}


def cpu_model(path: Path = CPUINFO) -> str:
    """The kernel's name for the CPU; on Arm, where it has none, implementer and part."""
    info = cpuinfo(path)
    for name in ("model name", "Model", "cpu model"):
        if info.get(name):
            return info[name]
    return f"{platform.machine()} implementer {info['CPU implementer']} part {info['CPU part']}"


def microcode(path: Path = CPUINFO) -> str:
    """Revision that the CPU runs with. Raises LookupError where the kernel does not say (Arm, many virtual machines)."""
    info = cpuinfo(path)
    if not info.get("microcode"):
        raise LookupError(f"{path} has no row microcode")
    return info["microcode"]


def _topology(name: str, cpus: Path = CPUS) -> list[tuple[str, ...]]:
    folders = sorted(cpus.glob("cpu[0-9]*/topology"))
    if not folders:
        raise LookupError(f"{cpus} tells of no topology")
    return [tuple((folder / part).read_text().strip() for part in ("physical_package_id", name)) for folder in folders]


def sockets(cpus: Path = CPUS) -> int:
    """Processor packages."""
    return len({package for package, _ in _topology("core_id", cpus)})


def cores(cpus: Path = CPUS) -> int:
    """Physical cores, on all sockets: fewer than CPUs where each runs two threads."""
    siblings = "core_cpus_list" if any(cpus.glob("cpu0/topology/core_cpus_list")) else "thread_siblings_list"
    return len(set(_topology(siblings, cpus)))


def numa_nodes(nodes: Path = NODES) -> dict[str, str]:
    """NUMA node → its CPUs as the kernel lists them. Raises LookupError where the kernel has no NUMA."""
    found = sorted(nodes.glob("node[0-9]*"), key=lambda folder: int(folder.name[4:]))
    if not found:
        raise LookupError(f"{nodes} lists no NUMA node")
    return {folder.name[4:]: (folder / "cpulist").read_text().strip() for folder in found}


def meminfo(key: str, path: Path = MEMINFO) -> int:
    """Bytes of one row of /proc/meminfo."""
    for line in path.read_text().splitlines():
        name, value = line.split(":", 1)
        if name == key:
            return int(value.split()[0]) * 1024
    raise LookupError(f"{path} has no row {key}")


def os_name() -> str:
    """Distribution and version, from os-release."""
    return platform.freedesktop_os_release()["PRETTY_NAME"]


def own_addresses() -> list[str]:
    """Addresses that this host's own name leads to here, in the resolver's order."""
    found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def affinity() -> dict[str, Any]:
    """Where this process may run: its CPUs, and the NUMA nodes that they belong to."""
    mine = os.sched_getaffinity(0)
    near = fact(lambda: [name for name, cpus in numa_nodes().items() if mine & numbers.parse(cpus)])
    return {"cpus": numbers.listed(mine), "numa_nodes": near}
