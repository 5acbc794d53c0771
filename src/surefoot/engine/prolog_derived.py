"""What a cluster file claims of its nodes, as claims that a node can decide about itself before each job. Pure.

Nothing is claimed that the file does not say: a claim that is not there is named with the key that would make it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surefoot.errors import RequestError
from surefoot.hardware.network_pins import Pattern
from surefoot.hostlist import expand, folded
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.node.prolog_claims import CLAIMS, problem
from surefoot.rungs.precheck_gpus import FATAL_XIDS, PROGRAMS_OWN

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*\Z")
_ESCAPED = re.compile(r"\[([*?\[])\]")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Derived:
    """Claims of one node group."""

    group: str
    hosts: tuple[str, ...]
    """Its nodes, as Slurm calls them."""
    claims: dict[str, Any]
    """As `surefoot.node.prolog_claims` reads them; empty where the file claims nothing that a node can decide."""
    why: dict[str, str]
    """Claim → the key of the cluster file that it comes from."""
    not_claimed: tuple[str, ...]
    """Each claim that is not made, with what would make it."""


def derived(cluster: Cluster) -> tuple[Derived, ...]:
    """Of each node group, in the file's order. Raises RequestError for nodes that are not named, or named twice."""
    found = tuple(_of_group(cluster, group) for group in cluster.node_groups)
    owner: dict[str, str] = {}
    for one in found:
        if twice := [host for host in one.hosts if host in owner]:
            raise RequestError(
                f"node_groups: {folded(twice)} is in group {owner[twice[0]]} and in group {one.group}, and a prolog has"
                " one claims file for a node",
                next_action="correct hosts of one of them",
            )
        owner |= dict.fromkeys(one.hosts, one.group)
    names = [one.group for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RequestError(f"node_groups has the name {twice[0]} twice", next_action="rename one of them")
    return found


def _of_group(cluster: Cluster, group: NodeGroup) -> Derived:
    claims: dict[str, Any] = {}
    why: dict[str, str] = {}
    not_claimed: list[str] = []
    for name in CLAIMS:
        value, words = _SOURCES[name](cluster, group)
        if value is None:
            not_claimed.append(f"{name}: {words}")
            continue
        if wrong := problem(name, value):
            raise RequestError(f"node group {group.name}: {words} makes no claim of a prolog: {wrong}")
        claims[name], why[name] = value, words
    return Derived(group.name, _hosts(group), claims, why, tuple(not_claimed))


def _hosts(group: NodeGroup) -> tuple[str, ...]:
    if not _GROUP.match(group.name):
        raise RequestError(
            f"node group {group.name!r}: its claims file cannot be called so",
            next_action="rename it with letters, digits and . _ - alone",
        )
    if not group.hosts:
        raise RequestError(
            f"node group {group.name} has no hosts, so nobody knows which nodes its claims are about",
            next_action=f"write its nodes as Slurm calls them: hosts: gpu[01-{group.count:02d}]"
            " (surefoot preflight --learn FILE writes them)",
        )
    hosts = tuple(dict.fromkeys(expand(group.hosts)))
    if odd := [host for host in hosts if not _NODE.match(host)]:
        raise RequestError(f"node group {group.name}: hosts names {odd[0]!r}, which is no name of a node")
    return hosts


Source = tuple[Any, str]
"""A claim's value and the key that it comes from; or None and what would make it."""


def _gpus(_: Cluster, group: NodeGroup) -> Source:
    count = group.gpus_per_node
    if group.gpus_on_bus:
        return group.gpus_on_bus, "gpus_on_bus"
    if not isinstance(count, int) or count == 0:
        return None, f"gpus_per_node is {count}"
    if group.expect.get("gpu*.mig", "off") != "off":
        return None, "GPUs are split (gpu*.mig), and gpus_per_node counts parts: write gpus_on_bus"
    return count, "gpus_per_node"


def _has_gpus(cluster: Cluster, group: NodeGroup) -> bool:
    return bool(group.gpu_model) or _gpus(cluster, group)[0] is not None


def _gpu_model(_: Cluster, group: NodeGroup) -> Source:
    return (group.gpu_model, "gpu_model") if group.gpu_model else (None, "gpu_model is not written")


def _memory(_: Cluster, group: NodeGroup) -> Source:
    """GPUs whose memory counts its errors: others would be NOT PROVED before each job."""
    if group.expect.get("gpu*.ecc") == "on":
        return True, "expect, gpu*.ecc"
    return None, "expect has no gpu*.ecc: on"


def _xids(cluster: Cluster, group: NodeGroup) -> Source:
    """Those that the pre-check judges."""
    if not _has_gpus(cluster, group):
        return None, "no GPU is claimed"
    return [xid for xid in FATAL_XIDS if xid not in PROGRAMS_OWN], "GPUs: the Xids that the pre-check judges"


def _driver(cluster: Cluster, group: NodeGroup) -> Source:
    told = {key: group.expect[key] for key in ("driver", "driver.library") if group.expect.get(key, "none") != "none"}
    sources = {f"expect, {key}": value for key, value in told.items()}
    if cluster.software.driver and _has_gpus(cluster, group):
        sources = {"software.driver": cluster.software.driver, **sources}
    if len(set(sources.values())) > 1:
        words = "; ".join(f"{key} says {value}" for key, value in sources.items())
        raise RequestError(f"node group {group.name}: {words}", next_action="correct one of them: there is one driver")
    return next(((value, key) for key, value in sources.items()), (None, "software.driver is not written"))


def _mounts(_: Cluster, group: NodeGroup) -> Source:
    places = []
    for key, value in group.expect.items():
        if not key.startswith("mount /") or value == "none":
            continue
        plain = _ESCAPED.sub("", key)
        if not _PATTERN.search(plain):
            places.append(_ESCAPED.sub(r"\1", key).removeprefix("mount "))
    return (places, "expect, mount …") if places else (None, "expect has no fact mount /PLACE")


def _interfaces(cluster: Cluster, _: NodeGroup) -> Source:
    """Pins that are whole names; a beginning (``eth``) names none."""
    names: dict[str, str] = {}
    for variable, by_name in (("NCCL_SOCKET_IFNAME", False), ("GLOO_SOCKET_IFNAME", True)):
        pattern = Pattern.of(cluster.env.get(variable, ""))
        if not pattern.leaves_out and (by_name or pattern.exact):
            names |= {name: variable for name in pattern.entries if _INTERFACE.match(name)}
    if not names:
        return None, "env pins no interface by its whole name (GLOO_SOCKET_IFNAME: eth0, NCCL_SOCKET_IFNAME: =eth0)"
    return sorted(names), f"env, {' and '.join(dict.fromkeys(names.values()))}"


def _rails(_: Cluster, group: NodeGroup) -> Source:
    named = [{"hca": rail.hca, "rate_gbit_s": rail.rate_gbit_s} for rail in group.rails if rail.hca]
    nameless = [rail.name for rail in group.rails if not rail.hca]
    left = f"; not of {', '.join(nameless)}, as no hca is written there" if nameless else ""
    return (named, f"rails{left}") if named else (None, f"no rail has hca{left}" if left else "rails has none")


def _memlock(_: Cluster, group: NodeGroup) -> Source:
    text = group.expect.get("memlock", "")
    if text == "unlimited":
        return text, "expect, memlock"
    if text.isdecimal() and int(text) > 0:
        return int(text), "expect, memlock"
    return None, "expect has no memlock: unlimited, or bytes"


def _stated(key: str) -> Callable[[Cluster, NodeGroup], Source]:
    def source(_: Cluster, group: NodeGroup) -> Source:
        return (True, f"expect, {key}") if group.expect.get(key) == "yes" else (None, f"expect has no {key}: yes")

    return source


_SOURCES: dict[str, Callable[[Cluster, NodeGroup], Source]] = {
    "gpus": _gpus,
    "gpu_model": _gpu_model,
    "rows": _memory,
    "ecc": _memory,
    "xids": _xids,
    "persistence": _stated("gpu*.persistence"),
    "driver": _driver,
    "mounts": _mounts,
    "interfaces": _interfaces,
    "rails": _rails,
    "memlock": _memlock,
    "clock": _stated("clock.synchronised"),
}
