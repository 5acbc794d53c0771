"""Collectives: ranks find each other, results are right at every size, and the speed is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.benchmarks.collective_sizes import busbw_factor, sweep
from surefoot.benchmarks.collectives import Figure, Point, Sweep, complete_points, figure
from surefoot.benchmarks.device import device_problems
from surefoot.benchmarks.links import LinkFigure
from surefoot.benchmarks.nccl_claims import no_sockets
from surefoot.benchmarks.nccl_log import NcclLog
from surefoot.benchmarks.nccl_rails import PortBytes
from surefoot.benchmarks.node_bytes import least_of_all
from surefoot.errors import EvidenceError
from surefoot.model.check import Check, Value
from surefoot.model.ladder import Collectives as CollectivesSpec
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View, idle_gpu, layout
from surefoot.rungs.collectives_links import judge_links, least_share, plan_links, read_links, slowest
from surefoot.rungs.found_network import Network, asked, network_checks, network_details
from surefoot.rungs.judging import ONE_CLOCK_S, RankData, Said, decide, said, shorten, unproved
from surefoot.rungs.nccl_checks import (
    LOG_ENVIRONMENT,
    as_check,
    between_nodes,
    carriers,
    gpudirect_seen,
    job_log,
    network_asked,
    network_findings,
    process_of,
    wants_sockets,
)
from surefoot.rungs.precheck import fingerprint_below
from surefoot.rungs.rail_counters import Ports, Witness, errors_check, witness
from surefoot.rungs.threads import cpus_per_rank
from surefoot.units import format_size


class RankSweep(Sweep, RankData, Network, Ports):
    """One rank's sweep, as data of its report."""


@dataclass(frozen=True)
class Facts:
    """All ranks' sweeps; `points[(collective, size)]` holds one point a rank, in order of rank."""

    ranks: tuple[Said[RankSweep], ...]
    points: dict[tuple[str, int], tuple[Point, ...]]
    figures: dict[tuple[str, int], Figure]
    log: NcclLog | None
    """What NCCL says of its connections; None on CPUs."""
    between: tuple[LinkFigure, ...]
    """Links between nodes; empty on one node."""
    seen: Witness | None
    """What counters of RDMA ports tell; None where they were not asked for."""


class Collectives(Rung[CollectivesSpec, Facts]):
    """A sweep over sizes of every collective that the ladder names."""

    name: ClassVar[str] = "collectives"
    title: ClassVar[str] = "Collectives"
    proves: ClassVar[str] = "All ranks communicate, every result is right at every size, and the bandwidth is measured."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[CollectivesSpec]) -> Asked:
        spec = context.spec
        where = layout(context.cluster, spec, collective=True)
        sweeps = {
            name: sweep(name, spec.min_size, spec.max_size, spec.factor, where.world_size)
            for name in dict.fromkeys(spec.collectives)
        }
        request: dict[str, Any] = {
            "device": where.device,
            "backend": where.backend,
            "init_timeout_s": min(120.0, spec.time_limit_s / 2),
            "sweeps": sweeps,
            "warmup": spec.warmup,
            "iterations": spec.iterations,
            "links": plan_links(where, spec.max_size),
            "environment": asked(context.needs),
            "counters": where.nodes > 1,
        }
        debug = LOG_ENVIRONMENT if where.device == "cuda" else {}
        cpus = cpus_per_rank(context.cluster, where)
        job = context.job(
            "collectives", "surefoot.node.collectives", request, where, cpus_per_rank=cpus, exclusive=True, env=debug
        )
        expect = {
            "world_size": where.world_size,
            "device": where.device,
            "backend": where.backend,
            "sweeps": sweeps,
            "iterations": spec.iterations,
            "max_size": spec.max_size,
            "min_busbw_gb_s": dict(spec.min_busbw_gb_s),
            "idle_gpu": idle_gpu(context.cluster, where),
            "sockets": wants_sockets(context.cluster),
            "network": network_asked(context.cluster),
            "links": request["links"],
            "ranks_per_node": where.ranks_per_node,
            "min_link_share": least_share(spec, where),
        }
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        expect = view.expect
        ranks = said(view.evidence, "collectives", RankSweep)
        _agree(ranks, expect["world_size"])
        for rank in ranks:
            timed = sum(point.block_us for point in rank.data.points) / 1e6
            if timed > rank.report.ended_at - rank.report.started_at + ONE_CLOCK_S:
                raise EvidenceError(f"measured for {timed:.0f} s, longer than it ran", file=rank.file)
        each = [complete_points(r.data, expect["sweeps"], expect["iterations"], r.file) for r in ranks]
        points = {key: tuple(rank[key] for rank in each) for key in each[0]}
        figures = {key: figure(*key, row, expect["world_size"]) for key, row in points.items()}
        hosts = {rank.rank: rank.report.host for rank in ranks}
        between = read_links({rank.rank: rank.data.links for rank in ranks}, hosts, ranks[0].data.cap_bytes, view)
        return Facts(
            ranks=ranks, points=points, figures=figures, log=_log(ranks, view), between=between, seen=_seen(ranks, view)
        )

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = [_world(facts, view), _devices(facts, view), _backend(facts, view)]
        checks += network_checks("collectives", "collectives", facts.ranks, view)
        if facts.log is not None:
            checks.append(_transport(facts, facts.log, view))
            checks += _between_nodes(facts, facts.log, view)
        for name in view.expect["sweeps"]:
            checks += [_correct(name, facts, view), _reached(name, facts, view)]
        checks += judge_links(facts.between, view)
        for name, floor in view.expect["min_busbw_gb_s"].items():
            checks.append(_floor(name, float(floor), facts, view))
        device = facts.ranks[0].data.device
        fingerprint = fingerprint_below(
            view,
            backend=view.expect["backend"],
            device=device.name or device.kind,
            world_size=str(view.expect["world_size"]),
            threads=str(device.threads),
        )
        return Judgement(
            checks=tuple(checks),
            measurements=_measurements(facts, fingerprint),
            fingerprint=fingerprint,
            summary=_summary(facts, view),
            details=_details(facts, view),
        )


def _agree(ranks: tuple[Said[RankSweep], ...], world_size: int) -> None:
    """Facts that every rank tells must be the same on all of them."""
    cap = ranks[0].data.cap_bytes
    for rank in ranks:
        if rank.data.cap_bytes != cap:
            raise EvidenceError(f"cap {rank.data.cap_bytes} B differs from rank 0's {cap} B", file=rank.file)
        if rank.data.world_size != world_size:
            raise EvidenceError(
                f"its group had {rank.data.world_size} ranks, asked for were {world_size}", file=rank.file
            )
    # The ranks agreed on a quarter of the least free memory; anything else is not what they computed.
    least = min(rank.data.free_bytes for rank in ranks) // 4
    if cap != least:
        raise EvidenceError(f"cap {cap} B is not a quarter of the least free memory ({least} B)", file=ranks[0].file)


def _world(facts: Facts, view: View) -> Check:
    wanted = view.expect["world_size"]
    return decide(
        "collectives.world_size",
        f"{wanted} ranks formed one process group",
        len(facts.ranks) == wanted >= 2,
        expected=wanted,
        actual=len(facts.ranks),
        unit="ranks",
        evidence=tuple(view.evidence.ref(r.file, text=f"world size {r.data.world_size}") for r in facts.ranks),
        derivation="nodes × ranks_per_node; a world of one communicates with nobody",
        next_action="set ranks_per_node or nodes so that there are two ranks or more",
    )


def _devices(facts: Facts, view: View) -> Check:
    wanted = view.expect["device"]
    problems = device_problems(
        [(r.where, r.report.host, r.report.local_rank, r.data.device) for r in facts.ranks], wanted
    )
    claim = "every rank used a GPU of its own" if wanted == "cuda" else "every rank used the CPU, as asked"
    if view.expect["idle_gpu"]:
        claim += ": one GPU has no other to talk to, and nothing is shown about it here"
    return decide(
        "collectives.devices",
        claim,
        not problems,
        expected=f"{len(facts.ranks)} × {wanted}",
        actual=shorten(problems) or ", ".join(r.data.device.shown for r in facts.ranks),
        evidence=tuple(view.evidence.ref(r.file, text=r.data.device.uuid or r.data.device.kind) for r in facts.ranks),
        next_action="look at CUDA_VISIBLE_DEVICES and --gpus-per-task/--gpu-bind: each rank must see its node's GPUs",
    )


def _backend(facts: Facts, view: View) -> Check:
    wanted = view.expect["backend"]
    other = sorted({rank.data.backend for rank in facts.ranks} - {wanted})
    return decide(
        "collectives.backend",
        f"every rank communicated over {wanted}",
        not other,
        expected=wanted,
        actual=", ".join(other) or wanted,
        evidence=tuple(view.evidence.ref(r.file, text=r.data.backend) for r in facts.ranks),
        next_action="PyTorch fell back to another backend: see whether its build has NCCL",
    )


def _log(ranks: tuple[Said[RankSweep], ...], view: View) -> NcclLog | None:
    """NCCL's log of the job. Raises EvidenceError where it is of no rank of this job."""
    return job_log(view, "collectives", map(process_of, ranks)) if view.expect["device"] == "cuda" else None


def _transport(facts: Facts, log: NcclLog, view: View) -> Check:
    """NCCL's own log: every rank is connected, and over TCP only where the cluster file says so."""
    found = no_sockets(log, allowed=view.expect["sockets"], processes=[process_of(rank) for rank in facts.ranks])
    files = tuple(view.evidence.ref(rank.file) for rank in facts.ranks)
    return as_check("collectives", found, view, otherwise=files, name="transport")


def _between_nodes(facts: Facts, log: NcclLog, view: View) -> list[Check]:
    """NCCL's own log: every rail of every node is in use and, where the cluster file expects it, GPUDirect."""
    files = tuple(view.evidence.ref(rank.file) for rank in facts.ranks)
    hosts = [rank.report.host for rank in facts.ranks]
    found = network_findings(log, view.expect, hosts, seen=facts.seen, least=_least(facts, view))
    checks = [as_check("collectives", finding, view, otherwise=files) for finding in found]
    if facts.seen is not None and between_nodes(view.expect, hosts):
        checks += errors_check("collectives", facts.seen, carriers(log, view.expect["network"], hosts), view)
    return checks


def _seen(ranks: tuple[Said[RankSweep], ...], view: View) -> Witness | None:
    """What counters of RDMA ports tell. Raises EvidenceError where they were asked for and a node left none."""
    return witness(ranks, bool(view.evidence.job("collectives").request.get("counters")))


def _least(facts: Facts, view: View) -> dict[str, PortBytes]:
    """Host → bytes that the sweep must have moved through the node: each point warmed up, timed, and verified twice."""
    request = view.evidence.job("collectives").request
    runs = request["warmup"] + request["iterations"] + 2
    hosts = list(dict.fromkeys(rank.report.host for rank in facts.ranks))
    return {
        host: least_of_all(facts.points, runs, len(hosts), root=host == facts.ranks[0].report.host) for host in hosts
    }


def _keys(name: str, facts: Facts) -> list[tuple[str, int]]:
    return sorted(key for key in facts.points if key[0] == name)


def _correct(name: str, facts: Facts, view: View) -> Check:
    bad = [
        (rank, key[1], point.wrong)
        for key in _keys(name, facts)
        for rank, point in zip(facts.ranks, facts.points[key], strict=True)
        if point.wrong
    ]
    elements = sum(point.checked for key in _keys(name, facts) for point in facts.points[key])
    where = [f"{count} wrong at {format_size(size)} on {rank.where}" for rank, size, count in bad]
    references = tuple(
        view.evidence.ref(r.file, text=next((w for w in where if r.where in w), "")) for r in facts.ranks
    )
    claim = f"every element of {name}'s results is right, on every rank at every size"
    if not elements:
        return unproved(
            f"collectives.{name}.correct", claim, evidence=references, actual="no element was checked",
            next_action="memory did not suffice for the smallest size: see the cap",
        )  # fmt: skip
    return decide(
        f"collectives.{name}.correct",
        claim,
        not bad,
        expected=0,
        actual=shorten(where) or 0,
        unit=f"of {elements} elements",
        evidence=references,
        derivation="known integers whose sums float32 holds exactly; checked before and after the timed iterations",
        next_action="wrong data without an error: run it on each node alone, then in pairs; check ECC, PCIe replays, cables",
    )


def _reached(name: str, facts: Facts, view: View) -> Check:
    largest = max(view.expect["sweeps"][name])
    reached = max((size for _, size in _keys(name, facts)), default=0)
    cap = facts.ranks[0].data.cap_bytes
    shared: dict[str, Any] = {
        "expected": largest,
        "actual": reached,
        "unit": "B",
        "evidence": tuple(
            view.evidence.ref(r.file, text=f"{name} up to {reached} B, cap {cap} B") for r in facts.ranks
        ),
        "derivation": f"max_size {format_size(view.expect['max_size'])} in whole parts for each rank",
    }
    identifier, claim = f"collectives.{name}.reached", f"{name} was measured up to {format_size(largest)}"
    if reached == largest:
        return decide(identifier, claim, True, **shared)
    action = (
        f"memory capped the sweep at {format_size(cap)} (a quarter of what is free): free memory, or lower max_size"
    )
    return unproved(identifier, claim, next_action=action, **shared)


def _floor(name: str, floor: float, facts: Facts, view: View) -> Check:
    largest = max(view.expect["sweeps"].get(name, [0]))
    found = facts.figures.get((name, largest))
    identifier = f"collectives.{name}.busbw"
    claim = f"{name} carries {floor:g} GB/s bus bandwidth or more at {format_size(largest)}"
    references = tuple(view.evidence.ref(r.file) for r in facts.ranks)
    if found is None:
        return unproved(
            identifier, claim, expected=floor, actual=None, unit="GB/s", evidence=references,
            next_action=f"it was not measured there: name {name} in `collectives`, or see the cap",
        )  # fmt: skip
    actual: Value = round(found.busbw_gb_s, 3)
    if found.busbw_gb_s < floor and facts.between:
        actual = f"{found.busbw_gb_s:.3g}; the slowest link is {slowest(facts.between)}"
    return decide(
        identifier,
        claim,
        found.busbw_gb_s >= floor,
        expected=floor,
        actual=actual,
        unit="GB/s",
        evidence=references,
        derivation=(
            f"floor: min_busbw_gb_s of the ladder; measured: {found.size_bytes} B / {found.time_us:.1f} µs "
            f"× {busbw_factor(name, view.expect['world_size']):g}"
        ),
        next_action="look in the log for NET/Socket (a TCP fallback) and for a missing rail; compare with the last good run",
    )


def _measurements(facts: Facts, fingerprint: Fingerprint) -> tuple[Measurement, ...]:
    rows = []
    digest, world = fingerprint.content_digest(), len(facts.ranks)
    for (name, size), row in facts.figures.items():
        for metric, value, unit in (
            ("time", row.time_us, "us"),
            ("algbw", row.algbw_gb_s, "GB/s"),
            ("busbw", row.busbw_gb_s, "GB/s"),
        ):
            rows.append(
                Measurement(
                    metric=metric, value=value, unit=unit, labels={"collective": name}, size_bytes=size,
                    world_size=world, fingerprint=digest,
                )
            )  # fmt: skip
    return tuple(rows)


def _details(facts: Facts, view: View) -> dict[str, Any]:
    """Curves for the report. A size that was asked for and not measured stands there as None."""
    curves = {}
    for name, sizes in view.expect["sweeps"].items():
        rows = []
        for size in sizes:
            row = facts.figures.get((name, size))
            rows.append(
                {
                    "size_bytes": size,
                    "time_us": row.time_us if row else None,
                    "algbw_gb_s": row.algbw_gb_s if row else None,
                    "busbw_gb_s": row.busbw_gb_s if row else None,
                }
            )
        curves[name] = rows
    devices = [{"rank": r.rank, "host": r.report.host, "device": r.data.device.canonical()} for r in facts.ranks]
    hosts = [rank.report.host for rank in facts.ranks]
    ways = Counter(link.way for link in facts.log.connections) if facts.log is not None else {}
    return {
        "curves": curves, "cap_bytes": facts.ranks[0].data.cap_bytes, "devices": devices, "transports": dict(ways),
        "links": [{"from": link.source, "to": link.target, "gb_s": link.gb_s} for link in facts.between],
        "network": network_details("collectives", facts.ranks, view),
        "gpudirect": gpudirect_seen(facts.log) if facts.log is not None and between_nodes(view.expect, hosts) else None,
    }  # fmt: skip


def _summary(facts: Facts, view: View) -> str:
    """The first collective: bandwidth at the largest size, and the shortest time at any size."""
    name = next(iter(view.expect["sweeps"]))
    keys = _keys(name, facts)
    if not keys:
        return "nothing was measured"
    top, floor_us = facts.figures[keys[-1]], min(facts.figures[key].time_us for key in keys)
    speed = f"{top.busbw_gb_s:.3g} GB/s at {format_size(top.size_bytes)}"
    idle = " on the CPU: one GPU has no other to talk to" if view.expect["idle_gpu"] else ""
    return f"{name} {speed}, floor {floor_us:.0f} µs, {len(facts.ranks)} ranks over {view.expect['backend']}{idle}"


RUNG = Collectives()
