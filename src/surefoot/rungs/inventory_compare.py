"""Three accounts of a cluster beside each other: Ansible's inventory, the cluster file, and Slurm. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.hostlist import expand
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.provision.listing import Listed
from surefoot.rungs.ansible_view import HostSaid, short
from surefoot.rungs.slurm_view import Config, Node, declared_nodes
from surefoot.scheduler.slurm.parse import pairs

VARIABLES = (
    "common_address", "slurm_cluster_name", "slurm_node_cpus", "slurm_node_memory_mib", "slurm_partitions",
    "gres_gpus_per_node", "gres_gpu_type",
)  # fmt: skip
"""Variables of the roles that say what Slurm and the cluster file say too."""
ASPECTS: dict[str, str] = {
    "hosts": "inventory, cluster file and Slurm name the same nodes",
    "addresses": "every node has the address that the inventory and Slurm give it",
    "gpus": "every node has the same number of GPUs in all three",
    "gpu_type": "every node's GPUs are of the type that the inventory gives Slurm",
    "cpus": "every node has the CPUs that the inventory gives Slurm, and that the cluster file asks for",
    "memory": "every node has the memory that the inventory gives Slurm, and that the cluster file asks for",
    "partitions": "every node is in the partitions that the inventory and the cluster file put it in",
    "cluster_name": "Slurm's cluster has the name that the inventory gives it",
}
"""What is compared → the claim."""
_NONE = "-"
_TYPE = re.compile(r"(?:^|,)gpu:([A-Za-z][^:,()]*)(?=[:,(]|$)")


@dataclass(frozen=True)
class Row:
    """One thing about one host, as each of the three has it; ``-`` where one says nothing of it."""

    host: str
    aspect: str
    inventory: str
    cluster: str
    slurm: str
    problem: str = ""
    """What does not agree, in words; empty where all that is said agrees."""

    def __str__(self) -> str:
        return f"{self.host}: {self.problem}" if self.problem else f"{self.host}: as declared"

    @property
    def cells(self) -> dict[str, str]:
        """For tables."""
        return {
            "host": self.host, "what": self.aspect.replace("_", " "), "inventory": self.inventory,
            "cluster file": self.cluster, "slurm": self.slurm, "problem": self.problem,
        }  # fmt: skip


@dataclass(frozen=True)
class Three:
    """The three accounts, and what hosts say of themselves."""

    listed: Listed
    declared: Mapping[str, Mapping[str, Any]]
    """Host → variables of `VARIABLES` that the inventory sets."""
    cluster: Cluster
    nodes: Sequence[Node] | None
    """None: the cluster has no Slurm."""
    config: Config | None
    said: Mapping[str, HostSaid]

    def value(self, host: str, name: str) -> Any:
        """A variable of a host; None where it is not set."""
        return self.declared.get(host, {}).get(name)

    @property
    def inventory_nodes(self) -> list[str]:
        """Hosts of the inventory that compute."""
        assert self.cluster.ansible is not None
        return self.listed.within(self.cluster.ansible.node_group)


def compared(three: Three) -> list[Row]:
    """Every comparison, in the order of `ASPECTS`."""
    rows = [*_hosts(three)]
    nodes = {node.name: node for node in three.nodes or ()}
    groups = _groups(three)
    for host in three.inventory_nodes:
        node, group = nodes.get(host), groups.get(host)
        slurm = pairs(node.row) if node else {}
        if node:
            rows.append(_address(three, host, slurm))
        rows += _gpus(three, host, node, slurm, group)
        cpus, mib = (group.min_cpus, group.min_memory_gib * 1024) if group else (None, None)
        rows += _figure(three, host, _Figure("cpus", "slurm_node_cpus", "CPUTot", cpus, ""), slurm)
        rows += _figure(three, host, _Figure("memory", "slurm_node_memory_mib", "RealMemory", mib, " MiB"), slurm)
        if node:
            rows += _partitions(three, host, slurm)
    rows += _cluster_name(three)
    order = list(ASPECTS)
    return sorted(rows, key=lambda row: order.index(row.aspect))


def _groups(three: Three) -> dict[str, NodeGroup]:
    """Host → its node group in the cluster file, where that is known."""
    found = {host: group for group in three.cluster.node_groups for host in expand(group.hosts)}
    unnamed = [group for group in three.cluster.node_groups if not group.hosts]
    if len(unnamed) == 1:
        return {**dict.fromkeys(three.inventory_nodes, unnamed[0]), **found}
    if unnamed and three.nodes:
        for part in declared_nodes(three.cluster, list(three.nodes)):
            for node in part.nodes:
                found.setdefault(node.name, part.group)
    return found


def _hosts(three: Three) -> Iterator[Row]:
    inventory = three.inventory_nodes
    named = [host for group in three.cluster.node_groups for host in expand(group.hosts)]
    unnamed = [group for group in three.cluster.node_groups if not group.hosts]
    slurm = [node.name for node in three.nodes or () if _ours(three, node)]
    for host in dict.fromkeys([*inventory, *named, *slurm]):
        places = {
            "the inventory": host in inventory,
            "the cluster file": host in named or bool(unnamed),
            "Slurm": host in slurm or three.nodes is None,
        }
        missing = [place for place, there in places.items() if not there]
        yield Row(
            host,
            "hosts",
            "yes" if host in inventory else "missing",
            "yes" if host in named else ("not by name" if unnamed else "missing"),
            _NONE if three.nodes is None else ("yes" if host in slurm else "missing"),
            f"missing in {' and in '.join(missing)}" if missing else "",
        )
    if unnamed:
        count = sum(group.count for group in unnamed)
        found = len([host for host in inventory if host not in named])
        names = " and ".join(repr(group.name) for group in unnamed)
        problem = "" if found == count else f"the cluster file declares {count} nodes, the inventory has {found}"
        yield Row(f"group {names}", "hosts", f"{found} nodes", f"{count} nodes", _NONE, problem)
    for group in three.cluster.node_groups:
        hosts = expand(group.hosts)
        if hosts and len(hosts) != group.count:
            problem = f"the cluster file declares {group.count} nodes and names {len(hosts)}"
            yield Row(f"group {group.name!r}", "hosts", _NONE, f"{group.count} nodes", _NONE, problem)


def _ours(three: Three, node: Node) -> bool:
    """Whether a node of Slurm's is to be in the inventory: of a part of one, only those of the cluster's partition."""
    assert three.cluster.ansible is not None
    wanted = getattr(three.cluster.scheduler, "partition", "")
    named = {host for group in three.cluster.node_groups for host in expand(group.hosts)}
    if not three.cluster.ansible.limit or node.name in named or node.name in three.inventory_nodes:
        return True
    return bool(wanted) and wanted in pairs(node.row).get("Partitions", "").split(",")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(three: Three, host: str, slurm: Mapping[str, str]) -> Row:
    told = three.value(host, "common_address")
    ours = str(told or three.listed.address(host))
    theirs = slurm.get("NodeAddr", "")
    said = three.said.get(host)
    own = set(said.addresses) if said else None
    problem = ""
    if not theirs:
        problem = "Slurm gives no NodeAddr"
    elif _is_ip(theirs) and own is not None and theirs not in own:
        problem = f"Slurm's address is none of the host's own ({', '.join(sorted(own)[:6])})"
    elif _is_ip(ours) and told and own is not None and ours not in own:
        problem = f"the inventory's address is none of the host's own ({', '.join(sorted(own)[:6])})"
    elif _is_ip(ours) and _is_ip(theirs) and ours != theirs and (own is None or ours not in own):
        problem = "two addresses"
    elif not _is_ip(theirs) and short(theirs) not in {short(host), short(ours), short(said.host) if said else ""}:
        problem = "Slurm has another name"
    return Row(host, "addresses", ours, _NONE, theirs or _NONE, problem)


def _gpus(
    three: Three, host: str, node: Node | None, slurm: Mapping[str, str], group: NodeGroup | None
) -> Iterator[Row]:
    ours, theirs = three.value(host, "gres_gpus_per_node"), node.gpus if node else None
    wanted = group.gpus_per_node if group and isinstance(group.gpus_per_node, int) else None
    part = group is not None and group.gpus_on_bus is not None
    # 0 in a cluster file: its jobs leave GPUs alone, whatever there is.
    values = {"the inventory": _number(ours), "the cluster file": None if part else (wanted or None), "Slurm": theirs}
    if _comparable(values):
        yield Row(
            host,
            "gpus",
            _NONE if ours is None else str(ours),
            _NONE if wanted is None else str(wanted),
            _NONE if theirs is None else str(theirs),
            _unequal(values),
        )
    kind = three.value(host, "gres_gpu_type")
    if kind is not None and node and node.gpus:
        types = _TYPE.findall(re.sub(r"\([^)]*\)", "", slurm.get("Gres", "")))
        same = [found.lower() for found in types] == [str(kind).lower()]
        problem = "" if same else f"Slurm has {' and '.join(types) or 'no type'}, the inventory {kind}"
        yield Row(host, "gpu_type", str(kind), (group and group.gpu_model) or _NONE, ",".join(types) or _NONE, problem)


def _number(value: Any) -> float | None:
    """A figure; None for none. What is no figure is compared as such, and equals nothing."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("inf")


def _comparable(values: Mapping[str, object]) -> bool:
    """Two of them at least say something: what one alone says contradicts nobody, and agrees with nobody."""
    return sum(value is not None for value in values.values()) > 1


def _unequal(values: Mapping[str, float | None]) -> str:
    """``the inventory has 8, Slurm 7``; empty where those that say something say the same."""
    said = {who: value for who, value in values.items() if value is not None}
    if len(set(said.values())) <= 1:
        return ""
    return ", ".join(f"{who} has {value:.12g}" for who, value in said.items())


@dataclass(frozen=True)
class _Figure:
    """A figure that inventory and Slurm are to have alike, and that must be no less than the cluster file's."""

    aspect: str
    variable: str
    key: str
    least: float | None
    unit: str


def _figure(three: Three, host: str, figure: _Figure, slurm: Mapping[str, str]) -> Iterator[Row]:
    ours, theirs = three.value(host, figure.variable), slurm.get(figure.key)
    if theirs is None or (ours is None and figure.least is None):
        return
    found = _number(theirs)
    problem = _unequal({"the inventory": _number(ours), "Slurm": found})
    if not problem and figure.least is not None and found is not None and found < figure.least:
        problem = f"Slurm has {found:.12g}, the cluster file asks for {figure.least:.12g}"
    least = _NONE if figure.least is None else f"≥ {figure.least:.12g}{figure.unit}"
    yield Row(host, figure.aspect, _NONE if ours is None else str(ours), least, theirs, problem)


def _partitions(three: Three, host: str, slurm: Mapping[str, str]) -> Iterator[Row]:
    found = {name for name in slurm.get("Partitions", "").split(",") if name and name != "(null)"}
    ours = _declared_partitions(three, host)
    asked = getattr(three.cluster.scheduler, "partition", "")
    if ours is None and not asked:
        return
    problems = []
    if ours is not None and ours != found:
        more, less = sorted(found - ours), sorted(ours - found)
        problems += [f"Slurm has it in {', '.join(more)}, the inventory not"] if more else []
        problems += [f"the inventory has it in {', '.join(less)}, Slurm not"] if less else []
    if asked and not found & set(asked.split(",")):
        problems.append(f"Slurm does not have it in {asked}, where the cluster file's jobs go")
    yield Row(
        host,
        "partitions",
        _NONE if ours is None else ", ".join(sorted(ours)) or "none",
        asked or _NONE,
        ", ".join(sorted(found)) or "none",
        "; ".join(problems),
    )


def _declared_partitions(three: Three, host: str) -> set[str] | None:
    """Partitions of a host by the inventory's ``slurm_partitions``; None where it does not set them."""
    partitions = three.value(host, "slurm_partitions")
    if not isinstance(partitions, list):
        return None
    found = set()
    for one in partitions:
        if isinstance(one, dict) and "name" in one and _holds(three, one.get("nodes"), host):
            found.add(str(one["name"]))
    return found


def _holds(three: Three, nodes: Any, host: str) -> bool:
    """Whether ``nodes`` of a partition (a hostlist, names, groups; all of them where nothing is said) has this host."""
    if nodes in (None, "", "ALL", "all"):
        return True
    for word in nodes if isinstance(nodes, list) else [nodes]:
        names = expand(str(word))
        if host in names or any(host in three.listed.within(name) for name in names):
            return True
    return False


def _cluster_name(three: Three) -> Iterator[Row]:
    if three.config is None:
        return
    theirs = three.config["ClusterName"]
    names: dict[str, list[str]] = {}
    for host in three.inventory_nodes:
        name = three.value(host, "slurm_cluster_name")
        if name is not None:
            names.setdefault(str(name), []).append(host)
    for name, hosts in names.items():
        problem = "" if name == theirs else f"the inventory's cluster is {name!r}, Slurm's {theirs!r}"
        where = "all nodes" if len(names) == 1 else ", ".join(hosts[:4])
        yield Row(where, "cluster_name", name, _NONE, theirs, problem)
