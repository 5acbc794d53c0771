"""The device that a rank computed on, as ``surefoot.node.group`` reports it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from surefoot.model.base import Record


class Device(Record):
    """One device. None where a CPU has no such thing."""

    kind: str
    index: int | None
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    memory_bytes: int | None = Field(gt=0)
    torch: str = Field(min_length=1)
    cuda: str | None
    nccl: str | None
    threads: int = Field(ge=1)

    @property
    def shown(self) -> str:
        """For people: ``cuda:1 NVIDIA H200`` or ``cpu``."""
        return f"{self.kind}:{self.index} {self.name}" if self.kind == "cuda" else self.kind


def device_problems(devices: Sequence[tuple[str, str, int, Device]], kind: str) -> list[str]:
    """What contradicts "every rank computed on a `kind` device of its own".

    `devices`: (rank in words, host, local rank, device). Two ranks share a CPU; they never share a
    GPU: identity is the UUID, because an index may mean another GPU in another process. Index 0 is
    right for any rank: to one that was bound to a GPU, that is the only one there is.
    """
    problems = []
    owner: dict[str, str] = {}
    builds = {(d.torch, d.cuda, d.nccl, d.threads) for _, _, _, d in devices}
    if len(builds) > 1:
        problems.append(f"ranks differ in torch, CUDA, NCCL or threads: {sorted(map(str, builds))}")
    for who, host, local_rank, device in devices:
        if device.kind != kind:
            problems.append(f"{who} computed on {device.kind}, asked for was {kind}")
        elif kind == "cuda":
            if device.index not in (local_rank, 0):
                problems.append(f"{who} used cuda:{device.index}, its local rank is {local_rank}")
            if not device.uuid or not device.name or device.memory_bytes is None:
                problems.append(f"{who} does not say which GPU it used")
                continue
            identities = [device.uuid, *([f"{host} {device.pci_bus_id}"] if device.pci_bus_id else [])]
            taken = [identity for identity in identities if owner.setdefault(identity, who) != who]
            problems += [f"{who} used the same GPU as {owner[identity]} ({identity})" for identity in taken]
        elif any(
            v is not None for v in (device.uuid, device.index, device.name, device.pci_bus_id, device.memory_bytes)
        ):
            problems.append(f"{who} names a GPU, asked for was a CPU")
    return problems
