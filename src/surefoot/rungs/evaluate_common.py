"""What the evaluation's checks share: a check in one call, references to its files, answers against tasks."""

from __future__ import annotations

from surefoot.evaluation.records import Model
from surefoot.model.check import Check, Evidence, Value
from surefoot.model.score import Answer, Outcome, Task
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.evaluate_evidence import JOB, EvaluateFacts, answer_name

_AGAIN = "run this rung again (--resume RUN)"
_COMMON = ("id", "category", "expected", "scorer")


def check(
    identifier: str,
    claim: str,
    problems: list[str],
    refs: tuple[Evidence, ...],
    *,
    otherwise: Status,
    expected: Value = None,
    actual: Value = None,
    unit: str = "",
    derivation: str = "",
    next_action: str = _AGAIN,
) -> Check:
    """PASSED when there is no problem, else `otherwise`, with the first problems in words."""
    more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
    return Check(
        id=f"evaluate.{identifier}",
        claim=claim,
        status=otherwise if problems else Status.PASSED,
        expected=expected,
        actual="; ".join(problems[:3]) + more if problems else actual,
        unit=unit,
        evidence=refs,
        derivation=derivation,
        next_action=next_action if problems else "",
    )


def rank_refs(facts: EvaluateFacts, view: View) -> tuple[Evidence, ...]:
    """Every rank's report."""
    return tuple(view.evidence.ref(view.evidence.rank_file(JOB, rank)) for rank in range(len(facts.ranks)))


def answer_refs(facts: EvaluateFacts, view: View, model: Model, *, single: bool = False) -> tuple[Evidence, ...]:
    """Every rank's answers of a model."""
    ranks = range(len(facts.ranks))
    return tuple(view.evidence.ref(answer_name(model, rank, single=single)) for rank in ranks)


def is_error(answer: Answer) -> bool:
    """The machinery failed to get this answer."""
    return answer.outcome is Outcome.ERROR or bool(answer.error)


def as_declared(answers: tuple[Answer, ...], tasks: list[Task], what: str) -> list[str]:
    """How these answers differ from one answer per task in order; empty when they do not."""
    problems = []
    if len(answers) != len(tasks):
        problems.append(f"{what}: {len(answers)} answers to {len(tasks)} tasks")
    for answer, task in zip(answers, tasks, strict=False):
        declared = {"id": task.id, "category": task.category, "expected": task.answer, "scorer": task.scorer}
        problems += [
            f"{what}, task {task.id}: {key} is {getattr(answer, key)!r}, declared is {declared[key]!r}"
            for key in _COMMON
            if getattr(answer, key) != declared[key]
        ]
    return problems
