"""Facts of a node as records: what ``surefoot.node.probe`` reports, each known or unknown with a reason."""

from __future__ import annotations

from typing import Self

from pydantic import Field, IPvAnyAddress, model_validator

from surefoot.model.base import Record


class TextFact(Record):
    """A text, None where there is no such thing (no driver loaded), or unknown with a reason."""

    value: str | None = Field(min_length=1)
    unknown: str | None = None

    @model_validator(mode="after")
    def _unknown_has_no_value(self) -> Self:
        if self.unknown is not None and (self.value is not None or not self.unknown):
            raise ValueError("an unknown fact has a reason and no value")
        return self

    @property
    def shown(self) -> str:
        """For people and fingerprints; an unknown fact says so."""
        return f"unknown: {self.unknown}" if self.unknown is not None else self.value or "none"


class CountFact(Record):
    """A count or a size in bytes, None where there is none (no limit), or unknown with a reason."""

    value: int | None = Field(gt=0)
    unknown: str | None = None

    @model_validator(mode="after")
    def _unknown_has_no_value(self) -> Self:
        if self.unknown is not None and (self.value is not None or not self.unknown):
            raise ValueError("an unknown fact has a reason and no value")
        return self


class LimitFact(CountFact):
    """A count that may be 0 as well."""

    value: int | None = Field(ge=0)


class SmiGpu(Record):
    """A GPU as nvidia-smi lists it."""

    index: int = Field(ge=0)
    name: str = Field(min_length=1)
    uuid: str = Field(min_length=1)
    pci_bus_id: str
    memory_mib: int | None = Field(gt=0)
    """None on GPUs that share the host's memory."""


class TorchGpu(Record):
    """A GPU as PyTorch sees it."""

    name: str = Field(min_length=1)
    uuid: str = Field(min_length=1)
    memory_bytes: int = Field(gt=0)


class _Known(Record):
    """A fact that has a value, or a reason why it has none."""

    value: object
    unknown: str | None = None

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if (self.value is None) != bool(self.unknown):
            raise ValueError("a fact has a value, or a reason why it has none")
        return self


class SmiGpus(_Known):
    """GPUs that nvidia-smi lists; unknown where it is not there or fails."""

    value: tuple[SmiGpu, ...] | None


class TorchGpus(_Known):
    """GPUs that PyTorch can use."""

    value: tuple[TorchGpu, ...] | None


class GpuCount(_Known):
    """NVIDIA GPUs on the PCI bus, whether or not a driver works."""

    value: int | None = Field(ge=0)


class Addresses(_Known):
    """IP addresses that a name leads to."""

    value: tuple[IPvAnyAddress, ...] | None = Field(min_length=1)

    @property
    def loopback(self) -> list[str]:
        """Those that lead back to the host itself, from wherever they are used."""
        return [str(address) for address in self.value or () if address.is_loopback]


class NodeFacts(Record):
    """One node. Sizes in bytes."""

    cpu: TextFact
    cpus: CountFact
    """CPUs that a job may use (affinity), not those that are there."""
    cpus_online: CountFact
    memory_total: CountFact
    memory_available: CountFact
    memory_limit: CountFact
    """Least cgroup limit above the job; None: no limit."""
    disk_free: LimitFact
    kernel: TextFact
    machine: TextFact
    os: TextFact
    python: TextFact
    driver: TextFact
    pci_gpus: GpuCount
    gpus: SmiGpus
    own_name: Addresses
    """What the node's own host name leads to there."""
    memlock: LimitFact
    nofile: LimitFact
    torch: TextFact
    cuda: TextFact
    nccl: TextFact
    torch_gpus: TorchGpus

    @property
    def memory(self) -> int | None:
        """Bytes that a job can count on: physical memory, or the limit where that is less."""
        total, limit = self.memory_total.value, self.memory_limit.value
        return total if total is None or limit is None else min(total, limit)

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Names of the usable GPUs; nvidia-smi's where it answered, else PyTorch's."""
        gpus = self.gpus.value or self.torch_gpus.value or ()
        return tuple(gpu.name for gpu in gpus)
