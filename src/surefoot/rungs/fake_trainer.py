"""Fake trainer: the automation around a training job works, with no machine learning in the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.model.ladder import FakeTrainer as FakeTrainerSpec
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.judging import ONE_CLOCK_S, RankData, Said, decide, said, shorten

STEPS = 10
METADATA = "raw/fake_trainer/metadata.json"


class Metadata(Record):
    """``metadata.json``: what a training job leaves behind, without the training."""

    run: str
    nonce: str
    job_id: str
    world_size: int
    steps: int
    seconds: float


class Slept(RankData):
    """What ``surefoot.node.fake_trainer`` reports."""

    steps: int
    slept_s: float
    fail: bool


@dataclass(frozen=True)
class Facts:
    """All ranks, and the job's metadata."""

    ranks: tuple[Said[Slept], ...]
    metadata: Metadata


class FakeTrainer(Rung[FakeTrainerSpec, Facts]):
    """Sleeps on every rank and writes metadata."""

    name: ClassVar[str] = "fake_trainer"
    title: ClassVar[str] = "Fake trainer"
    proves: ClassVar[str] = "A training-shaped job starts, runs its time, writes its files, and its end is seen."
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package")

    def plan(self, context: PlanContext[FakeTrainerSpec]) -> Asked:
        spec = context.spec
        where = layout(context.cluster, spec, collective=True, computes=False)
        request = {"steps": STEPS, "seconds": spec.seconds, "fail": spec.fail}
        job = context.job("fake_trainer", "surefoot.node.fake_trainer", request, where)
        expect = {"world_size": where.world_size, "steps": STEPS, "seconds": spec.seconds, "fail": spec.fail}
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> Facts:
        ranks = said(view.evidence, "fake_trainer", Slept)
        return Facts(ranks=ranks, metadata=view.evidence.record(Metadata, METADATA))

    def judge(self, facts: Facts, view: View) -> Judgement:
        checks = (_ran(facts, view), _metadata(facts, view))
        longest = max(rank.data.slept_s for rank in facts.ranks)
        steps = min(rank.data.steps for rank in facts.ranks)
        return Judgement(checks=checks, summary=f"{steps} steps in {longest:.1f} s on {len(facts.ranks)} ranks")


def _ran(facts: Facts, view: View) -> Check:
    expect, problems = view.expect, []
    for rank in facts.ranks:
        elapsed = rank.report.ended_at - rank.report.started_at
        if rank.data.steps != expect["steps"]:
            problems.append(f"{rank.where} did {rank.data.steps} steps")
        # The wall clock may be stepped while it runs; the monotonic one may not.
        if rank.data.slept_s < expect["seconds"] or elapsed < 0.5 * expect["seconds"]:
            problems.append(f"{rank.where} ran {rank.data.slept_s:.2f} s, {elapsed:.2f} s by its report")
        if rank.data.slept_s > elapsed + ONE_CLOCK_S:
            problems.append(f"{rank.where} slept {rank.data.slept_s:.2f} s within {elapsed:.2f} s")
        if rank.data.fail != expect["fail"] or rank.data.fail:
            problems.append(f"{rank.where} was told to fail")
    if len(facts.ranks) != expect["world_size"]:
        problems.append(f"{len(facts.ranks)} ranks answered, asked for were {expect['world_size']}")
    return decide(
        "fake_trainer.ran",
        f"every rank did {expect['steps']} steps in {expect['seconds']:g} s or more",
        not problems,
        expected=f"{expect['steps']} steps, ≥ {expect['seconds']:g} s",
        actual=shorten(problems) or f"{expect['steps']} steps on {len(facts.ranks)} ranks",
        evidence=tuple(
            view.evidence.ref(r.file, text=f"{r.data.steps} steps, {r.data.slept_s:.2f} s") for r in facts.ranks
        ),
        next_action="take `fail: true` out of the ladder if it was a drill; else read the end of the job's .out file",
    )


def _metadata(facts: Facts, view: View) -> Check:
    expect = view.expect
    wanted = Metadata(
        run=view.plan.run_id,
        nonce=view.plan.nonce,
        job_id=facts.ranks[0].report.job_id,
        world_size=expect["world_size"],
        steps=expect["steps"],
        seconds=expect["seconds"],
    )
    found, other = facts.metadata.canonical(), wanted.canonical()
    wrong = [f"{key} is {found[key]!r}, not {other[key]!r}" for key in other if found[key] != other[key]]
    return decide(
        "fake_trainer.metadata",
        "metadata.json is of this run, this attempt and this job",
        not wrong,
        expected=f"job {wanted.job_id}, {wanted.steps} steps",
        actual=shorten(wrong) or f"job {wanted.job_id}, {wanted.steps} steps",
        evidence=(view.evidence.ref(METADATA, text=shorten(wrong)),),
        next_action="a file of another job lies there: see who else writes into this run's folder",
    )


RUNG = FakeTrainer()
