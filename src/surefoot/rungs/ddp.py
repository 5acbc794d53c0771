"""DDP: a DistributedDataParallel step gives, on every rank, the values that arithmetic says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.benchmarks.ddp_step import Step, expected_step, seed_of
from surefoot.benchmarks.device import device_problems
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.ladder import Ddp as DdpSpec
from surefoot.model.measurement import Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, Layout, PlanContext, Rung, View, idle_gpu, layout
from surefoot.rungs.found_network import Network, asked, network_checks, network_details
from surefoot.rungs.judging import RankData, Said, decide, said, shorten, summed_up
from surefoot.rungs.step_values import (
    TOLERANCE,
    StepValues,
    gradient_distance,
    loss_fits,
    parameter_distance,
    refuse_misshapen,
)
from surefoot.rungs.threads import cpus_per_rank


class Stepped(StepValues, RankData, Network):
    """What ``surefoot.node.ddp`` reports."""


GPU_JOB = "ddp_gpu"
"""The same step on the GPU of a site that has one only: a world of one, beside the real one on the CPU."""


@dataclass(frozen=True)
class World:
    """One job's ranks, and what was asked of them."""

    job: str
    size: int
    device: str
    backend: str
    ranks: tuple[Said[Stepped], ...]


Facts = tuple[World, ...]


class Ddp(Rung[DdpSpec, Facts]):
    """One step on every rank."""

    name: ClassVar[str] = "ddp"
    title: ClassVar[str] = "PyTorch DDP"
    proves: ClassVar[str] = "A distributed training step computes the right loss and gradient on every rank."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[DdpSpec]) -> Asked:
        where = layout(context.cluster, context.spec, collective=True)
        worlds = {self.name: where}
        if idle_gpu(context.cluster, where):
            worlds[GPU_JOB] = Layout(1, 1, "cuda")
        seed = seed_of(context.nonce)
        found = asked(context.needs)
        jobs, worlds_asked = [], {}
        for job, place in worlds.items():
            request: dict[str, Any] = {
                "device": place.device,
                "backend": place.backend,
                "init_timeout_s": min(120.0, context.spec.time_limit_s / 2),
                "seed": seed,
                "environment": found,
            }
            cpus = cpus_per_rank(context.cluster, place)
            jobs.append(context.job(job, "surefoot.node.ddp", request, place, cpus_per_rank=cpus))
            worlds_asked[job] = {"world_size": place.world_size, "device": place.device, "backend": place.backend}
        return Asked(steps=(JobsStep(jobs=tuple(jobs)),), expect={"seed": seed, "worlds": worlds_asked})

    def read(self, view: View) -> Facts:
        worlds = []
        for job, world in view.expect["worlds"].items():
            ranks = said(view.evidence, job, Stepped)
            for rank in ranks:
                refuse_misshapen(rank.data, world["world_size"], rank.file)
            worlds.append(World(job, world["world_size"], world["device"], world["backend"], ranks))
        return tuple(worlds)

    def judge(self, facts: Facts, view: View) -> Judgement:
        seed = view.expect["seed"]
        if seed != seed_of(view.plan.nonce):
            raise EvidenceError("the seed is not that of this attempt", file="plan.json")
        checks = [check for world in facts for check in _checks(world, expected_step(seed, world.size), view)]
        measurements = tuple(
            Measurement(metric="loss", value=_mean_loss(w), unit="", labels={"device": w.device}, world_size=w.size)
            for w in facts
        )
        table = [
            {"rank": r.rank, "host": r.report.host, "device": r.data.device.shown, "loss": r.data.loss}
            for world in facts
            for r in world.ranks
        ]
        losses = ", ".join(f"loss {_mean_loss(w):.6f} over {_ranks(w)}" for w in facts)
        return Judgement(
            checks=tuple(checks),
            measurements=measurements,
            summary=summed_up(checks, f"{losses}, as computed by hand; parameters identical", anyway=losses),
            details={
                "ranks": table,
                "expected_loss": expected_step(seed, facts[0].size).loss_sum / facts[0].size,
                "network": network_details(self.name, facts[0].ranks, view),
            },
        )


def _mean_loss(world: World) -> float:
    return world.ranks[0].data.loss_sum / world.size


def _ranks(world: World) -> str:
    where = " on the one GPU" if world.job == GPU_JOB else ""
    return f"{world.size} rank{'s' if world.size > 1 else ''}{where}"


def _checks(world: World, step: Step, view: View) -> list[Check]:
    checks = [_world(world, view), _devices(world, view)]
    for rank in world.ranks:
        checks += [_loss(world, rank, step, view), _gradient(world, rank, step, view)]
        checks.append(_parameters(world, rank, step, view))
    return [*checks, _identical(world, view), *network_checks(world.job, world.job, world.ranks, view)]


def _world(world: World, view: View) -> Check:
    ranks, wanted = world.ranks, world.size
    other = sorted({rank.data.backend for rank in ranks} - {world.backend})
    alone = world.job == GPU_JOB
    claim = f"{wanted} ranks trained together over {world.backend}"
    if alone:
        claim = f"one rank trained alone over {world.backend}: a single GPU has no other to train with"
    return decide(
        f"{world.job}.world",
        claim,
        len(ranks) == wanted and (wanted == 1 if alone else wanted >= 2) and not other,
        expected=f"{wanted} × {world.backend}",
        actual=f"{len(ranks)} × {', '.join(other) or world.backend}",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.backend) for rank in ranks),
        next_action="set ranks_per_node or nodes to two ranks or more; see whether PyTorch has that backend",
    )


def _devices(world: World, view: View) -> Check:
    ranks, kind = world.ranks, world.device
    problems = device_problems([(r.where, r.report.host, r.report.local_rank, r.data.device) for r in ranks], kind)
    for rank in ranks:
        wanted = f"cuda:{rank.data.device.index}" if kind == "cuda" else "cpu"
        if rank.data.parameter_device != wanted:
            problems.append(f"{rank.where} has its parameters on {rank.data.parameter_device}, not {wanted}")
    shown = [f"rank {rank.rank} → {rank.data.device.shown}" for rank in ranks]
    return decide(
        f"{world.job}.devices",
        "every rank trained on the device that is its own",
        not problems,
        expected=f"rank r on {kind}" + (":LOCAL_RANK, or the one GPU it sees, all different" if kind == "cuda" else ""),
        actual=shorten(problems) or shorten(shown, 8),
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.parameter_device) for rank in ranks),
        next_action="look at CUDA_VISIBLE_DEVICES and the scheduler's GPU binding",
    )


def _loss(world: World, rank: Said[Stepped], step: Step, view: View) -> Check:
    own, total = step.losses[rank.rank], step.loss_sum
    ok = loss_fits(rank.data, step)
    return decide(
        f"{world.job}.rank{rank.rank}.loss",
        f"{rank.where}: its loss, and the all-reduced sum of all losses, are the computed ones",
        ok,
        expected=round(total, 6),
        actual=round(rank.data.loss_sum, 6)
        if ok
        else f"own {rank.data.loss:.6f} (not {own:.6f}), sum {rank.data.loss_sum:.6f}",
        evidence=(view.evidence.ref(rank.file, text=f"loss {rank.data.loss}, loss_sum {rank.data.loss_sum}"),),
        derivation=f"mean squared error of W x + b in plain Python, summed over ranks; relative tolerance {TOLERANCE:g}",
        next_action="the all-reduce or the arithmetic of this rank is wrong: see the collectives and compute rungs",
    )


def _gradient(world: World, rank: Said[Stepped], step: Step, view: View) -> Check:
    ok, worst = gradient_distance(rank.data, step)
    return decide(
        f"{world.job}.rank{rank.rank}.gradient",
        f"{rank.where}: the gradient is the average over all ranks' data",
        ok,
        expected=0.0,
        actual=float(f"{worst:.3g}"),
        unit="largest difference",
        evidence=(view.evidence.ref(rank.file, text="weight_gradient, bias_gradient"),),
        derivation=f"mean over ranks of 2 (y − target) xᵀ / 40 in plain Python; tolerance {TOLERANCE:g} of the largest entry",
        next_action="gradients were not averaged: see whether DDP's all-reduce ran at all, then the collectives rung",
    )


def _parameters(world: World, rank: Said[Stepped], step: Step, view: View) -> Check:
    ok, worst = parameter_distance(rank.data, step)
    return decide(
        f"{world.job}.rank{rank.rank}.parameters",
        f"{rank.where}: one SGD step moved the parameters to where arithmetic says",
        ok,
        expected=0.0,
        actual=float(f"{worst:.3g}"),
        unit="largest difference",
        evidence=(view.evidence.ref(rank.file, text="weight_after, bias_after"),),
        derivation=f"parameter − 1/8 × averaged gradient; tolerance {TOLERANCE:g} of the largest entry",
        next_action="the optimiser did not use the averaged gradient: compare the installed torch with the other nodes'",
    )


def _identical(world: World, view: View) -> Check:
    digests = {rank.data.parameter_digest for rank in world.ranks}
    values = {(rank.data.weight_after, rank.data.bias_after, rank.data.loss_sum) for rank in world.ranks}
    return decide(
        f"{world.job}.identical",
        "after the step the parameters are bit-equal on all ranks",
        len(digests) == len(values) == 1,
        expected=1,
        actual=max(len(digests), len(values)),
        unit="different models",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.parameter_digest) for rank in world.ranks),
        next_action="ranks drift apart from the first step on: unequal torch versions, or a broken all-reduce",
    )


RUNG = Ddp()
