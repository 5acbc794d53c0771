"""Facts of a node as records: what ``surefoot.node.probe`` reports, each known or unknown with a reason."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, IPvAnyAddress, model_validator

from surefoot.hardware.fact import Fact, Known, Natural, Positive, Text, TextFact
from surefoot.hardware.gpu_facts import Gpu
from surefoot.hardware.network_facts import Hca, Interface, Reach, Route
from surefoot.hardware.older_facts import lifted
from surefoot.model.base import Record


class TorchGpu(Record):
    """A GPU as PyTorch sees it."""

    name: Text
    uuid: Text
    memory_bytes: Positive


class Addresses(Known[Annotated[tuple[IPvAnyAddress, ...], Field(min_length=1)]]):
    """IP addresses that a name leads to."""

    @property
    def loopback(self) -> list[str]:
        """Those that lead back to the host itself, from wherever they are used."""
        return [str(address) for address in self.value or () if address.is_loopback]


class DriverVersions(Record):
    """What NVML says of the driver."""

    driver: Text
    cuda: Text
    """Newest CUDA that it supports."""


class LoadedNccl(Record):
    """The libnccl that a process of the training loads."""

    file: Text
    version: Text


class Mount(Record):
    """One mounted file system."""

    place: Text
    kind: Text
    source: str
    options: tuple[str, ...]


class RootMount(Mount):
    """The one that the shared root lies on, with its room."""

    free_bytes: Natural
    total_bytes: Positive
    free_inodes: Natural


class Clock(Record):
    """What a node's kernel believes of its own clock. Seconds."""

    synchronised: bool
    offset_s: float
    estimated_error_s: float
    greatest_error_s: float


class NodeFacts(Record):
    """One node. Sizes in bytes."""

    hostname: TextFact
    slurm: Fact[dict[str, str]]
    """What Slurm calls it; None: not started by Slurm."""
    cpu: TextFact
    cpus: Fact[Positive]
    """CPUs that a job may use (affinity), not those that are there."""
    cpus_online: Fact[Positive]
    sockets: Fact[Positive]
    cores: Fact[Positive]
    numa_nodes: Fact[dict[str, str]]
    """NUMA node → its CPUs."""
    microcode: TextFact
    memory_total: Fact[Positive]
    memory_available: Fact[Positive]
    memory_limit: Fact[Positive]
    """Least cgroup limit above the job; None: no limit."""
    disk_free: Fact[Natural]
    kernel: TextFact
    machine: TextFact
    os: TextFact
    boot_id: TextFact
    own_name: Addresses
    """What the node's own host name leads to there."""
    memlock: Fact[Natural]
    nofile: Fact[Natural]
    processes: Fact[Natural]
    stack: Fact[Natural]
    cpu_quota: Fact[float]
    cgroup_cpus: TextFact
    shared_memory: Fact[Natural]
    variables: Known[dict[str, str]]
    """Those of the environment that change what NCCL and its like do."""
    root_mount: Known[RootMount]
    mounts: Known[tuple[Mount, ...]]
    clock: Known[Clock]
    interfaces: Known[tuple[Interface, ...]]
    routes: Known[tuple[Route, ...]]
    hcas: Known[tuple[Hca, ...]]
    """RDMA devices."""
    reach: Known[Reach]
    """Which other nodes it reached over which interface; unknown where it met none."""
    python: TextFact
    interpreter: TextFact
    driver: TextFact
    """The kernel's; None: none is loaded."""
    driver_versions: Known[DriverVersions]
    pci_gpus: Known[Natural]
    """NVIDIA GPUs on the PCI bus, whether or not a driver works."""
    gpus: Known[tuple[Gpu, ...]]
    """GPUs that the driver lists; unknown where NVML is not there or fails."""
    xids: Known[dict[str, tuple[int, ...]]]
    """PCI address → Xid errors since boot; unknown where the kernel's log may not be read."""
    torch: TextFact
    cuda: TextFact
    nccl: TextFact
    nccl_library: Fact[LoadedNccl]
    torch_gpus: Known[tuple[TorchGpu, ...]]
    """GPUs that PyTorch can use."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_first_probe(cls, data: Any) -> Any:
        return lifted(data, frozenset(cls.model_fields), frozenset(Gpu.model_fields))

    @property
    def memory(self) -> int | None:
        """Bytes that a job can count on: physical memory, or the limit where that is less."""
        total, limit = self.memory_total.value, self.memory_limit.value
        return total if total is None or limit is None else min(total, limit)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Names of the usable GPUs; the driver's where it answered, else PyTorch's."""
        driver = [gpu.name.value for gpu in self.gpus.value or () if gpu.name.value]
        return tuple(driver or (gpu.name for gpu in self.torch_gpus.value or ()))
