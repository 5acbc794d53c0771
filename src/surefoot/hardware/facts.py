"""Facts of a node as records: what ``surefoot.node.probe`` reports, each known or unknown with a reason."""

from __future__ import annotations

from typing import Annotated, Generic, Self, TypeVar

from pydantic import Field, IPvAnyAddress, model_validator

from surefoot.model.base import Record

T = TypeVar("T")

Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]


class Fact(Record, Generic[T]):
    """A value; None where there is no such thing (no driver loaded, no limit); or unknown with a reason."""

    value: T | None
    unknown: str | None = None

    @model_validator(mode="after")
    def _unknown_has_no_value(self) -> Self:
        if self.unknown is not None and (self.value is not None or not self.unknown):
            raise ValueError("an unknown fact has a reason and no value")
        return self

    @property
    def shown(self) -> str:
        """For people and fingerprints; an unknown fact says so."""
        if self.unknown is not None:
            return f"unknown: {self.unknown}"
        return "none" if self.value is None else str(self.value)


class Known(Fact[T], Generic[T]):
    """A fact that has a value, or a reason why it has none."""

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if self.value is None and not self.unknown:
            raise ValueError("a fact has a value, or a reason why it has none")
        return self


TextFact = Fact[Text]


class SmiGpu(Record):
    """A GPU as nvidia-smi lists it."""

    index: Natural
    name: Text
    uuid: Text
    pci_bus_id: str
    memory_mib: Positive | None
    """None on GPUs that share the host's memory."""


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


class NodeFacts(Record):
    """One node. Sizes in bytes."""

    cpu: TextFact
    cpus: Fact[Positive]
    """CPUs that a job may use (affinity), not those that are there."""
    cpus_online: Fact[Positive]
    memory_total: Fact[Positive]
    memory_available: Fact[Positive]
    memory_limit: Fact[Positive]
    """Least cgroup limit above the job; None: no limit."""
    disk_free: Fact[Natural]
    kernel: TextFact
    machine: TextFact
    os: TextFact
    python: TextFact
    driver: TextFact
    pci_gpus: Known[Natural]
    """NVIDIA GPUs on the PCI bus, whether or not a driver works."""
    gpus: Known[tuple[SmiGpu, ...]]
    """GPUs that nvidia-smi lists; unknown where it is not there or fails."""
    own_name: Addresses
    """What the node's own host name leads to there."""
    memlock: Fact[Natural]
    nofile: Fact[Natural]
    torch: TextFact
    cuda: TextFact
    nccl: TextFact
    torch_gpus: Known[tuple[TorchGpu, ...]]
    """GPUs that PyTorch can use."""

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
