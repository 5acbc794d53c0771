"""A cluster file's claims from what nodes told of themselves: for people to review. Pure.

Nothing is claimed that more than half of a group's nodes do not have, and nothing that is not known: both
stand in notes. A node with other GPUs, or another CPU, than its neighbours is a group of its own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.interfaces import ChosenRail
from surefoot.hardware.learnt_facts import claims
from surefoot.hostlist import folded
from surefoot.model.cluster import Cluster, NodeGroup, Rail
from surefoot.units import GIB

MEMORY_KEPT = 0.98
"""Of the least memory seen, in whole GiB: a kernel or firmware keeps a little more than the one before it."""

Notes = dict[str, tuple[str, ...]]
"""Key of a group (``min_cpus``), or one of its facts as ``expect.FACT`` → what is said of it; ``""``: of the group,
``expect``: of facts that are not claimed."""


@dataclass(frozen=True)
class NodeSeen:
    """What the pre-check knows of one node."""

    name: str
    """What the scheduler calls it."""
    group: str
    """The group of the cluster file that it was compared with."""
    facts: NodeFacts
    rails: tuple[ChosenRail, ...] | None
    """In use; None: not known."""


class Kind(NamedTuple):
    """What makes nodes one group: hardware that no repair changes."""

    gpus: int
    model: str
    cpu: str
    """Empty where no node of them tells."""


@dataclass(frozen=True)
class Learnt:
    """A cluster as its nodes told it, and what to say beside it."""

    cluster: Cluster
    notes: tuple[Notes, ...]
    """One for each node group, in its order."""
    left_out: tuple[str, ...]
    """Nodes and groups that nothing can be claimed of, each with the reason."""


def learn(cluster: Cluster, seen: Sequence[NodeSeen]) -> Learnt | None:
    """`cluster` with the groups that were seen in place of its own; None where no node tells how many GPUs it has."""
    found: list[tuple[NodeGroup, Notes]] = []
    left_out: list[str] = []
    for group in cluster.node_groups:
        members = [node for node in seen if node.group == group.name]
        if not members:
            left_out.append(f"group {group.name} ({group.count} declared): no node of it was seen")
        left_out += [
            f"{node.name}: how many GPUs it has is not known: {node.facts.torch_gpus.unknown}"
            for node in members
            if _gpus(node.facts) is None
        ]
        parts = _kinds(members)
        largest = max(parts, key=lambda kind: len(parts[kind]), default=None)
        for kind, nodes in parts.items():
            name = group.name if largest is None or kind == largest else _other_name(group.name, kind, largest)
            found.append(_group(group.model_copy(update={"name": name}), kind, nodes, cluster))
    if not found:
        return None
    found.sort(key=_demand)
    groups = _distinct(group for group, _ in found)
    return Learnt(
        cluster.model_copy(update={"node_groups": groups}), tuple(notes for _, notes in found), tuple(left_out)
    )


def _kinds(nodes: Sequence[NodeSeen]) -> dict[Kind, list[NodeSeen]]:
    """Nodes of one kind together; those whose GPUs cannot be counted are of none.

    One that does not tell its CPU goes with most of those that have its GPUs.
    """
    of_gpus: dict[tuple[int, str], dict[str, list[NodeSeen]]] = {}
    for node in nodes:
        count = _gpus(node.facts)
        if count is not None:
            of_cpu = of_gpus.setdefault((count, _model(node.facts)), {})
            of_cpu.setdefault(node.facts.cpu.value or "", []).append(node)
    parts: dict[Kind, list[NodeSeen]] = {}
    for (count, model), of_cpu in of_gpus.items():
        untold = of_cpu.pop("", [])
        most = max(of_cpu, key=lambda cpu: len(of_cpu[cpu]), default="")
        of_cpu[most] = [*of_cpu.get(most, []), *untold]
        parts |= {Kind(count, model, cpu): members for cpu, members in of_cpu.items()}
    return parts


def _demand(item: tuple[NodeGroup, Notes]) -> tuple[float, ...]:
    """The most demanding first: without hosts, a node belongs to the first group whose demands it meets."""
    group = item[0]
    return (-group.min_cpus, -group.min_memory_gib, -len(group.gpu_model))


def _distinct(groups: Iterable[NodeGroup]) -> tuple[NodeGroup, ...]:
    taken: Counter[str] = Counter()
    renamed = []
    for group in groups:
        taken[group.name] += 1
        again = taken[group.name]
        renamed.append(group if again == 1 else group.model_copy(update={"name": f"{group.name}-{again}"}))
    return tuple(renamed)


def _other_name(name: str, kind: Kind, largest: Kind) -> str:
    """What it has that most of its neighbours do not: ``nodes-4gpu-NVIDIA-H200``, ``nodes-AMD-EPYC-9654``."""
    words = [name]
    if (kind.gpus, kind.model) != (largest.gpus, largest.model):
        words += [f"{kind.gpus}gpu", *kind.model.split()]
    if kind.cpu != largest.cpu:
        words += re.findall(r"[A-Za-z0-9]+", re.sub(r"\([A-Za-z]+\)|\b(CPU|Processor)\b|@.*|\d+-Core", " ", kind.cpu))
    return "-".join(words)


def _gpus(facts: NodeFacts) -> int | None:
    """GPUs that jobs can use: PyTorch's count, else the driver's; none where the bus has none."""
    if facts.torch_gpus.value is not None:
        return len({gpu.uuid for gpu in facts.torch_gpus.value})
    if facts.gpus.value is not None:
        return len({gpu.uuid.shown for gpu in facts.gpus.value})
    return 0 if facts.pci_gpus.value == 0 else None


def _model(facts: NodeFacts) -> str:
    """Its GPUs' names; more than one are joined by ``, ``, and no `gpu_model` can claim them."""
    return ", ".join(sorted({gpu.name for gpu in facts.torch_gpus.value or ()} or set(facts.gpu_names)))


def _group(base: NodeGroup, kind: Kind, nodes: Sequence[NodeSeen], cluster: Cluster) -> tuple[NodeGroup, Notes]:
    count, model = kind.gpus, kind.model
    expect, notes = claims({node.name: node.facts for node in nodes})
    names = folded(node.name for node in nodes)
    slurm = cluster.scheduler.kind == "slurm"
    floors, of_floors = _floors(base, nodes)
    rails, of_rails = _rails(base, nodes)
    one_model = model if ", " not in model else ""
    fields = {
        "count": len(nodes),
        "hosts": names if slurm or base.hosts else "",
        "gpus_per_node": count,
        "gpu_model": one_model,
        "rails": rails,
        "expect": expect,
        **floors,
    }
    said: Notes = {
        "": (f"{len(nodes)} seen: {names}", *_gpu_notes(base, count, model, nodes)),
        "count": (f"{base.count} declared before",) if base.count != len(nodes) else (),
        "rails": of_rails,
        **of_floors,
    }
    return base.model_copy(update=fields), said | notes


def _gpu_notes(base: NodeGroup, count: int, model: str, nodes: Sequence[NodeSeen]) -> list[str]:
    """What about its GPUs is not claimed, and why."""
    notes = [f"not claimed: gpu_model, as these nodes mix {model}"] if ", " in model else []
    buses = _split((node.name, node.facts.pci_gpus.value) for node in nodes)
    if base.gpus_on_bus is None:
        notes += [
            f"the PCI bus has {bus} GPUs on {where}, jobs can use {count}: mend that, or where it is meant, gpus_on_bus: {bus}"
            for bus, where in buses.items()
            if bus is not None and bus != count
        ]
    return notes


def _floors(base: NodeGroup, nodes: Sequence[NodeSeen]) -> tuple[dict[str, float], Notes]:
    """What a node has at least. Free disk changes by the minute, and stays what it was."""
    floors: dict[str, float] = {}
    notes: Notes = {}
    usable = [node.facts.cpus.value for node in nodes if node.facts.cpus.value is not None]
    online = [node.facts.cpus_online.value for node in nodes if node.facts.cpus_online.value is not None]
    if usable:
        # A job asks for what the smallest group has: more may be declared, and be online, than it was given.
        floors["min_cpus"] = max(min(usable), min([base.min_cpus, *online]) if online else 1)
        notes["min_cpus"] = (f"jobs could use {min(usable)} to {max(usable)} on {len(usable)} of {len(nodes)} nodes",)
    memory = [node.facts.memory / GIB for node in nodes if node.facts.memory is not None]
    if memory:
        kept = math.floor(min(memory) * MEMORY_KEPT)
        floors["min_memory_gib"] = max(kept, min(base.min_memory_gib, math.floor(min(memory) * 100) / 100), 0.01)
        notes["min_memory_gib"] = (f"{min(memory):.1f} to {max(memory):.1f} on {len(memory)} of {len(nodes)} nodes",)
    return floors, notes


def _rails(base: NodeGroup, nodes: Sequence[NodeSeen]) -> tuple[tuple[Rail, ...], tuple[str, ...]]:
    """Those that more than half of the nodes have in use. Declared ones stay: a rail that all nodes lack is no proof."""
    seen = _split((node.name, None if node.rails is None else _shown(node.rails)) for node in nodes)
    told = [f"{text if text is not None else 'not known'} on {where}" for text, where in seen.items()]
    if base.rails:
        return base.rails, ("as declared; in use were:", *told)
    known = Counter(_shown(node.rails) for node in nodes if node.rails is not None)
    text, most = known.most_common(1)[0] if known else ("", 0)
    if 2 * most <= len(nodes):
        return (), ("no rails that more than half of the nodes have in use:", *told)
    own = next(node.rails for node in nodes if node.rails is not None and _shown(node.rails) == text)
    rails = tuple(
        Rail(name=f"rail{number}", rate_gbit_s=rail.rate_gbit_s, hca=rail.hca) for number, rail in enumerate(own)
    )
    return rails, (f"rails in use: {text} on {most} of {len(nodes)} nodes", *(told if len(told) > 1 else ()))


def _shown(rails: Sequence[ChosenRail]) -> str:
    return ", ".join(f"{rail.hca} {rail.rate_gbit_s:g} Gbit/s" for rail in rails) or "none"


def _split(pairs: Iterable[tuple[str, int | str | None]]) -> Mapping[int | str | None, str]:
    """Value → the nodes that have it, folded."""
    found: dict[int | str | None, list[str]] = {}
    for name, value in pairs:
        found.setdefault(value, []).append(name)
    return {value: folded(names) for value, names in found.items()}
