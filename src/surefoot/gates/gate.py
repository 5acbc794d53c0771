"""The gate: paired answers and a policy → GO, NO_GO or INCONCLUSIVE, with a reason for every rule.

Pure. The rules are the seed system's four. They are compared as exact fractions, so that 40 of 50
meets a floor of 0.8 whatever floating point thinks. Answers that do not belong together, or are
not all there, make every rule INCONCLUSIVE: they prove nothing in either direction.
"""

from __future__ import annotations

import math
from fractions import Fraction

from surefoot.gates.explain import explanation, warnings
from surefoot.gates.pairing import category_counts, evidence_problems
from surefoot.model.policy import Policy
from surefoot.model.score import AnswerSet, Outcome
from surefoot.model.status import Status
from surefoot.model.verdict import Decision, Reason, Verdict

RULES = (
    "min_machine_accuracy",
    "max_empty_outputs",
    "max_adapter_avg_latency_seconds",
    "max_accuracy_regression_vs_base",
)
"""Fields of `Policy` that are rules, in the order in which they are judged."""


def decide(base: AnswerSet, adapter: AnswerSet, policy: Policy) -> Verdict:
    """The verdict on an adapter.

    GO only if the evidence is complete and every rule PASSED; NO_GO if a rule FAILED on complete
    evidence; INCONCLUSIVE otherwise.
    """
    problems = evidence_problems(base, adapter)
    # With no item on either side nothing below may be computed, and nothing is: `problems` is not empty then.
    if problems:
        reasons = [_evidence(problems, base), *(_unknown(rule, policy) for rule in RULES)]
    else:
        reasons = [
            _evidence(problems, base),
            _floor(adapter, policy),
            _empty(adapter, policy),
            _latency(adapter, policy),
            _regression(base, adapter, policy),
        ]
    categories = category_counts(base, adapter)
    words = explanation(categories)
    return Verdict(
        decision=_decision([reason.status for reason in reasons]),
        reasons=tuple(reasons),
        categories=categories,
        explanation=words if not problems else f"Not decided: {problems[0]}.",
        warnings=warnings(categories),
        requires_human_review=policy.requires_human_review,
        policy_digest=policy.content_digest(),
        base_digest=base.header.model_digest,
        adapter_digest=adapter.header.model_digest,
    )


def _decision(statuses: list[Status]) -> Decision:
    if Status.FAILED in statuses:
        return Decision.NO_GO
    if statuses and all(status is Status.PASSED for status in statuses):
        return Decision.GO
    return Decision.INCONCLUSIVE


def _evidence(problems: list[str], base: AnswerSet) -> Reason:
    """Not one of the policy's rules: the condition for judging any of them."""
    if problems:
        return Reason(
            rule="evidence",
            status=Status.INCONCLUSIVE,
            threshold=0,
            actual=len(problems),
            unit="problems",
            explanation="; ".join(problems),
        )
    return Reason(
        rule="evidence",
        status=Status.PASSED,
        threshold=0,
        actual=0,
        unit="problems",
        explanation=f"{len(base.answers)} items, each answered by base and adapter from the identical prompt, "
        "every score recomputed from the verbatim answer",
    )


def _unknown(rule: str, policy: Policy) -> Reason:
    return Reason(
        rule=rule,
        status=Status.INCONCLUSIVE,
        threshold=getattr(policy, rule),
        actual=None,
        unit=_UNITS[rule],
        explanation="not judged: the evidence does not hold together",
    )


_UNITS = {
    "min_machine_accuracy": "share",
    "max_empty_outputs": "answers",
    "max_adapter_avg_latency_seconds": "s",
    "max_accuracy_regression_vs_base": "share",
}


def _exact(threshold: float) -> Fraction:
    """The decimal that the policy's author wrote: 0.03 is 3/100, not the double nearest to it."""
    return Fraction(repr(threshold))


def _rule(rule: str, holds: bool, threshold: float, actual: float, explanation: str) -> Reason:
    return Reason(
        rule=rule,
        status=Status.PASSED if holds else Status.FAILED,
        threshold=threshold,
        actual=actual,
        unit=_UNITS[rule],
        explanation=explanation,
    )


def _floor(adapter: AnswerSet, policy: Policy) -> Reason:
    n, correct, floor = len(adapter.answers), adapter.correct, policy.min_machine_accuracy
    share = Fraction(correct, n)
    holds = share >= _exact(floor)
    words = f"adapter {correct} of {n} right in the form asked for: {float(share):.3f}"
    if not holds:
        words += f"; {math.ceil(_exact(floor) * n) - correct} more are needed for the floor of {floor:g}"
    return _rule("min_machine_accuracy", holds, floor, float(share), words)


def _empty(adapter: AnswerSet, policy: Policy) -> Reason:
    empty = [answer.id for answer in adapter.answers if answer.outcome is Outcome.EMPTY]
    limit = policy.max_empty_outputs
    words = f"adapter gave {len(empty)} empty answers, {limit} are allowed"
    if empty:
        words += f" (first: {empty[0]})"
    return _rule("max_empty_outputs", len(empty) <= limit, limit, len(empty), words)


def _latency(adapter: AnswerSet, policy: Policy) -> Reason:
    rule, limit = "max_adapter_avg_latency_seconds", policy.max_adapter_avg_latency_seconds
    unmeasured = [answer.id for answer in adapter.answers if answer.latency_s <= 0]
    if unmeasured:
        return Reason(
            rule=rule,
            status=Status.INCONCLUSIVE,
            threshold=limit,
            unit=_UNITS[rule],
            explanation=f"{len(unmeasured)} answers have no measured latency (first: {unmeasured[0]})",
        )
    mean = math.fsum(answer.latency_s for answer in adapter.answers) / len(adapter.answers)
    words = f"mean latency {mean:.4g} s per item (a batch's wall time divided by its items)"
    return _rule(rule, mean <= limit, limit, mean, words)


def _regression(base: AnswerSet, adapter: AnswerSet, policy: Policy) -> Reason:
    n, limit = len(base.answers), policy.max_accuracy_regression_vs_base
    regression = Fraction(base.correct - adapter.correct, n)
    words = f"base {base.correct} → adapter {adapter.correct} of {n}: regression {float(regression):+.3f}"
    words += " (negative: the adapter is better)" if regression < 0 else ""
    return _rule("max_accuracy_regression_vs_base", regression <= _exact(limit), limit, float(regression), words)
