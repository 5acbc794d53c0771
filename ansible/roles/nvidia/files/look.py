"""Looks at the NVIDIA part of a host, changes nothing, prints one JSON document. Standard library, Python 3.9 or newer.

    look.py [ROOT]

Every fact is ``{"value": …, "from": …}``: ``from`` is the file or command that shows it. Where something
could not be found out it is ``{"value": null, "unknown": "because …", "from": …}``; nothing is defaulted.

ROOT is another root folder than ``/``: its ``proc`` and ``sys`` are read, and tools are taken from its
``usr/bin`` and ``usr/sbin`` alone, so that nothing of the real host is mixed into a pretended one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

Fact = dict[str, Any]

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA controller, 3D controller (as `surefoot.node.pci` counts them)."""
SWITCH_CLASS = "0x0680"
"""An NVSwitch is a "bridge, other" of NVIDIA's, up to Hopper."""
GIVEN_AWAY = ("vfio-pci", "pci-stub")
"""Drivers that hold a device for a virtual machine."""
MODULES = ("nvidia", "nvidia_uvm", "nvidia_peermem", "gdrdrv")
UNITS = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "dcgm")
TIMEOUT_S = 120

# Attributes of cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR,
# _GPU_DIRECT_RDMA_SUPPORTED, _DMA_BUF_SUPPORTED. No context is made: the GPU is not used.
CUDA_PROBE = r"""
import ctypes, json, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(str(error))
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        sys.exit("%s ends with error %d: %s" % (name, code, (text.value or b"unknown").decode()))
version, count = ctypes.c_int(), ctypes.c_int()
call("cuInit", 0)
call("cuDriverGetVersion", ctypes.byref(version))
call("cuDeviceGetCount", ctypes.byref(count))
devices = []
for index in range(count.value):
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetName", name, 256, device)
    found = []
    for attribute in (75, 76, 116, 124):
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        found.append(value.value)
    devices.append({"name": name.value.decode(), "compute_capability": "%d.%d" % (found[0], found[1]),
                    "gpudirect_rdma": bool(found[2]), "dma_buf": bool(found[3])})
print(json.dumps({"version": "%d.%d" % (version.value // 1000, version.value % 1000 // 10), "devices": devices}))
"""

RUNTIME_PROBE = r"""
import ctypes, sys
version = ctypes.c_int()
code = ctypes.CDLL(sys.argv[1]).cudaRuntimeGetVersion(ctypes.byref(version))
print("%d.%d" % (version.value // 1000, version.value % 1000 // 10)) if code == 0 else sys.exit("error %d" % code)
"""


class UnknownError(Exception):
    """Something could not be found out: why."""


class Host:
    """A host as it is seen below one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.real = root == Path("/")

    def path(self, name: str) -> Path:
        """`name` (absolute) below the root."""
        return self.root / name.lstrip("/")

    def shown(self, path: Path) -> str:
        """A path as the host itself names it."""
        return "/" + str(path.relative_to(self.root))

    def tool(self, name: str) -> str | None:
        """A tool's place; None where it is not there."""
        places = [str(self.path(folder)) for folder in ("usr/bin", "usr/sbin")]
        if self.real:
            places = [os.environ.get("PATH", ""), *places, "/usr/local/nvidia/bin"]
        return shutil.which(name, path=os.pathsep.join(places))

    def call(self, name: str, *arguments: str) -> str:
        """What a tool prints. Raises UnknownError with what it said where it is missing or fails."""
        place = self.tool(name)
        if place is None:
            raise UnknownError(f"{name} is not there")
        return run([place, *arguments], name)


def run(command: list[str], name: str) -> str:
    """Output of a command. Raises UnknownError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnknownError(f"{name}: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip() or "says nothing").split())
        raise UnknownError(f"{name} ends with {done.returncode}: {said[:300]}")
    return done.stdout


def fact(source: str, find: Callable[[], Any]) -> Fact:
    """What `find` gives, or why there is nothing."""
    try:
        return {"value": find(), "from": source}
    except (UnknownError, OSError, ValueError, LookupError, ET.ParseError) as error:
        why = str(error) if isinstance(error, UnknownError) else f"{type(error).__name__}: {error}"
        return {"value": None, "unknown": why, "from": source}


def driver(host: Host) -> dict[str, str] | None:
    """Version and kind of the kernel driver that is loaded; None: none is.

    ``NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …``
    """
    file = host.path("/proc/driver/nvidia/version")
    if not file.exists():
        return None
    line = file.read_text().split("\n", 1)[0]
    version = re.search(r"\s(\d+(?:\.\d+)+)\s", line + " ")
    if version is None:
        raise UnknownError(f"no version in its first line: {line[:120]}")
    return {"version": version.group(1), "kind": "open" if "Open Kernel" in line else "proprietary"}


def bus(host: Host) -> dict[str, list[str]]:
    """GPUs and NVSwitches: PCI addresses, and RDMA devices that lead to NVSwitches (Blackwell)."""
    found: dict[str, list[str]] = {"gpus": [], "switches": []}
    devices = host.path("/sys/bus/pci/devices")
    if not devices.exists() and not host.path("/sys/bus").is_dir():
        raise UnknownError("/sys/bus is not there")
    for entry in sorted(devices.iterdir()) if devices.exists() else []:
        vendor, kind = [(entry / name).read_text().strip() for name in ("vendor", "class")]
        link = entry / "driver"
        if vendor != NVIDIA or (link.is_symlink() and link.readlink().name in GIVEN_AWAY):
            continue
        if kind.startswith(GPU_CLASSES):
            found["gpus"].append(entry.name)
        elif kind.startswith(SWITCH_CLASS):
            found["switches"].append(entry.name)
    # From Blackwell on NVSwitches are reached through ConnectX-7 functions whose vital product data say so.
    for entry in sorted(host.path("/sys/class/infiniband").glob("*/device/vpd")):
        if b"SW_MNG" in entry.read_bytes():
            found["switches"].append(entry.parent.parent.name)
    return found


def smi(host: Host) -> dict[str, Any]:
    """Driver and GPUs as ``nvidia-smi`` tells them."""
    top = ET.fromstring(host.call("nvidia-smi", "-q", "-x"))  # noqa: S314 - the driver's own tool
    gpus = [
        {
            "pci": gpu.get("id", ""),
            "name": _text(gpu, "product_name"),
            "uuid": _text(gpu, "uuid"),
            "persistence": _text(gpu, "persistence_mode"),
            "fabric_state": _text(gpu, "fabric/state", "N/A"),
            "fabric_status": _text(gpu, "fabric/status", "N/A"),
            "processes": [int(pid.text or 0) for pid in gpu.findall("processes/process_info/pid")],
        }
        for gpu in top.findall("gpu")
    ]
    attached = int(_text(top, "attached_gpus"))
    if attached != len(gpus):
        raise UnknownError(f"nvidia-smi says {attached} GPUs and describes {len(gpus)}")
    return {"driver": _text(top, "driver_version"), "cuda": _text(top, "cuda_version", ""), "gpus": gpus}


def _text(element: ET.Element, path: str, default: str | None = None) -> str:
    found = element.findtext(path)
    if found is None and default is None:
        raise UnknownError(f"nvidia-smi -q -x has no <{path}>")
    return (found if found is not None else default or "").strip()


def cuda(host: Host) -> dict[str, Any]:
    """What the CUDA driver says of itself and its devices."""
    if not host.real:
        raise UnknownError("a library of this machine is not asked about another root")
    answer: dict[str, Any] = json.loads(run([sys.executable, "-c", CUDA_PROBE], "libcuda.so.1"))
    return answer


def runtimes(host: Host) -> list[dict[str, str]]:
    """CUDA runtime libraries of the host: path and version.

    The version stands in the file's full name (``libcudart.so.13.0.88``); where it does not, the library is asked.
    """
    found = {}
    places = ("usr/local/cuda*/lib64", "usr/local/cuda*/targets/*/lib", "usr/lib/*-linux-gnu", "usr/lib", "usr/lib64")
    for place in places:
        for file in sorted(host.root.glob(f"{place}/libcudart.so.*")):
            path = file.resolve()
            match = re.fullmatch(r"libcudart\.so\.(\d+(?:\.\d+)*)", path.name)
            if match and path.is_file():
                version = match.group(1)
                asked = "." not in version and host.real
                found[str(path)] = (
                    run([sys.executable, "-c", RUNTIME_PROBE, str(path)], str(path)).strip() if asked else version
                )
    root = resolved(host.root)
    return [{"path": path[len(root) :], "version": version} for path, version in sorted(found.items())]


def resolved(root: Path) -> str:
    """The root without links; empty for ``/``."""
    text = str(root.resolve())
    return "" if text == "/" else text


def dcgm(host: Host) -> str | None:
    """Version of ``dcgmi``; None: it is not there."""
    if host.tool("dcgmi") is None:
        return None
    said = host.call("dcgmi", "--version")
    match = re.search(r"version:\s*(\d+(?:\.\d+)+)", said)
    if match is None:
        raise UnknownError(f"dcgmi --version says: {said.strip()[:120]}")
    return match.group(1)


def modules(host: Host) -> dict[str, str]:
    """Kernel modules that are loaded, and their versions (empty where a module tells none)."""
    found = {}
    for name in MODULES:
        folder = host.path(f"/sys/module/{name}")
        if folder.is_dir():
            file = folder / "version"
            found[name] = file.read_text().strip() if file.exists() else ""
    return found


def units(host: Host) -> dict[str, dict[str, str]]:
    """Systemd's word on each service that is there: ``{"active": …, "enabled": …}``."""
    found = {}
    for name in UNITS:
        said = host.call("systemctl", "show", "-p", "LoadState,ActiveState,UnitFileState", f"{name}.service")
        rows = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        if rows["LoadState"] != "not-found":
            found[name] = {"active": rows["ActiveState"], "enabled": rows["UnitFileState"]}
    return found


def kernel(host: Host) -> str:
    """Release of the running kernel."""
    return host.path("/proc/sys/kernel/osrelease").read_text().strip()


def look(root: Path) -> dict[str, Fact]:
    """All facts."""
    host = Host(root)
    return {
        "kernel": fact("/proc/sys/kernel/osrelease", lambda: kernel(host)),
        "driver": fact("/proc/driver/nvidia/version", lambda: driver(host)),
        "bus": fact("/sys/bus/pci/devices", lambda: bus(host)),
        "smi": fact("nvidia-smi -q -x", lambda: smi(host)),
        "cuda": fact("libcuda.so.1", lambda: cuda(host)),
        "runtimes": fact("libcudart.so in /usr/local/cuda* and /usr/lib", lambda: runtimes(host)),
        "dcgm": fact("dcgmi --version", lambda: dcgm(host)),
        "modules": fact("/sys/module", lambda: modules(host)),
        "units": fact("systemctl show", lambda: units(host)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(Path(sys.argv[1] if len(sys.argv) > 1 else "/"))) + "\n")
