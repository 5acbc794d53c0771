"""DDP: a DistributedDataParallel step gives, on every rank, the values that arithmetic says."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field

from surefoot.benchmarks.ddp_step import Step, expected_step, seed_of
from surefoot.benchmarks.device import Device, device_problems
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.ladder import Ddp as DdpSpec
from surefoot.model.measurement import Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.judging import RankData, Said, decide, said, shorten

TOLERANCE = 1e-5
"""Relative to the largest value: float32 has 6e-8 for each operation, and no value takes more than
some eighty of them (40 terms of the loss, 10 of a product, the sum over ranks)."""


class Stepped(RankData):
    """What ``surefoot.node.ddp`` reports."""

    backend: str
    world_size: int
    device: Device
    parameter_device: str
    loss: float
    loss_sum: float
    weight_gradient: tuple[tuple[float, ...], ...]
    bias_gradient: tuple[float, ...]
    weight_after: tuple[tuple[float, ...], ...]
    bias_after: tuple[float, ...]
    parameter_digest: str = Field(pattern="^[0-9a-f]{64}$")


Facts = tuple[Said[Stepped], ...]


class Ddp(Rung[DdpSpec, Facts]):
    """One step on every rank."""

    name: ClassVar[str] = "ddp"
    title: ClassVar[str] = "PyTorch DDP"
    proves: ClassVar[str] = "A distributed training step computes the right loss and gradient on every rank."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[DdpSpec]) -> Asked:
        where = layout(context.cluster, context.spec, collective=True)
        seed = seed_of(context.nonce)
        request: dict[str, Any] = {
            "device": where.device,
            "backend": where.backend,
            "init_timeout_s": min(120.0, context.spec.time_limit_s / 2),
            "seed": seed,
        }
        job = context.job("ddp", "surefoot.node.ddp", request, where)
        expect = {"world_size": where.world_size, "device": where.device, "backend": where.backend, "seed": seed}
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        ranks = said(view.evidence, "ddp", Stepped)
        for rank in ranks:
            data = rank.data
            if data.world_size != view.expect["world_size"]:
                raise EvidenceError(f"its group had {data.world_size} ranks", file=rank.file)
            rows = (*data.weight_gradient, *data.weight_after, data.bias_gradient, data.bias_after)
            if len(data.weight_gradient) != 10 or len(data.weight_after) != 10 or any(len(row) != 10 for row in rows):
                raise EvidenceError("a gradient or parameter is not of shape 10 × 10 and 10", file=rank.file)
        return ranks

    def judge(self, facts: Facts, view: View) -> Judgement:
        if view.expect["seed"] != seed_of(view.plan.nonce):
            raise EvidenceError("the seed is not that of this attempt", file="plan.json")
        step = expected_step(view.expect["seed"], view.expect["world_size"])
        checks = [_world(facts, view), _devices(facts, view)]
        for rank in facts:
            checks += [_loss(rank, step, view), _gradient(rank, step, view), _parameters(rank, step, view)]
        checks.append(_identical(facts, view))
        mean = facts[0].data.loss_sum / len(facts)
        measurement = Measurement(metric="loss", value=mean, unit="", world_size=len(facts))
        table = [
            {"rank": r.rank, "host": r.report.host, "device": r.data.device.shown, "loss": r.data.loss} for r in facts
        ]
        return Judgement(
            checks=tuple(checks),
            measurements=(measurement,),
            summary=f"loss {mean:.6f} over {len(facts)} ranks, as computed by hand; parameters identical",
            details={"ranks": table, "expected_loss": step.loss_sum / len(facts)},
        )


def _close(found: float, wanted: float, scale: float) -> bool:
    return math.isfinite(found) and abs(found - wanted) <= TOLERANCE * max(scale, 1e-3)


def _world(facts: Facts, view: View) -> Check:
    wanted = view.expect["world_size"]
    other = sorted({rank.data.backend for rank in facts} - {view.expect["backend"]})
    return decide(
        "ddp.world",
        f"{wanted} ranks trained together over {view.expect['backend']}",
        len(facts) == wanted >= 2 and not other,
        expected=f"{wanted} × {view.expect['backend']}",
        actual=f"{len(facts)} × {', '.join(other) or view.expect['backend']}",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.backend) for rank in facts),
        next_action="set ranks_per_node or nodes to two ranks or more; see whether PyTorch has that backend",
    )


def _devices(facts: Facts, view: View) -> Check:
    kind = view.expect["device"]
    problems = device_problems([(r.where, r.report.host, r.report.local_rank, r.data.device) for r in facts], kind)
    for rank in facts:
        wanted = f"cuda:{rank.report.local_rank}" if kind == "cuda" else "cpu"
        if rank.data.parameter_device != wanted:
            problems.append(f"{rank.where} has its parameters on {rank.data.parameter_device}, not {wanted}")
    shown = [f"rank {rank.rank} → {rank.data.device.shown}" for rank in facts]
    return decide(
        "ddp.devices",
        "every rank trained on the device that is its own",
        not problems,
        expected=f"rank r on {kind}" + (":LOCAL_RANK, all different" if kind == "cuda" else ""),
        actual=shorten(problems) or shorten(shown, 8),
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.parameter_device) for rank in facts),
        next_action="look at CUDA_VISIBLE_DEVICES and the scheduler's GPU binding",
    )


def _loss(rank: Said[Stepped], step: Step, view: View) -> Check:
    own, total = step.losses[rank.rank], step.loss_sum
    ok = _close(rank.data.loss, own, own) and _close(rank.data.loss_sum, total, total)
    return decide(
        f"ddp.rank{rank.rank}.loss",
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


def _worst(found: list[float], wanted: list[float]) -> tuple[bool, float]:
    """Whether all are close, relative to the largest, and the largest distance."""
    scale = max(abs(value) for value in wanted)
    ok = len(found) == len(wanted) and all(_close(f, w, scale) for f, w in zip(found, wanted, strict=True))
    return ok, max(abs(f - w) for f, w in zip(found, wanted, strict=True))


def _flat(matrix: Any, vector: Any) -> list[float]:
    return [value for row in matrix for value in row] + list(vector)


def _gradient(rank: Said[Stepped], step: Step, view: View) -> Check:
    found = _flat(rank.data.weight_gradient, rank.data.bias_gradient)
    ok, worst = _worst(found, _flat(step.weight_gradient, step.bias_gradient))
    return decide(
        f"ddp.rank{rank.rank}.gradient",
        f"{rank.where}: the gradient is the average over all ranks' data",
        ok,
        expected=0.0,
        actual=float(f"{worst:.3g}"),
        unit="largest difference",
        evidence=(view.evidence.ref(rank.file, text="weight_gradient, bias_gradient"),),
        derivation=f"mean over ranks of 2 (y − target) xᵀ / 40 in plain Python; tolerance {TOLERANCE:g} of the largest entry",
        next_action="gradients were not averaged: see whether DDP's all-reduce ran at all, then the collectives rung",
    )


def _parameters(rank: Said[Stepped], step: Step, view: View) -> Check:
    found = _flat(rank.data.weight_after, rank.data.bias_after)
    ok, worst = _worst(found, _flat(step.weight_after, step.bias_after))
    return decide(
        f"ddp.rank{rank.rank}.parameters",
        f"{rank.where}: one SGD step moved the parameters to where arithmetic says",
        ok,
        expected=0.0,
        actual=float(f"{worst:.3g}"),
        unit="largest difference",
        evidence=(view.evidence.ref(rank.file, text="weight_after, bias_after"),),
        derivation=f"parameter − 1/8 × averaged gradient; tolerance {TOLERANCE:g} of the largest entry",
        next_action="the optimiser did not use the averaged gradient: compare the installed torch with the other nodes'",
    )


def _identical(facts: Facts, view: View) -> Check:
    digests = {rank.data.parameter_digest for rank in facts}
    values = {(rank.data.weight_after, rank.data.bias_after, rank.data.loss_sum) for rank in facts}
    return decide(
        "ddp.identical",
        "after the step the parameters are bit-equal on all ranks",
        len(digests) == len(values) == 1,
        expected=1,
        actual=max(len(digests), len(values)),
        unit="different models",
        evidence=tuple(view.evidence.ref(rank.file, text=rank.data.parameter_digest) for rank in facts),
        next_action="ranks drift apart from the first step on: unequal torch versions, or a broken all-reduce",
    )


RUNG = Ddp()
