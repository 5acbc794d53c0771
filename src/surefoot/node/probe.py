"""The facts of a node. Standard library, plus torch and nvidia-smi where they are.

Every fact is ``{"value": …}`` or ``{"value": null, "unknown": "because …"}``: nothing is defaulted.
"""

from __future__ import annotations

import csv
import os
import platform
import resource
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from surefoot.node.facts import Fact, fact
from surefoot.node.pci import gpus_on_bus
from surefoot.node.rank import Rank, say


def cpu_model() -> str:
    """The kernel's name for the CPU; on Arm, where it has none, implementer and part."""
    rows = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    info = {key.strip(): value.strip() for key, value in reversed(rows)}
    for name in ("model name", "Model", "cpu model"):
        if info.get(name):
            return info[name]
    return f"{platform.machine()} implementer {info['CPU implementer']} part {info['CPU part']}"


def meminfo(key: str) -> int:
    """Bytes of one row of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":", 1)
        if name == key:
            return int(value.split()[0]) * 1024
    raise LookupError(f"/proc/meminfo has no row {key}")


def memory_limit() -> int | None:
    """The least cgroup memory limit on the way from this process to the root; None: there is none."""
    own = next(
        (r.split("::", 1)[1] for r in Path("/proc/self/cgroup").read_text().splitlines() if r.startswith("0::")), "/"
    )
    limits = []
    top = Path("/sys/fs/cgroup")
    folder = top / own.lstrip("/")
    for place in (folder, *folder.parents):
        file = place / "memory.max"
        if file.is_file() and file.read_text().strip() != "max":
            limits.append(int(file.read_text()))
        if place == top:
            break
    old = top / "memory" / "memory.limit_in_bytes"
    # cgroup v1 writes a number near 2^63 for "no limit".
    if old.is_file() and int(old.read_text()) < 1 << 60:
        limits.append(int(old.read_text()))
    return min(limits, default=None)


def disk_free(folder: str) -> int:
    """Bytes that this user may still write below `folder`."""
    return shutil.disk_usage(folder).free


def os_name() -> str:
    """Distribution and version, from os-release."""
    return platform.freedesktop_os_release()["PRETTY_NAME"]


def driver() -> str | None:
    """The NVIDIA kernel driver's version; None: no such driver is loaded."""
    file = Path("/proc/driver/nvidia/version")
    if not file.exists():
        return None
    for word in file.read_text().split("\n", 1)[0].split():
        if word[0].isdigit() and word.count(".") >= 1:
            return word
    raise LookupError(f"no version in {file}: {file.read_text()[:100]}")


def smi_gpus() -> list[dict[str, Any]]:
    """GPUs as nvidia-smi lists them. Raises LookupError when it is not there, CalledProcessError when it fails."""
    if shutil.which("nvidia-smi") is None:
        raise LookupError("nvidia-smi is not there")
    fields = ("index", "name", "uuid", "pci.bus_id", "memory.total")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [dict(zip(fields, (cell.strip() for cell in row), strict=True)) for row in csv.reader(output.splitlines())]
    return [
        {
            "index": int(row["index"]), "name": row["name"], "uuid": row["uuid"], "pci_bus_id": row["pci.bus_id"],
            # A GPU with unified memory (GB10) has none of its own: nvidia-smi says [N/A].
            "memory_mib": int(row["memory.total"]) if row["memory.total"].isdigit() else None,
        }
        for row in rows
    ]  # fmt: skip


def torch_facts() -> dict[str, Fact]:
    """Versions and devices as PyTorch sees them; each unknown with the reason where it can't be imported."""

    def version() -> str:
        import torch

        return str(torch.__version__)

    def cuda() -> str | None:
        import torch

        return torch.version.cuda

    def nccl() -> str | None:
        import torch
        import torch.distributed as dist

        if not (torch.cuda.is_available() and dist.is_nccl_available()):
            return None
        return ".".join(str(part) for part in torch.cuda.nccl.version())

    def gpus() -> list[dict[str, Any]]:
        import torch

        found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        return [{"name": p.name, "uuid": str(p.uuid), "memory_bytes": p.total_memory} for p in found]

    return {"torch": fact(version), "cuda": fact(cuda), "nccl": fact(nccl), "torch_gpus": fact(gpus)}


def own_addresses() -> list[str]:
    """Addresses that this host's own name leads to here, in the resolver's order."""
    found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def limit(which: int) -> int | None:
    """A soft resource limit; None: unlimited."""
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def facts(root: str) -> dict[str, Fact]:
    """All facts of this node. Sizes in bytes."""
    return {
        "cpu": fact(cpu_model),
        "cpus": fact(lambda: len(os.sched_getaffinity(0))),
        "cpus_online": fact(os.cpu_count),
        "memory_total": fact(lambda: meminfo("MemTotal")),
        "memory_available": fact(lambda: meminfo("MemAvailable")),
        "memory_limit": fact(memory_limit),
        "disk_free": fact(lambda: disk_free(root)),
        "kernel": fact(platform.release),
        "machine": fact(platform.machine),
        "os": fact(os_name),
        "python": fact(platform.python_version),
        "driver": fact(driver),
        "pci_gpus": fact(lambda: len(gpus_on_bus())),
        "gpus": fact(smi_gpus),
        "own_name": fact(own_addresses),
        "memlock": fact(lambda: limit(resource.RLIMIT_MEMLOCK)),
        "nofile": fact(lambda: limit(resource.RLIMIT_NOFILE)),
        **torch_facts(),
    }


def main() -> None:
    """One probe a node."""
    rank = Rank.current("surefoot.node.probe")
    rank.report({"rank": rank.rank, "root": rank.request["root"], "facts": facts(rank.request["root"])})
    say(f"rank {rank.rank}: facts of this node are reported")


if __name__ == "__main__":
    main()
