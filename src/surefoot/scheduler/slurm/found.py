"""A cluster as this host's Slurm tells it: for sites that have no cluster file yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surefoot.errors import SchedulerError
from surefoot.hostlist import folded
from surefoot.model.cluster import Cluster, NodeGroup, SlurmScheduler
from surefoot.scheduler.slurm.parse import NodeRow


@dataclass(frozen=True)
class Found:
    """A cluster of the nodes that Slurm uses, and those it leaves out."""

    cluster: Cluster
    partition: str
    left_out: tuple[NodeRow, ...]
    """Nodes of the partition where Slurm starts nothing now. Never silently: `told` names each."""

    @property
    def told(self) -> str:
        """``62 of 64 nodes; left out: n1 is drained (bad rail)``, for people."""
        used = self.cluster.nodes
        without = "; left out: " + ", ".join(row.told for row in self.left_out) if self.left_out else ""
        return f"{used} of {used + len(self.left_out)} nodes{without}"


def cluster_of(nodes: Iterable[NodeRow], partition: str, root: str) -> Found:
    """The cluster of one partition (empty: Slurm's default). Nodes with other CPUs, GPUs or GPU types are groups of their own.

    Nothing is expected that Slurm does not tell: no GPU model, rails or versions. Raises SchedulerError
    where there is no such partition, or none of its nodes is usable.
    """
    seen = list(nodes)
    rows = [row for row in seen if (row.partition == partition if partition else row.default)]
    if not rows:
        known = ", ".join(sorted({row.partition for row in seen})) or "none"
        asked = f"no node in partition {partition!r}" if partition else "no default partition with nodes"
        raise SchedulerError(f"sinfo shows {asked}; it shows: {known}. Next: choose one of these with --partition")
    usable = [row for row in rows if row.usable]
    left_out = tuple(row for row in rows if not row.usable)
    if not usable:
        said = ", ".join(row.told for row in left_out)
        raise SchedulerError(
            f"sinfo: no node of partition {rows[0].partition} is usable: {said}. Next: return one to service"
        )
    name = rows[0].partition
    cluster = Cluster(
        name="slurm",
        description=f"Partition {name}, as sinfo told it",
        scheduler=SlurmScheduler(kind="slurm", partition=name),
        root=root,
        node_groups=_groups(usable),
    )
    return Found(cluster, name, left_out)


def _groups(rows: Sequence[NodeRow]) -> tuple[NodeGroup, ...]:
    """Those of more CPUs first. Each names its hosts: a node is held to what Slurm says of it."""
    alike: dict[tuple[int, str, int], list[str]] = {}
    for row in rows:
        alike.setdefault((row.gpus, row.gpu_type, -row.cpus), []).append(row.name)
    return tuple(
        NodeGroup(
            name="-".join(part for part in (f"{gpus}gpu", kind, f"{-cpus}cpu") if part),
            count=len(hosts),
            hosts=folded(hosts),
            gpus_per_node=gpus,
            min_cpus=-cpus,
        )
        for (gpus, kind, cpus), hosts in sorted(alike.items())
    )
