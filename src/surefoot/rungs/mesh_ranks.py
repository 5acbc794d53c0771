"""Mesh: which ranks came, on what, how far, and whose clock is off. Judged by the trails, so also where it did not end well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.benchmarks.device import Device, device_problems
from surefoot.benchmarks.mesh import ClockRound, Stuck, Trail, clock_offset, slow, stuck, waited
from surefoot.evidence import parse_record
from surefoot.model.check import Check, Evidence
from surefoot.numbers import listed, parse
from surefoot.rungs.base import View
from surefoot.rungs.judging import decide, shorten, unproved

FILE = "raw/mesh/trail-{rank}.json"
NODE_ACTION = "on that node: its lines in the job's .out file, `systemctl status slurmd`, `ps -ef | grep surefoot`; take it out if it stays so"


@dataclass(frozen=True)
class Mesh:
    """Trails by rank; rounds of clocks of those ranks that finished."""

    trails: Mapping[int, Trail]
    clocks: Mapping[int, Sequence[ClockRound]]


def rank_checks(mesh: Mesh, view: View) -> list[Check]:
    """All of them. Those about devices are made of the ranks that came so far as to say."""
    checks = [_complete(mesh, view), _placed(mesh, view)]
    devices = _devices(mesh)
    if devices:
        checks.append(_own_device(devices, mesh, view))
        checks += _near(mesh, view)
    checks.append(_steady(mesh, view))
    if mesh.clocks:
        checks.append(_clocks(mesh, view))
    return checks


def _refs(mesh: Mesh, view: View, ranks: Sequence[int] | None = None) -> tuple[Evidence, ...]:
    named = sorted(mesh.trails) if ranks is None else [rank for rank in ranks if rank in mesh.trails]
    return tuple(
        view.evidence.ref(FILE.format(rank=rank), text=f"{mesh.trails[rank].where}: {mesh.trails[rank].stands}")
        for rank in named
    )


def at_fault(ranks: Iterable[int], mesh: Mesh, view: View) -> list[str]:
    """Nodes of these ranks, as the scheduler calls them. None where it is every rank: then it is no node's fault.

    A rank that left no trail is on the node of those beside it; where there are none, its node is not known.
    """
    named, per_node = set(ranks), view.expect["ranks_per_node"]
    if len(named) >= view.expect["world_size"]:
        return []
    beside = {rank // per_node: trail.slurm_node or trail.host for rank, trail in sorted(mesh.trails.items())}
    places = [beside.get(rank // per_node) for rank in sorted(named)]
    return list(dict.fromkeys(place for place in places if place is not None))


def _told_of(problems: Sequence[str], mesh: Mesh) -> list[int]:
    """Ranks that problems begin with (``rank 3 on n2 …``)."""
    return [rank for rank, trail in mesh.trails.items() if any(p.startswith(f"{trail.where} ") for p in problems)]


def _complete(mesh: Mesh, view: View) -> Check:
    """Everybody came, and went through everything; who kept the others waiting is named."""
    world = view.expect["world_size"]
    found = stuck(mesh.trails, world)
    words = shorten([_told(problem, mesh, view) for problem in found], 3)
    absent = [problem for problem in found if problem.kind == "absent"]
    claim = f"all {world} ranks started, met and went through every step"
    if not mesh.trails:
        return unproved(
            "mesh.complete", claim, expected=world, actual="no rank left a trail", unit="ranks",
            evidence=(view.evidence.ref("raw/mesh/job.json"),), next_action="see how the job ended, and its .out file",
        )  # fmt: skip
    named = [rank for problem in found for rank in problem.ranks]
    # Ranks that gave up waiting are told where nothing else is known; the fault is not theirs.
    own = [rank for rank in named if rank not in mesh.trails or not waited(mesh.trails[rank].problem)]
    return decide(
        "mesh.complete",
        claim,
        not found,
        expected=world,
        actual=words or world,
        unit="ranks",
        evidence=_refs(mesh, view, named if named and not absent else None),
        derivation="each rank writes where it stands before each step; one that never began, failed with an error of "
        "its own, or is behind the others explains those that waited for it",
        next_action=NODE_ACTION,
        nodes=at_fault(own, mesh, view),
    )


def _told(problem: Stuck, mesh: Mesh, view: View) -> str:
    per_node = view.expect["ranks_per_node"]
    by_host: dict[str, list[int]] = {}
    for rank in problem.ranks:
        by_host.setdefault(_host(rank, mesh, per_node), []).append(rank)
    words = [f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)} on {host}" for host, ranks in by_host.items()]
    return f"{', '.join(words)} {problem.words}"


def _host(rank: int, mesh: Mesh, per_node: int) -> str:
    """Host of a rank: as its trail says, or as that of a rank of the same node does."""
    if rank in mesh.trails:
        return mesh.trails[rank].host
    node = rank // per_node
    beside = next((trail.host for other, trail in mesh.trails.items() if other // per_node == node), None)
    return beside or f"node {node} of the job, from which nothing came"


def misplaced_ranks(trails: Mapping[int, Trail], per_node: int) -> list[int]:
    """Ranks whose LOCAL_RANK is not their place on their node: they take another rank's GPU."""
    return [rank for rank, trail in sorted(trails.items()) if trail.local_rank != rank % per_node]


def _placed(mesh: Mesh, view: View) -> Check:
    """Each node has its ranks, numbered from 0, and no two nodes are one host."""
    nodes, per_node = view.expect["nodes"], view.expect["ranks_per_node"]
    hosts = Counter(trail.host for trail in mesh.trails.values())
    wrong = [f"{host} has {count} ranks" for host, count in sorted(hosts.items()) if count != per_node]
    misplaced = misplaced_ranks(mesh.trails, per_node)
    wrong += [
        f"{mesh.trails[rank].where} has LOCAL_RANK {mesh.trails[rank].local_rank}, its place is {rank % per_node}"
        for rank in misplaced
    ]
    if len(hosts) != nodes:
        wrong.append(f"{len(hosts)} hosts: {', '.join(sorted(hosts)[:8])}")
    return decide(
        "mesh.placed",
        f"{nodes} node(s) run {per_node} rank(s) each, with local ranks 0 to {per_node - 1}",
        not wrong,
        expected=f"{nodes} × {per_node}",
        actual=shorten(wrong) or f"{nodes} × {per_node}",
        evidence=_refs(mesh, view) or (view.evidence.ref("raw/mesh/job.json"),),
        next_action="look at --nodes and --ntasks-per-node of the job, at what else sets LOCAL_RANK (a wrapper, a profile), "
        "and whether two nodes have one name",
        nodes=at_fault(misplaced, mesh, view),
    )


def _devices(mesh: Mesh) -> dict[int, Device]:
    """Rank → the device that it took, of those that came so far."""
    return {
        rank: parse_record(Device, trail.facts["device"], file=FILE.format(rank=rank))
        for rank, trail in mesh.trails.items()
        if trail.facts.get("device") is not None
    }


def _own_device(devices: dict[int, Device], mesh: Mesh, view: View) -> Check:
    kind = view.expect["device"]
    rows = [(mesh.trails[r].where, mesh.trails[r].host, mesh.trails[r].local_rank, d) for r, d in devices.items()]
    wrong = device_problems(rows, kind)
    shown = [f"rank {rank} → {device.shown}" for rank, device in devices.items()]
    return decide(
        "mesh.devices",
        "every rank took the device that is its own",
        not wrong and len(devices) == len(mesh.trails),
        expected=f"rank r on {kind}" + (":LOCAL_RANK, or the one GPU it sees, all different" if kind == "cuda" else ""),
        actual=shorten(wrong) or shorten(shown, 8),
        evidence=_refs(mesh, view, sorted(devices)),
        next_action="look at CUDA_VISIBLE_DEVICES of those ranks and the scheduler's GPU binding (--gpu-bind, gres.conf)",
        nodes=at_fault(_told_of(wrong, mesh), mesh, view),
    )


def _near(mesh: Mesh, view: View) -> list[Check]:
    """Where GPUs and the kernel say so: each rank runs on CPUs next to its GPU."""
    far, unsure, looked = [], [], []
    for rank, trail in sorted(mesh.trails.items()):
        near: dict[str, Any] | None = trail.facts.get("near")
        if near is None:
            continue
        beside, own = near["cpus"].get("value"), trail.facts["affinity"]["cpus"]
        if beside is None:
            unsure.append(f"{trail.where}: {near['cpus'].get('unknown')}")
            continue
        looked.append(rank)
        if not parse(own) & parse(beside):
            far.append(f"{trail.where} runs on CPUs {own}, its GPU is next to {beside}")
    if not looked and not unsure:
        return []
    claim = "every rank may run on CPUs that are next to its GPU"
    if unsure and not far:
        text = shorten(unsure)
        action = "the kernel does not say which CPUs are next to a GPU: compare `nvidia-smi topo -m` on the node"
        return [unproved("mesh.affinity", claim, actual=text, evidence=_refs(mesh, view), next_action=action)]
    return [
        decide(
            "mesh.affinity",
            claim,
            not far,
            actual=shorten(far) or f"{len(looked)} ranks",
            evidence=_refs(mesh, view, looked),
            derivation="CPUs of the process against local_cpulist of its GPU in sysfs",
            next_action="set Cores= of each GPU in gres.conf (AutoDetect=nvml does), and --cpus-per-task so that Slurm binds",
        )
    ]


def _steady(mesh: Mesh, view: View) -> Check:
    found = slow(mesh.trails)
    return decide(
        "mesh.steady",
        "no rank took much longer than the others for what it does by itself",
        not found,
        expected="at most three times the median, or 5 s more than it",
        actual=shorten(found) or "alike",
        evidence=_refs(mesh, view) or (view.evidence.ref("raw/mesh/job.json"),),
        derivation="importing torch, and taking the device: nobody is waited for in them",
        next_action="on that node: what else runs there (top), how fast the environment is read (the storage rung), the GPU's state",
        nodes=at_fault(_told_of(found, mesh), mesh, view),
    )


def _clocks(mesh: Mesh, view: View) -> Check:
    """Each rank's clock against that of rank 0, within what barriers tell."""
    limit = float(view.expect["max_clock_offset_s"])
    off, unsure, worst = [], [], 0.0
    for rank, rounds in sorted(mesh.clocks.items()):
        low, high = clock_offset(rounds, mesh.clocks[0])
        where = mesh.trails[rank].where
        if low > high:
            unsure.append(f"{where}: the clocks moved against each other meanwhile")
        elif low > limit or high < -limit:
            nearest = low if low > 0 else high
            off.append(f"{where} is {abs(nearest):.3f} s {'ahead of' if nearest > 0 else 'behind'} rank 0, or more")
        elif low < -limit or high > limit:
            unsure.append(f"{where}: between {low:+.3f} s and {high:+.3f} s")
        worst = max(worst, min(abs(low), abs(high)) if low * high > 0 else 0.0)
    claim = f"clocks of all nodes agree to {limit:g} s"
    derivation = "every rank reads its clock as it leaves the same barriers"
    action = "on that node: chronyc tracking; start chrony, and see that it reaches a server"
    if unsure and not off:
        return unproved(
            "mesh.clocks", claim, expected=limit, actual=shorten(unsure), unit="s", evidence=_refs(mesh, view),
            derivation=derivation, next_action="run it again when the nodes are less busy",
        )  # fmt: skip
    return decide(
        "mesh.clocks",
        claim,
        not off,
        expected=limit,
        actual=shorten(off) or round(worst, 3),
        unit="s",
        evidence=_refs(mesh, view),
        derivation=derivation,
        next_action=action,
        nodes=_few(off, mesh, view),
    )


def _few(off: Sequence[str], mesh: Mesh, view: View) -> list[str]:
    """Nodes whose clocks are off, where they are fewer than half: otherwise it may be rank 0's that is."""
    nodes = at_fault(_told_of(off, mesh), mesh, view)
    return nodes if 2 * len(nodes) < view.expect["nodes"] else []
