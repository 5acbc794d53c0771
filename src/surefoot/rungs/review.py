"""Review: everything that a person needs to decide is there and belongs together.

It runs nothing, and judges nothing that a rung below has judged: it follows the chain of digests from
one rung's evidence to the next. PASSED means *ready for a person*, never *approved*.
`docs/rungs/review.md` is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.gates.explain import headline
from surefoot.model.check import Check
from surefoot.model.ladder import Review
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.model.verdict import Verdict
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.cache import staged_assets
from surefoot.rungs.evaluate_evidence import JOB, TASKS, EvaluateFacts, need, read_evidence
from surefoot.rungs.evaluate_view import report_details
from surefoot.rungs.finetune import adapter_of, read_log
from surefoot.rungs.finetune_facts import JOB as TRAIN
from surefoot.rungs.finetune_facts import LOG, RankTrain
from surefoot.rungs.gate import verdict_on
from surefoot.rungs.judging import Said, said
from surefoot.rungs.review_proposal import NOTHING, proposals
from surefoot.training.assets import StagedAssets

BELOW = ("cache", "finetune", "evaluate", "gate")


@dataclass(frozen=True)
class ReviewFacts:
    """One candidate's whole chain, each link read from the evidence of its own rung."""

    assets: StagedAssets
    train: tuple[Said[RankTrain], ...]
    recipe_digest: str
    """As the training log's header names it."""
    losses: tuple[float, ...]
    adapter_digest: str
    """Of the adapter's files as they lie in the fine-tune's evidence, computed now."""
    evaluation: EvaluateFacts
    answers: Mapping[str, str]
    """Answers file, relative to the run's folder → sha256, computed now."""
    verdict: Verdict


class ReviewRung(Rung[Review, ReviewFacts]):
    """Lineage, what changed, and what to try next, for a person."""

    name: ClassVar[str] = "review"
    title: ClassVar[str] = "Review"
    proves: ClassVar[str] = (
        "What a person needs to decide is there and belongs together: base, data, recipe, adapter, answers, verdict."
    )
    uses: ClassVar[tuple[str, ...]] = ()

    def plan(self, context: PlanContext[Review]) -> Asked:
        """Nothing to run. Looking at each rung's evidence pins the attempts that this review is about."""
        attempts = {rung: need(context.needs, rung).plan.attempt for rung in BELOW}
        return Asked(steps=(), expect={"attempts": attempts})

    def read(self, view: View) -> ReviewFacts:
        """Each link from its own evidence. Raises EvidenceError."""
        finetune = need(view.needs, "finetune")
        evaluated = need(view.needs, "evaluate")
        evaluation = read_evidence(evaluated)
        log = read_log(finetune)
        return ReviewFacts(
            assets=staged_assets(need(view.needs, "cache")),
            train=said(finetune, TRAIN, RankTrain),
            recipe_digest=log.header.recipe_digest,
            losses=tuple(step.loss for step in log.steps),
            adapter_digest=adapter_of(finetune).digest,
            evaluation=evaluation,
            answers={
                evaluated.ref(name).file: evaluated.blob(name).sha256
                for name in (f"raw/{JOB}/{file}" for report in evaluation.reports for file in sorted(report.files))
            },
            verdict=verdict_on(evaluation, view),
        )

    def judge(self, facts: ReviewFacts, view: View) -> Judgement:
        """One run, one chain; then what a person reads."""
        checks = (_one_run(view), _chain(facts, view))
        verdict, details = facts.verdict, report_details(facts.evaluation)
        pending = verdict.requires_human_review
        proposed = proposals(view.inputs.recipe, facts.losses, verdict.categories)
        return Judgement(
            checks=checks,
            verdict=verdict,
            summary=f"{'ready for a person to decide' if pending else 'complete, no person asked for'}: "
            f"{headline(verdict.categories)}; {_counted(proposed)}",
            details={
                "lineage": lineage(facts, view),
                "proposal": proposed,
                "changed": details["changed"],
                "categories": details["categories"],
                "warnings": list(verdict.warnings),
                "decision": "pending human review" if pending else "no human review required by the policy",
            },
        )


def _counted(proposed: list[dict[str, Any]]) -> str:
    real = sum(proposal["parameter"] != NOTHING for proposal in proposed)
    return f"{real} proposal{'' if real == 1 else 's'}"


def lineage(facts: ReviewFacts, view: View) -> dict[str, Any]:
    """Every digest that the decision stands on."""
    assets = facts.assets
    return {
        "run": view.plan.run_id,
        "base": {"source": assets.base.source, "digest": assets.base.digest},
        "train": {"source": assets.train.source, "digest": assets.train.digest, "rows": assets.train.rows},
        "evaluate": {"source": assets.evaluate.source, "digest": assets.evaluate.digest, "rows": assets.evaluate.rows},
        "recipe": {"name": view.inputs.recipe.name, "digest": view.inputs.recipe.content_digest()},
        "code": {"digest": view.inputs.code_digest},
        "configuration": {"digest": view.inputs.configuration_digest},
        "adapter": {"digest": facts.adapter_digest, "parameters": facts.train[0].data.trainable_parameters},
        "answers": dict(facts.answers),
        "policy": {"name": view.inputs.policy.name, "digest": facts.verdict.policy_digest},
        "verdict": {"decision": facts.verdict.decision.value, "digest": facts.verdict.content_digest()},
        "attempts": {rung: need(view.needs, rung).plan.attempt for rung in BELOW},
    }


def _one_run(view: View) -> Check:
    """All evidence is of this run and of the attempts that were looked at when the review was planned."""
    planned = view.expect["attempts"]
    problems = []
    for rung in BELOW:
        plan = need(view.needs, rung).plan
        if plan.run_id != view.plan.run_id or plan.rung != rung:
            problems.append(f"{rung}: evidence of rung {plan.rung!r} of run {plan.run_id}")
        if plan.attempt != planned.get(rung):
            problems.append(f"{rung}: attempt {plan.attempt}, planned with {planned.get(rung)}")
    # `package` is the code's digest, recorded in each plan by the engine.
    codes = {rung: need(view.needs, rung).plan.inputs.get("package", "") for rung in ("finetune", "evaluate")}
    if len(set(codes.values())) != 1:
        problems.append("fine-tune and evaluation ran different code")
    return Check(
        id="review.one_run",
        claim="all evidence is of one run, one code, and the attempts that were reviewed",
        status=Status.INCONCLUSIVE if problems else Status.PASSED,
        expected=view.plan.run_id,
        actual="; ".join(problems) or view.plan.run_id,
        evidence=(view.evidence.ref("plan.json"), *(need(view.needs, rung).ref("plan.json") for rung in BELOW)),
        next_action="review again: --resume RUN" if problems else "",
    )


def links(facts: ReviewFacts, view: View) -> dict[str, dict[str, str]]:
    """What was worked on → who names it → the digest named. The first is what the others are held against."""
    assets, evaluation, train = facts.assets, facts.evaluation, facts.train
    evaluated = [(f"evaluated by rank {r}", report) for r, report in enumerate(evaluation.reports)]
    return {
        "base": {
            "staged": assets.base.digest,
            **{f"trained on by {rank.where}": rank.data.base_digest for rank in train},
            **{who: report.base_digest for who, report in evaluated},
            "base's answers": evaluation.answers["base"].header.model_digest,
        },
        "training data": {
            "staged": assets.train.digest,
            **{f"trained on by {rank.where}": rank.data.data_digest for rank in train},
        },
        "held-out set": {
            "staged": assets.evaluate.digest,
            "copied beside the answers": evaluation.tasks_digest,
        },
        "recipe": {"this run's": view.inputs.recipe.content_digest(), "training log": facts.recipe_digest},
        "adapter": {
            "files in the evidence": facts.adapter_digest,
            **{f"saved, as {rank.where} reads it": rank.data.adapter_digest for rank in train},
            **{who: report.adapter_digest for who, report in evaluated},
            "adapter's answers": evaluation.answers["adapter"].header.model_digest,
            "verdict": facts.verdict.adapter_digest,
        },
    }


def _chain(facts: ReviewFacts, view: View) -> Check:
    """Every rung worked on what the rung below it left."""
    found = links(facts, view)
    broken = []
    for what, named in found.items():
        wanted = next(iter(named.values()))
        broken += [f"{what}, {who}: {digest[:16] or 'none'}" for who, digest in named.items() if digest != wanted]
        if not wanted:
            broken.append(f"{what}: no digest to compare with")
    finetune, evaluate = need(view.needs, "finetune"), need(view.needs, "evaluate")
    refs = [need(view.needs, "cache").ref("plan.json"), finetune.ref(LOG, line=1)]
    refs += [finetune.ref(rank.file) for rank in facts.train]
    refs += [evaluate.ref(TASKS), *(evaluate.ref(evaluate.rank_file(JOB, r.rank)) for r in facts.evaluation.ranks)]
    count = sum(len(named) for named in found.values())
    return Check(
        id="review.lineage",
        claim="base, data, recipe and adapter are the same from the cache to the verdict",
        status=Status.FAILED if broken else Status.PASSED,
        expected=count,
        actual="; ".join(broken) or count,
        unit="" if broken else "digests agree",
        evidence=tuple(refs),
        derivation="each link was judged by its own rung; here all are followed from end to end",
        next_action="these belong to different candidates: run what differs and all that follows again"
        if broken
        else "",
    )


RUNG: Rung[Any, Any] = ReviewRung()
