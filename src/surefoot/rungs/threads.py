"""How many CPUs a rank may count on."""

from __future__ import annotations

from surefoot.model.cluster import Cluster
from surefoot.rungs.base import Layout


def cpus_per_rank(cluster: Cluster, where: Layout) -> int:
    """The cluster file's least CPUs of a node, shared by the node's ranks: threads beyond that would queue."""
    return max(1, min(group.min_cpus for group in cluster.node_groups) // where.ranks_per_node)
