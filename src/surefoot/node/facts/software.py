"""Versions as the training would load them: Python, torch, CUDA, NCCL. torch only where it is there."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import Any

from surefoot.node.facts import Fact, fact


def facts() -> dict[str, Fact]:
    """All of them; torch's each unknown with the reason where it can't be imported."""
    return {
        "python": fact(platform.python_version),
        "interpreter": fact(lambda: sys.executable),
        "driver": fact(driver),
        "torch": fact(torch_version),
        "cuda": fact(torch_cuda),
        "nccl": fact(torch_nccl),
        "nccl_library": fact(loaded_nccl),
        "torch_gpus": fact(torch_gpus),
    }


def driver(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The NVIDIA kernel driver's version; None: no such driver is loaded."""
    if not version.exists():
        return None
    for word in version.read_text().split("\n", 1)[0].split():
        if word[0].isdigit() and word.count(".") >= 1:
            return word
    raise LookupError(f"no version in {version}: {version.read_text()[:100]}")


def torch_version() -> str:
    """As torch says it, with its build: ``2.13.0+cu130``."""
    import torch

    return str(torch.__version__)


def torch_cuda() -> str | None:
    """CUDA that torch was built with; None: a build for CPUs."""
    import torch

    return torch.version.cuda


def torch_nccl() -> str | None:
    """NCCL as torch reports it; None: it has none, or there is no GPU to use it with."""
    import torch
    import torch.distributed as dist

    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def loaded_nccl() -> dict[str, str] | None:
    """File and version of the libnccl that this process has loaded with torch; None: it has loaded none.

    A library in LD_LIBRARY_PATH or LD_PRELOAD takes the place of the one that torch brought along.
    """
    import torch  # noqa: F401 (loads it)

    rows = Path("/proc/self/maps").read_text().splitlines()
    files = sorted({row.split(maxsplit=5)[5] for row in rows if "/libnccl.so" in row})
    if not files:
        return None
    number = ctypes.c_int()
    ctypes.CDLL(files[0]).ncclGetVersion(ctypes.byref(number))
    return {"file": ", ".join(files), "version": nccl_version(number.value)}


def nccl_version(number: int) -> str:
    """``NCCL_VERSION_CODE`` in words: 22304 is 2.23.4; up to 2.8 it was 2804."""
    thousands = 10_000 if number >= 10_000 else 1_000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"


def torch_gpus() -> list[dict[str, Any]]:
    """GPUs that torch can use, in its order."""
    import torch

    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [{"name": p.name, "uuid": str(p.uuid), "memory_bytes": p.total_memory} for p in found]
