"""A log of NCCL as a job of several nodes would leave it, written by a test. Forms of its lines: see the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden" / "nccl_log"
WAYS = GOLDEN / "h200-x2-ways"


def golden(*names: str) -> dict[str, str]:
    """Captures of two H200, by name."""
    return {name: (WAYS / name).read_text() for name in names}


def info(message: str, *, host: str = "n1", pid: int = 7, thread: int = 7, device: int = 0) -> str:
    """One line."""
    return f"{host}:{pid}:{thread} [{device}] NCCL INFO {message}\n"


@dataclass
class Job:
    """Ranks in blocks on nodes n1, n2, …; each channel goes over one network device, to the next node and back."""

    nodes: int = 2
    per_node: int = 2
    using: str = " [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>"
    virtual: tuple[str, ...] = ()
    """Lines `Made virtual device`."""
    devices: tuple[str, ...] = ("IB/0/GDRDMA", "IB/1/GDRDMA")
    """What channels go over: one channel each."""
    inside: str = "P2P/CUMEM"
    network: str = "IB"
    bootstrap: str = "eth0"
    silent: set[int] = field(default_factory=set)
    """Ranks that write nothing."""
    unfinished: set[int] = field(default_factory=set)
    """Ranks that start and do not complete."""

    @property
    def world(self) -> int:
        """How many ranks."""
        return self.nodes * self.per_node

    def host(self, rank: int) -> str:
        """Its node's name."""
        return f"n{rank // self.per_node + 1}"

    def text(self) -> str:
        """All ranks' lines."""
        return "".join(self.rank(rank) for rank in range(self.world) if rank not in self.silent)

    def rank(self, rank: int) -> str:
        """One rank's lines."""
        local = rank % self.per_node
        begin = f"{self.host(rank)}:{100 + rank}:{200 + rank} [{local}] NCCL INFO "
        comm = f"ncclCommInitRank comm 0x7f{rank:x} rank {rank} nranks {self.world} cudaDev {local} nvmlDev {local} busId {local + 1}b000 commId 0xc0ffee"
        rows = [f"Bootstrap : Using {self.bootstrap}:10.0.0.{rank // self.per_node + 1}<0>"]
        rows += [f"NET/IB : Using{self.using}"] if self.using else []
        rows += [*self.virtual, f"Using network {self.network}", f"{comm} - Init START"]
        rows += [f"{comm} - Init COMPLETE"] if rank not in self.unfinished else []
        return "".join(begin + row + "\n" for row in rows + self._channels(rank, local))

    def _channels(self, rank: int, local: int) -> list[str]:
        rows = []
        after, before = (rank + self.per_node) % self.world, (rank - self.per_node) % self.world
        for channel, device in enumerate(self.devices):
            if self.per_node > 1:
                peer = rank - local + (local + 1) % self.per_node
                rows.append(
                    f"Channel {channel:02d}/0 : {rank}[{local}] -> {peer}[{peer % self.per_node}] via {self.inside}"
                )
            if self.nodes > 1 and channel % self.per_node == local:
                plain = device.replace("(?)", "")  # a receiver holds its own network device
                send = device.replace("(?)", f"({rank - local + (local + 1) % self.per_node})")
                rows += [
                    f"Channel {channel:02d}/0 : {rank}[{local}] -> {after}[{local}] [send] via NET/{send}",
                    f"Channel {channel:02d}/0 : {before}[{local}] -> {rank}[{local}] [receive] via NET/{plain}",
                ]
        return rows
