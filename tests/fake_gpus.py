"""Nodes with GPUs that are not there: what NVML, the PCI bus and the kernel say of them, and a torch that takes them.

For tests of what Surefoot does with many GPUs where there is none. Three things are put in place of the real ones,
all by the interpreter that jobs are given, none by the product:

- `fake_nvml.c` as ``libnvidia-ml.so.1``, by LD_LIBRARY_PATH. It answers from the node's own ``nvml`` file;
- folders in the form of ``/sys/bus/pci/devices`` and a file in that of ``/proc/driver/nvidia/version``;
- torch's functions that tell of GPUs. Its tensors lie in the memory of the CPU, and gloo carries them.

A GPU here computes nothing: what these tests show is how ranks are placed, bound, counted and named.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
DRIVER, NCCL, MEMORY_MIB, NAME = "580.95.05", "2.27.3", 143771, "NVIDIA H200"

_SITE = """
import importlib.machinery, os, sys
from pathlib import Path

NODE = Path(os.environ["FAKE_NODE"])

def visible():
    from surefoot.node.facts import nvml
    with nvml.driver() as driver:
        found = driver.gpus()
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        indices = range(len(found)) if shown is None else [int(i) for i in shown.split(",") if i]
        told = [(g.text("Name"), g.text("UUID"), g.memory_bytes(), g.pci_bus_id()) for g in found]
    return [told[i] for i in indices if i < len(told)]

class Properties:
    def __init__(self, name, uuid, memory, address):
        domain, bus, slot = address.partition(".")[0].split(":")
        self.name, self.total_memory = name, memory
        self.uuid = uuid.removeprefix("GPU-")  # as torch has it
        self.pci_domain_id, self.pci_bus_id, self.pci_device_id = int(domain, 16), int(bus, 16), int(slot, 16)

def nccl():
    return tuple(int(part) for part in (NODE / "nccl").read_text().split("."))

def torch_with_gpus(torch):
    cuda = torch.cuda
    cuda.device_count = lambda: len(visible())
    cuda.get_device_properties = lambda i: Properties(*visible()[getattr(i, "index", i)])
    cuda.set_device = lambda device: None
    cuda.synchronize = lambda device=None: None
    cuda.can_device_access_peer = lambda *_: False
    cuda.nccl.version = nccl

    class InMemoryOfTheCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if str(kwargs.get("device")).startswith("cuda"):
                kwargs["device"] = "cpu"
            return function(*args, **kwargs)

    InMemoryOfTheCpu().__enter__()
    parallel = torch.nn.parallel.DistributedDataParallel
    before = parallel.__init__
    def without_ids(self, module, device_ids=None, **kwargs):
        before(self, module, **kwargs)
    parallel.__init__ = without_ids

def bus(module):
    for function in (getattr(module, name, None) for name in ("numa_node", "local_cpus", "gpus_on_bus")):
        if function is not None:
            function.__defaults__ = (NODE / "pci",)

def driver_file(module):
    module.driver.__defaults__ = (NODE / "version",)
    module.torch_nccl = lambda: ".".join(str(part) for part in nccl())

CHANGED = {
    "torch": torch_with_gpus, "surefoot.node.facts.gpus": bus, "surefoot.node.pci": bus,
    "surefoot.node.facts.software": driver_file,
}

class Finder:
    def find_spec(self, name, path=None, target=None):
        change = CHANGED.pop(name, None)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            change(module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


class FakeGpus:
    """Nodes' GPUs as files below a folder that all nodes see. To break a node is to write its files anew."""

    def __init__(self, folder: Path) -> None:
        """Compiles the library. Fails the test where there is no compiler, and says how to get one."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("gcc") or shutil.which("cc")
        assert compiler, "a C compiler is needed: scripts/setup.sh lab installs it"
        library = folder / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
        (folder / "sitecustomize.py").write_text(_SITE)

    def node(
        self,
        host: str,
        *,
        count: int = 8,
        missing: Sequence[int] = (),
        driver: str = DRIVER,
        nccl: str = NCCL,
        ranks: str = "",
    ) -> None:
        """`count` GPUs on the host's bus. The driver does not list those `missing`.

        `ranks`: lines of shell that each of its processes runs first, with the rank's environment: what a launcher
        did wrong.
        """
        folder = self.folder / host
        shutil.rmtree(folder, ignore_errors=True)
        addresses = [f"0000:{0x1B + 0x10 * i:02x}:00.0" for i in range(count)]
        for address in addresses:
            device = folder / "pci" / address
            device.mkdir(parents=True)
            for name, text in (
                ("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", "0"), ("local_cpulist", "0-1023"),
            ):  # fmt: skip
                (device / name).write_text(f"{text}\n")
        listed = [
            f"gpu GPU-{host}-{i} {address} {MEMORY_MIB} {NAME}"
            for i, address in enumerate(addresses)
            if i not in missing
        ]
        (folder / "nvml").write_text("\n".join([f"driver {driver}", "cuda 13000", *listed, ""]))
        (folder / "nccl").write_text(nccl)
        (folder / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Release Build\n")
        (folder / "ranks").write_text(f"{ranks}\n")

    def python(self) -> str:
        """Path of an interpreter to name in a cluster file: on each host, with that host's GPUs."""
        path = self.folder / "python"
        path.write_text(
            "#!/bin/sh\n"
            f'export FAKE_NODE="{self.folder}/$(uname -n)"\n'
            f'[ -d "$FAKE_NODE" ] || exec {sys.executable} "$@"\n'  # a host without GPUs
            f'export FAKE_NVML="$FAKE_NODE/nvml" LD_LIBRARY_PATH="{self.folder}" PYTHONPATH="{self.folder}:$PYTHONPATH"\n'
            '. "$FAKE_NODE/ranks"\n'
            f'exec {sys.executable} "$@"\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return str(path)
