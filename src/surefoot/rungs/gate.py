"""Gate: the adapter meets the policy, with evidence for each rule.

It runs nothing: it reads the evaluation's answers and the policy, and decides
(`surefoot.gates.gate.decide`). `docs/rungs/gate.md` is for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.evaluation.records import MODELS
from surefoot.evidence import EvidenceSet
from surefoot.gates.explain import headline
from surefoot.gates.gate import decide
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Gate
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.model.verdict import Decision, Reason, Verdict
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.evaluate_evidence import EvaluateFacts, answer_name, need, read_evidence

STATUS_OF = {
    Decision.GO: Status.PASSED,
    Decision.NO_GO: Status.FAILED,
    Decision.INCONCLUSIVE: Status.INCONCLUSIVE,
}

CLAIMS = {
    "evidence": "the answers of base and adapter belong together and are all there",
    "min_machine_accuracy": "the adapter's accuracy meets the floor",
    "max_empty_outputs": "the adapter gives no more empty answers than allowed",
    "max_adapter_avg_latency_seconds": "the adapter answers fast enough",
    "max_accuracy_regression_vs_base": "the adapter is not worse than the base, on average",
}

NEXT = {
    "evidence": "run the evaluation again: --resume RUN",
    "min_machine_accuracy": "see the answers that are wrong in the report, and the review's proposals for the recipe",
    "max_empty_outputs": "see the empty answers: an end token learned too early, or a template that differs",
    "max_adapter_avg_latency_seconds": "raise batch_size in the ladder, or lower max_new_tokens in the recipe",
    "max_accuracy_regression_vs_base": "lower the learning rate or add rows of the categories that lost",
}


@dataclass(frozen=True)
class GateFacts:
    """The evaluation that the verdict is about, and the verdict."""

    evaluation: EvaluateFacts
    verdict: Verdict


class GateRung(Rung[Gate, GateFacts]):
    """The policy's verdict on the adapter."""

    name: ClassVar[str] = "gate"
    title: ClassVar[str] = "Gate"
    proves: ClassVar[str] = "The adapter meets every rule of the policy, each on complete, paired evidence."
    uses: ClassVar[tuple[str, ...]] = ()

    def plan(self, context: PlanContext[Gate]) -> Asked:
        """Nothing to run. The policy is not pinned: `surefoot judge --policy` judges by today's."""
        need(context.needs, "evaluate")
        return Asked(steps=(), expect={})

    def read(self, view: View) -> GateFacts:
        """The evaluation's answers, read again from their files. Raises EvidenceError."""
        evaluation = read_evidence(need(view.needs, "evaluate"))
        return GateFacts(evaluation, verdict_on(evaluation, view))

    def judge(self, facts: GateFacts, view: View) -> Judgement:
        """One check for each rule, one for the verdict."""
        evaluation = need(view.needs, "evaluate")
        verdict = facts.verdict
        checks = [_whole(facts, evaluation)]
        checks += [_rule(reason, facts, evaluation) for reason in verdict.reasons]
        checks.append(_decision(verdict, facts, evaluation))
        return Judgement(
            checks=tuple(checks),
            verdict=verdict,
            summary=_summary(verdict),
            details={
                "categories": [count.canonical() for count in verdict.categories],
                "warnings": list(verdict.warnings),
                "requires_human_review": verdict.requires_human_review,
            },
        )


def _summary(verdict: Verdict) -> str:
    """``GO: 29 gained, 0 lost of 50, a formatting win``."""
    undecided = verdict.decision is Decision.INCONCLUSIVE
    return f"{verdict.decision.value}: {verdict.explanation if undecided else headline(verdict.categories)}"


def verdict_on(evaluation: EvaluateFacts, view: View) -> Verdict:
    """The policy's verdict on these answers."""
    base, adapter = (evaluation.answers[model] for model in MODELS)
    return decide(base, adapter, view.inputs.policy)


def answer_refs(facts: EvaluateFacts, evaluation: EvidenceSet) -> tuple[Evidence, ...]:
    """The answer files that the verdict is about, in the evaluation's evidence."""
    ranks = range(len(facts.ranks))
    return tuple(evaluation.ref(answer_name(model, rank)) for model in MODELS for rank in ranks)


def _whole(facts: GateFacts, evaluation: EvidenceSet) -> Check:
    """The gate counts for itself: as many answers as the evaluation was planned to ask."""
    wanted = evaluation.plan.expect.get("tasks")
    counts = [len(facts.evaluation.answers[model].answers) for model in MODELS]
    whole = isinstance(wanted, int) and wanted > 0 and counts == [wanted, wanted]
    return Check(
        id="gate.coverage",
        claim="the verdict is about every item of the declared prompt set",
        status=Status.PASSED if whole else Status.INCONCLUSIVE,
        expected=wanted,
        actual=min(counts),
        unit="items",
        evidence=answer_refs(facts.evaluation, evaluation),
        derivation=f"from the evaluation's plan, attempt {evaluation.plan.attempt}",
        next_action="" if whole else NEXT["evidence"],
    )


def _rule(reason: Reason, facts: GateFacts, evaluation: EvidenceSet) -> Check:
    return Check(
        id=f"gate.{reason.rule}",
        claim=CLAIMS[reason.rule],
        status=reason.status,
        expected=reason.threshold,
        actual=reason.actual,
        unit=reason.unit,
        evidence=answer_refs(facts.evaluation, evaluation),
        derivation=reason.explanation,
        next_action="" if reason.status is Status.PASSED else NEXT[reason.rule],
    )


def _decision(verdict: Verdict, facts: GateFacts, evaluation: EvidenceSet) -> Check:
    person = "a person still decides" if verdict.requires_human_review else "the policy asks for no person"
    return Check(
        id="gate.verdict",
        claim="the verdict is GO",
        status=STATUS_OF[verdict.decision],
        expected=Decision.GO.value,
        actual=verdict.decision.value,
        evidence=answer_refs(facts.evaluation, evaluation),
        derivation=f"{verdict.explanation} ({person})",
        next_action="" if verdict.decision is Decision.GO else "see the rules that did not pass",
    )


RUNG: Rung[Any, Any] = GateRung()
