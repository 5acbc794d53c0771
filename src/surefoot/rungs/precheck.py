"""Pre-check: every node has what the cluster file says, required against found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet
from surefoot.hardware.comparable import comparable, limit_text
from surefoot.hardware.fact import TextFact
from surefoot.hardware.facts import NodeFacts
from surefoot.hostlist import expand
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.ladder import Precheck as PrecheckSpec
from surefoot.model.measurement import Fingerprint
from surefoot.model.run import JobsStep, Judgement
from surefoot.model.status import Status
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, nodes_of
from surefoot.rungs.judging import RankData, Said, blamed, decide, said, unproved
from surefoot.rungs.precheck_fleet import Facts as FleetFacts
from surefoot.rungs.precheck_fleet import alike, expected, fleet
from surefoot.rungs.precheck_gpus import Where, gpu_health
from surefoot.rungs.precheck_name import own_name
from surefoot.rungs.precheck_network import chosen, network_checks, rows
from surefoot.rungs.precheck_rails import rails_declared
from surefoot.rungs.threads import cpus_per_rank
from surefoot.units import GIB, format_size
from surefoot.versions import at_least, same

_KEYS = {"cpus": "min_cpus", "memory": "min_memory_gib", "disk": "min_free_disk_gib"}
_SHARED = (".disk", ".root")
"""Checks of a node that speak of the shared root: no fault of the node."""


class Probed(RankData):
    """What ``surefoot.node.probe`` reports."""

    node: Annotated[str, Field(min_length=1)] | None = None
    """What the scheduler calls this node; None in reports of the first probe."""
    root: str
    facts: NodeFacts


@dataclass(frozen=True)
class Node:
    """A node's report and the group that it was compared with."""

    said: Said[Probed]
    group: NodeGroup

    @property
    def facts(self) -> NodeFacts:
        return self.said.data.facts

    @property
    def name(self) -> str:
        """As the scheduler calls it."""
        return called(self.said)


class Precheck(Rung[PrecheckSpec, tuple[Said[Probed], ...]]):
    """One probe a node."""

    name: ClassVar[str] = "precheck"
    title: ClassVar[str] = "Pre-check"
    proves: ClassVar[str] = (
        "Every node has what the cluster file declares; nodes of one group are alike, and reach each other."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[PrecheckSpec]) -> Asked:
        root = str(context.root.root)
        where = Layout(nodes_of(context.cluster, context.spec), 1, "cpu")
        cpus = cpus_per_rank(context.cluster, where)
        request = {"root": root, "meet_timeout_s": min(60.0, context.spec.time_limit_s / 3)}
        job = context.job("precheck", "surefoot.node.probe", request, where, cpus_per_rank=cpus)
        # The probe counts CPUs and GPUs, and a scheduler that binds shows a job those that it asked for.
        job = job.model_copy(update={"gpus_per_node": context.cluster.gpus_per_node})
        return Asked(
            steps=(JobsStep(jobs=(job,)),), expect={"nodes": nodes_of(context.cluster, context.spec), "root": root}
        )

    def read(self, view: View) -> tuple[Said[Probed], ...]:
        nodes = said(view.evidence, "precheck", Probed)
        for node in nodes:
            facts = node.data.facts
            pairs = (("cpus", facts.cpus, facts.cpus_online), ("memory", facts.memory_available, facts.memory_total))
            for name, part, whole in pairs:
                if part.value is not None and whole.value is not None and part.value > whole.value:
                    raise EvidenceError(f"{name}: {part.value} of {whole.value} cannot be", file=node.file)
        return nodes

    def judge(self, facts: tuple[Said[Probed], ...], view: View) -> Judgement:
        cluster = view.inputs.cluster
        named = _named(cluster)
        nodes = [_fitting(node, named.get(called(node)), cluster, view) for node in facts]
        checks = [_distinct(facts, view), *_groups(nodes, cluster, view)]
        for node in nodes:
            own = _node_checks(node, cluster, view)
            checks += [check if check.id.endswith(_SHARED) else blamed([check], node.name)[0] for check in own]
        fleet_facts = _fleet_facts(nodes, view)
        matrix = fleet(fleet_facts, view.spec.may_differ)
        choice = chosen(by_name(facts))
        checks += alike(matrix, fleet_facts)
        checks += expected(fleet_facts, {group.name: group.expect for group in cluster.node_groups})
        checks += network_checks(by_name(facts), choice, _by_name_reference(facts, view))
        of = {told.node: told for told in choice.nodes}
        for node in nodes:
            reference = view.evidence.ref(node.said.file, text=f"hcas of {node.name}")
            found = rails_declared(node.said.rank, node.group, node.facts.hcas, of.get(node.name), reference)
            checks += blamed(found, node.name)
        return Judgement(
            checks=tuple(checks),
            fingerprint=fingerprint(facts),
            summary=_summary(facts),
            details={"nodes": [_row(node) for node in nodes], "fleet": matrix.cells(), "network": rows(choice)},
        )


def called(node: Said[Probed]) -> str:
    """What the scheduler calls a node; its host name in reports of the first probe."""
    return node.data.node or node.report.host


def by_name(nodes: tuple[Said[Probed], ...]) -> dict[str, NodeFacts]:
    """Facts by what the scheduler calls each node, which is how nodes call each other."""
    return {called(node): node.data.facts for node in nodes}


def names_below(view: View) -> dict[str, str]:
    """Host → what the scheduler calls it, of the pre-check below; empty where there is none."""
    below = view.needs.get("precheck")
    return {node.report.host: called(node) for node in said(below, "precheck", Probed)} if below else {}


def environments(evidence: EvidenceSet) -> dict[str, dict[str, str]]:
    """Node → the variables that name its interface and rails, from this rung's evidence. Raises EvidenceError."""
    choice = chosen(by_name(said(evidence, "precheck", Probed)))
    return {node.node: node.environment for node in choice.nodes if node.environment}


def _by_name_reference(nodes: tuple[Said[Probed], ...], view: View) -> Callable[[str, str], Evidence]:
    files = {called(node): node.file for node in nodes}
    return lambda node, text: view.evidence.ref(files[node], text=text)


def _fleet_facts(nodes: list[Node], view: View) -> FleetFacts:
    """By host name. Two nodes of one host, which `precheck.nodes` refuses, are told apart by their ranks."""
    names = Counter(node.said.report.host for node in nodes)
    of = {
        node.said.report.host
        if names[node.said.report.host] == 1
        else f"{node.said.report.host}-{node.said.rank}": node
        for node in nodes
    }
    return FleetFacts(
        told={host: comparable(node.facts) for host, node in of.items()},
        group_of={host: node.group.name for host, node in of.items()},
        reference=lambda host, text: view.evidence.ref(of[host].said.file, text=text),
        name_of={host: node.name for host, node in of.items()},
    )


def fingerprint_of(evidence: EvidenceSet) -> Fingerprint:
    """The fingerprint that a pre-check's evidence holds. Raises EvidenceError."""
    return fingerprint(said(evidence, "precheck", Probed))


def fingerprint_below(view: View, **more: str) -> Fingerprint:
    """What a measuring rung's figures were taken on: the pre-check's facts where it passed, and `more`."""
    below = fingerprint_of(view.needs["precheck"]).facts if "precheck" in view.needs else {}
    return Fingerprint(facts={**below, **more})


def fingerprint(nodes: tuple[Said[Probed], ...]) -> Fingerprint:
    """Facts over all nodes; where nodes differ, every value that occurs."""
    readers: dict[str, Callable[[NodeFacts], str]] = {
        "gpu": _gpus,
        "driver": lambda f: f.driver.shown,
        "cuda": lambda f: f.cuda.shown,
        "nccl": lambda f: f.nccl.shown,
        "torch": lambda f: f.torch.shown,
        "kernel": lambda f: f.kernel.shown,
        "cpu": lambda f: f.cpu.shown,
        "cpus": lambda f: str(f.cpus.value),
        "python": lambda f: f.python.shown,
        "os": lambda f: f.os.shown,
        "machine": lambda f: f.machine.shown,
    }
    all_facts = [node.data.facts for node in nodes]
    values = {name: " | ".join(sorted({read(f) for f in all_facts})) for name, read in readers.items()}
    return Fingerprint(facts={**values, "nodes": str(len(nodes))})


def _gpus(facts: NodeFacts) -> str:
    counts = Counter(facts.gpu_names)
    return ", ".join(f"{count} × {name}" for name, count in sorted(counts.items())) or "none"


def _summary(nodes: tuple[Said[Probed], ...]) -> str:
    first = nodes[0].data.facts
    size = format_size(round(first.memory / GIB) * GIB) if first.memory else "?"
    gpu = _gpus(first)
    return f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}: {first.cpus.value} CPUs, {size}, GPU {gpu}, torch {first.torch.shown}"


def _distinct(nodes: tuple[Said[Probed], ...], view: View) -> Check:
    hosts = {node.report.host for node in nodes}
    wanted = view.expect["nodes"]
    return decide(
        "precheck.nodes",
        f"{wanted} different node(s) answered",
        len(hosts) == len(nodes) == wanted,
        expected=wanted,
        actual=len(hosts),
        unit="nodes",
        evidence=tuple(view.evidence.ref(node.file, text=node.report.host) for node in nodes),
        next_action="two probes ran on one node: look at the scheduler rung and at nodes that are down",
    )


def _groups(nodes: list[Node], cluster: Cluster, view: View) -> list[Check]:
    """One check for each group of the cluster file: as many of its nodes answered as it declares."""
    checks = []
    for group in cluster.node_groups:
        answered = [node for node in nodes if node.group == group]
        whole = len(answered) == group.count
        seen = answered or nodes
        checks.append(
            Check(
                id=f"precheck.group.{group.name}",
                claim=f"every node of group {group.name} that the cluster file declares answered",
                status=Status.PASSED if whole else Status.INCONCLUSIVE,
                expected=group.count,
                actual=len(answered),
                unit="nodes",
                evidence=tuple(view.evidence.ref(node.said.file, text=node.said.report.host) for node in seen),
                derivation=f"count of group {group.name} in cluster {cluster.name}",
                next_action=""
                if whole
                else f"set `nodes` of the precheck rung to {cluster.nodes}, or correct `count` in the cluster file",
            )
        )
    return checks


def _named(cluster: Cluster) -> dict[str, NodeGroup]:
    """Node → the group that names it in `hosts`, of those for which one does."""
    return {host: group for group in reversed(cluster.node_groups) if group.hosts for host in expand(group.hosts)}


def _fitting(node: Said[Probed], named: NodeGroup | None, cluster: Cluster, view: View) -> Node:
    """The group that names the node, whatever it lacks of it; else, of groups that name no hosts, the one whose
    demands it meets best, in the file's order. Where all name hosts, any may be meant.
    """
    if named is not None:
        return Node(node, named)
    candidates = [Node(node, group) for group in cluster.node_groups if not group.hosts]
    candidates = candidates or [Node(node, group) for group in cluster.node_groups]
    if len(candidates) == 1:
        return candidates[0]

    def unmet(candidate: Node) -> int:
        return sum(check.status is not Status.PASSED for check in _node_checks(candidate, cluster, view))

    return min(candidates, key=unmet)


def _node_checks(node: Node, cluster: Cluster, view: View) -> list[Check]:
    facts, group, software = node.facts, node.group, cluster.software
    checks = [
        _enough_cpus(node, cluster, view),
        _floor(node, view, "memory", _gib(facts.memory), least=group.min_memory_gib, unit="GiB"),
        _floor(node, view, "disk", _gib(facts.disk_free.value), least=group.min_free_disk_gib, unit="GiB"),
    ]
    if view.expect["nodes"] > 1:
        reference = view.evidence.ref(node.said.file, text=f"own_name: {', '.join(facts.own_name.loopback)}")
        checks.append(own_name(node.said.rank, node.said.report.host, facts.own_name, reference))
    if node.said.data.root != view.expect["root"]:
        checks.append(_wrong_root(node, view))
    if software.python:
        checks.append(_version(node, view, "python", facts.python, _Wanted(software.python, at_least, "≥ ")))
    if software.torch:
        checks.append(_version(node, view, "torch", facts.torch, _Wanted(software.torch, at_least, "≥ ")))
    if software.driver:
        checks.append(_version(node, view, "driver", facts.driver, _Wanted(software.driver, str.__eq__, "")))
    if software.cuda:
        checks.append(_version(node, view, "cuda", facts.cuda, _Wanted(software.cuda, same, "")))
    if software.nccl:
        checks.append(_version(node, view, "nccl", facts.nccl, _Wanted(software.nccl, same, "")))
    assert isinstance(group.gpus_per_node, int), "detection is resolved before a run is recorded"
    checks.append(_gpus_agree(node, group.gpus_per_node, view))
    if group.gpus_per_node > 0:
        checks += _gpu_checks(node, group.gpus_per_node, view)
        where = Where(node.said.rank, node.said.report.host, lambda text: view.evidence.ref(node.said.file, text=text))
        checks += gpu_health(where, facts)
    return checks


def _gib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else round(size_bytes / GIB, 2)


def _enough_cpus(node: Node, cluster: Cluster, view: View) -> Check:
    """By what the job may use; by what is online where a smaller group decided how much the job asked for."""
    usable, least = node.facts.cpus.value, node.group.min_cpus
    asked = min(group.min_cpus for group in cluster.node_groups)
    if usable is None or not asked <= usable < least:
        return _floor(node, view, "cpus", usable, least=least, unit="CPUs")
    return _floor(node, view, "cpus", node.facts.cpus_online.value, least=least, unit="CPUs", fact="cpus_online")


def _floor(node: Node, view: View, name: str, found: float | None, *, least: float, unit: str, fact: str = "") -> Check:
    """`fact`: where it is not called like what is asked for."""
    key = f"node_groups.{node.group.name}.{_KEYS[name]}"
    identifier = f"precheck.node{node.said.rank}.{name}"
    claim = f"{node.said.report.host} has at least {least:g} {unit} ({name}) for a job"
    if found is None:
        unread = {"cpus": node.facts.cpus, "memory": node.facts.memory_total, "disk": node.facts.disk_free}[name]
        reference = view.evidence.ref(node.said.file, text=f"{name}: {unread.unknown}")
        return unproved(
            identifier, claim, expected=least, actual=f"unknown: {unread.unknown}", unit=unit, evidence=(reference,),
            next_action="find out on the node why this fact cannot be read",
        )  # fmt: skip
    return decide(
        identifier,
        claim,
        found >= least,
        expected=least,
        actual=found,
        unit=unit,
        evidence=(view.evidence.ref(node.said.file, text=f"{fact or name}: {found:g} {unit}"),),
        derivation=f"{key} of the cluster file",
        next_action=f"free or add {name} on {node.said.report.host}, raise the job's limit, or correct {key}",
    )


def _wrong_root(node: Node, view: View) -> Check:
    return decide(
        f"precheck.node{node.said.rank}.root",
        "free disk was measured below the shared root",
        False,
        expected=view.expect["root"],
        actual=node.said.data.root,
        evidence=(view.evidence.ref(node.said.file, text=node.said.data.root),),
        next_action="this report is not the answer to what was asked: run the rung again",
    )


@dataclass(frozen=True)
class _Wanted:
    """A version that the cluster file claims, and what counts as having it."""

    version: str
    fits: Callable[[str, str], bool]
    sign: str

    @property
    def shown(self) -> str:
        return f"{self.sign}{self.version}"


def _version(node: Node, view: View, name: str, fact: TextFact, wanted: _Wanted) -> Check:
    identifier = f"precheck.node{node.said.rank}.{name}"
    claim = f"{node.said.report.host} has {name} {wanted.shown}"
    reference = view.evidence.ref(node.said.file, text=f"{name}: {fact.shown}")
    if fact.unknown is not None:
        missing = "surefoot[train]" if name == "torch" else name
        return unproved(
            identifier, claim, expected=wanted.shown, actual=fact.shown, evidence=(reference,),
            next_action=f"install {missing} for the interpreter on the node, or remove software.{name}",
        )  # fmt: skip
    return decide(
        identifier,
        claim,
        fact.value is not None and wanted.fits(fact.value, wanted.version),
        expected=wanted.shown,
        actual=fact.shown,
        evidence=(reference,),
        derivation=f"software.{name} of the cluster file",
        next_action=f"install {name} {wanted.shown} there, or correct software.{name} after accepting the change",
    )


def _gpus_agree(node: Node, wanted: int, view: View) -> Check:
    """What the PCI bus has, what the driver lists and what PyTorch can use is what is declared.

    A GPU that only the bus knows has a dead driver or has failed: a node is not judged without it
    by accident. Witnesses that cannot be read are left out; their reasons stand in the evidence.
    """
    facts, group = node.facts, node.group
    part = group.gpus_on_bus is not None  # the cluster file says that jobs see a part of them
    on_bus = group.gpus_on_bus if group.gpus_on_bus is not None else wanted
    seen = {
        "PCI bus": facts.pci_gpus.value,
        "driver": None if facts.gpus.value is None else len({gpu.uuid.shown for gpu in facts.gpus.value}),
        "PyTorch": None if facts.torch_gpus.value is None else len({gpu.uuid for gpu in facts.torch_gpus.value}),
    }
    known = {name: count for name, count in seen.items() if count is not None}
    wrong = [
        f"{name} has {count}"
        for name, count in known.items()
        if (count != on_bus if name == "PCI bus" else count < wanted if part else count != wanted)
    ]
    shown = ", ".join(f"{name} {'unknown' if count is None else count}" for name, count in seen.items())
    identifier = f"precheck.node{node.said.rank}.gpus_agree"
    claim = f"PCI bus, driver and PyTorch of {node.said.report.host} agree on its {on_bus} NVIDIA GPU(s)"
    reference = view.evidence.ref(node.said.file, text=shown)
    if not known:
        return unproved(
            identifier, claim, expected=wanted, actual=shown, evidence=(reference,),
            next_action="find out on the node why neither /sys/bus/pci, NVML nor PyTorch can be asked",
        )  # fmt: skip
    return decide(
        identifier,
        claim,
        not wrong,
        expected=wanted if on_bus == wanted else f"{on_bus} on the bus, {wanted} or more for jobs",
        actual="; ".join(wrong) or shown,
        unit="GPUs",
        evidence=(reference,),
        derivation=f"node_groups.{group.name}.gpus_per_node of the cluster file"
        + (", gpus_on_bus where jobs see a part" if part else ""),
        next_action=f"on {node.said.report.host}: nvidia-smi, dmesg | grep -i -e nvrm -e xid; a driver that does not "
        "load, or a GPU that failed. Where jobs are meant to see fewer, say so with gpus_on_bus in the cluster file",
    )


def _gpu_checks(node: Node, wanted: int, view: View) -> list[Check]:
    facts, host, number = node.facts, node.said.report.host, node.said.rank
    claim = f"PyTorch can use {wanted} distinct GPU(s) on {host}"
    usable = facts.torch_gpus.value
    if usable is None:
        reference = view.evidence.ref(node.said.file, text=f"torch_gpus: {facts.torch_gpus.unknown}")
        checks = [
            unproved(
                f"precheck.node{number}.gpus", claim, expected=wanted, actual=f"unknown: {facts.torch_gpus.unknown}",
                evidence=(reference,), next_action="make torch importable for the interpreter on the node",
            )
        ]  # fmt: skip
    else:
        distinct = len({gpu.uuid for gpu in usable})
        checks = [
            decide(
                f"precheck.node{number}.gpus",
                claim,
                distinct == len(usable) >= wanted,
                expected=wanted,
                actual=distinct,
                unit="GPUs",
                evidence=(view.evidence.ref(node.said.file, text=f"torch_gpus: {distinct}"),),
                derivation=f"node_groups.{node.group.name}.gpus_per_node of the cluster file",
                next_action=f"on {host}: nvidia-smi, dmesg | grep -i xid; a GPU that fell off the bus needs a reset or a drain",
            )
        ]
    checks.append(_driver_loaded(node, view))
    if node.group.gpu_model:
        names = [gpu.name for gpu in usable or ()]
        other = sorted({name for name in names if node.group.gpu_model not in name})
        checks.append(
            decide(
                f"precheck.node{number}.gpu_model",
                f"every GPU on {host} is a {node.group.gpu_model}",
                bool(names) and not other,
                expected=node.group.gpu_model,
                actual=", ".join(other or sorted(set(names))) or "no GPU",
                evidence=(view.evidence.ref(node.said.file, text=", ".join(names)),),
                derivation=f"node_groups.{node.group.name}.gpu_model of the cluster file",
                next_action="put the node into the group that it belongs to",
            )
        )
    return checks


def _driver_loaded(node: Node, view: View) -> Check:
    fact = node.facts.driver
    identifier, claim = (
        f"precheck.node{node.said.rank}.driver_loaded",
        f"{node.said.report.host} has its GPU driver loaded",
    )
    reference = view.evidence.ref(node.said.file, text=f"driver: {fact.shown}")
    if fact.unknown is not None:
        return unproved(
            identifier, claim, actual=fact.shown, evidence=(reference,), next_action="read /proc/driver/nvidia/version"
        )
    return decide(
        identifier, claim, fact.value is not None, expected="a version", actual=fact.shown, evidence=(reference,),
        next_action="modprobe nvidia; dkms status: the module may be missing for the running kernel",
    )  # fmt: skip


def _row(node: Node) -> dict[str, Any]:
    facts = node.facts
    known = {"node": node.said.report.host, "group": node.group.name, "gpu": _gpus(facts)}
    texts = ("cpu", "os", "kernel", "machine", "python", "driver", "torch", "cuda", "nccl")
    sizes = ("memory_total", "memory_available", "memory_limit", "disk_free")
    counts = ("cpus", "cpus_online")
    limits = {name: getattr(facts, name) for name in ("memlock", "nofile")}
    rows: dict[str, Any] = {name: getattr(facts, name).shown for name in texts}
    for name in sizes:
        value = getattr(facts, name).value
        rows[name] = None if value is None else format_size(value)
    rows |= {name: getattr(facts, name).value for name in counts}
    rows |= {name: None if fact.unknown is not None else limit_text(fact) for name, fact in limits.items()}
    return {**known, **rows}


RUNG = Precheck()
