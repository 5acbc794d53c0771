"""Review: everything that a person needs to decide is there and belongs together.

It runs nothing. PASSED means *ready for a person*, never *approved*. `docs/rungs/review.md` is for
people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.gates.explain import headline
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Review
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.model.verdict import Decision, Verdict
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.cache import staged_assets
from surefoot.rungs.evaluate_evidence import JOB, TASKS, EvaluateFacts, need, read_evidence
from surefoot.rungs.evaluate_view import report_details
from surefoot.rungs.finetune import adapter_of, read_log
from surefoot.rungs.finetune_facts import JOB as TRAIN
from surefoot.rungs.finetune_facts import LOG, RankTrain
from surefoot.rungs.gate import answer_refs, verdict_on
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
        evaluation = read_evidence(need(view.needs, "evaluate"))
        log = read_log(finetune)
        return ReviewFacts(
            assets=staged_assets(need(view.needs, "cache")),
            train=said(finetune, TRAIN, RankTrain),
            recipe_digest=log.header.recipe_digest,
            losses=tuple(step.loss for step in log.steps),
            adapter_digest=adapter_of(finetune).digest,
            evaluation=evaluation,
            verdict=verdict_on(evaluation, view),
        )

    def judge(self, facts: ReviewFacts, view: View) -> Judgement:
        """Every link of the chain, then the verdict, given again here."""
        checks = (
            _one_run(view),
            _base(facts, view),
            _data(facts, view),
            _recipe(facts, view),
            _adapter(facts, view),
            _verdict(facts, view),
        )
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
    assets, evaluation = facts.assets, facts.evaluation
    evaluated = need(view.needs, "evaluate")
    return {
        "run": view.plan.run_id,
        "base": {"source": assets.base.source, "digest": assets.base.digest},
        "train": {"source": assets.train.source, "digest": assets.train.digest, "rows": assets.train.rows},
        "evaluate": {"source": assets.evaluate.source, "digest": assets.evaluate.digest, "rows": assets.evaluate.rows},
        "recipe": {"name": view.inputs.recipe.name, "digest": view.inputs.recipe.content_digest()},
        "code": {"digest": view.inputs.code_digest},
        "configuration": {"digest": view.inputs.configuration_digest},
        "adapter": {"digest": facts.adapter_digest, "parameters": facts.train[0].data.trainable_parameters},
        "answers": {
            ref.file: evaluated.blob(name).sha256
            for name in (f"raw/{JOB}/{file}" for report in evaluation.reports for file in sorted(report.files))
            for ref in (evaluated.ref(name),)
        },
        "policy": {"name": view.inputs.policy.name, "digest": facts.verdict.policy_digest},
        "verdict": {"decision": facts.verdict.decision.value, "digest": facts.verdict.content_digest()},
        "attempts": {rung: need(view.needs, rung).plan.attempt for rung in BELOW},
    }


def _chain(identifier: str, claim: str, links: dict[str, str], refs: tuple[Evidence, ...]) -> Check:
    """All links have one and the same digest; the first is what the others are held against."""
    wanted = next(iter(links.values()))
    broken = [f"{who}: {digest[:16] or 'none'}" for who, digest in links.items() if digest != wanted]
    if not wanted:
        broken.insert(0, "no digest to compare with")
    return Check(
        id=f"review.{identifier}",
        claim=claim,
        status=Status.FAILED if broken else Status.PASSED,
        expected=wanted[:16],
        actual="; ".join(broken) or wanted[:16],
        unit="sha256",
        evidence=refs,
        derivation=" = ".join(links),
        next_action="these belong to different candidates: run what differs and all that follows again"
        if broken
        else "",
    )


def _train_refs(facts: ReviewFacts, view: View) -> tuple[Evidence, ...]:
    return tuple(need(view.needs, "finetune").ref(rank.file) for rank in facts.train)


def _eval_refs(facts: ReviewFacts, view: View) -> tuple[Evidence, ...]:
    evaluated = need(view.needs, "evaluate")
    return tuple(evaluated.ref(evaluated.rank_file(JOB, rank)) for rank in range(len(facts.evaluation.reports)))


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


def _base(facts: ReviewFacts, view: View) -> Check:
    links = {"staged": facts.assets.base.digest}
    links |= {f"trained on by {rank.where}": rank.data.base_digest for rank in facts.train}
    links |= {f"evaluated by rank {r}": report.base_digest for r, report in enumerate(facts.evaluation.reports)}
    links["base's answers"] = facts.evaluation.answers["base"].header.model_digest
    refs = (*_train_refs(facts, view), *_eval_refs(facts, view))
    return _chain("base", "trained on and compared with the base model that was staged", links, refs)


def _data(facts: ReviewFacts, view: View) -> Check:
    train, held_out = facts.assets.train.digest, facts.assets.evaluate.digest
    links = {"training data staged": train}
    links |= {f"trained on by {rank.where}": rank.data.data_digest for rank in facts.train}
    check = _chain(
        "data", "trained on the staged data, judged on the staged held-out set", links, _train_refs(facts, view)
    )
    problems = [] if check.status is Status.PASSED else [str(check.actual)]
    if facts.evaluation.tasks_digest != held_out:
        problems.append(
            f"the answers are to prompt set {facts.evaluation.tasks_digest[:16]}, staged was {held_out[:16]}"
        )
    if train == held_out:
        problems.append("training data and held-out set are the same file")
    return check.model_copy(
        update={
            "status": Status.FAILED if problems else Status.PASSED,
            "expected": f"train {train[:16]}, held out {held_out[:16]}",
            "actual": "; ".join(problems) or f"train {train[:16]}, held out {facts.evaluation.tasks_digest[:16]}",
            "evidence": (*check.evidence, need(view.needs, "evaluate").ref(TASKS)),
            "next_action": check.next_action or ("check the recipe's train and evaluate" if problems else ""),
        }
    )


def _recipe(facts: ReviewFacts, view: View) -> Check:
    log = need(view.needs, "finetune").ref(LOG, line=1)
    links = {"this run's recipe": view.inputs.recipe.content_digest(), "training log": facts.recipe_digest}
    return _chain("recipe", "trained by this run's recipe", links, (log,))


def _adapter(facts: ReviewFacts, view: View) -> Check:
    links = {"files in the evidence": facts.adapter_digest}
    links |= {f"saved, as {rank.where} reads it": rank.data.adapter_digest for rank in facts.train}
    links |= {f"evaluated by rank {r}": report.adapter_digest for r, report in enumerate(facts.evaluation.reports)}
    links["adapter's answers"] = facts.evaluation.answers["adapter"].header.model_digest
    links["verdict"] = facts.verdict.adapter_digest
    refs = (*_train_refs(facts, view), *_eval_refs(facts, view))
    return _chain("adapter", "the adapter that was judged is the adapter that was trained", links, refs)


def _verdict(facts: ReviewFacts, view: View) -> Check:
    """The gate PASSED (it is a need); given again here from the same answers, the verdict is the same."""
    gate = need(view.needs, "gate")
    verdict = facts.verdict
    go = verdict.decision is Decision.GO
    person = "a person decides next: nothing is approved" if verdict.requires_human_review else "no person is asked for"
    return Check(
        id="review.verdict",
        claim="the gate's GO follows from these answers, given again here",
        status=Status.PASSED if go else Status.INCONCLUSIVE,
        expected=Decision.GO.value,
        actual=verdict.decision.value,
        evidence=(gate.ref("plan.json"), *answer_refs(facts.evaluation, need(view.needs, "evaluate"))),
        derivation=f"policy {view.inputs.policy.name}; {person}",
        next_action="" if go else "run the gate again: --resume RUN",
    )


RUNG: Rung[Any, Any] = ReviewRung()
