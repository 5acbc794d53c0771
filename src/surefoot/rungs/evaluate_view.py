"""What a report draws of an evaluation: figures and the answers that changed. Nothing here decides."""

from __future__ import annotations

from typing import Any

from surefoot.evaluation.records import MODELS
from surefoot.gates.pairing import category_counts
from surefoot.model.measurement import Measurement
from surefoot.model.score import AnswerSet
from surefoot.rungs.evaluate_evidence import EvaluateFacts


def summary(facts: EvaluateFacts) -> str:
    """``base 0.36 → adapter 0.94 on 50 tasks``."""
    base, adapter = (facts.answers[model].accuracy for model in MODELS)
    if base is None or adapter is None:
        return "no answers"
    return f"base {base:.2f} → adapter {adapter:.2f} on {len(facts.tasks)} tasks"


def measurements(facts: EvaluateFacts, fingerprint: str) -> tuple[Measurement, ...]:
    """Accuracy overall and per category, mean latency and throughput, of base and adapter."""
    found = []
    for model in MODELS:
        answers = facts.answers[model]
        slowest = max((report.answering_s.get(model, 0.0) for report in facts.reports), default=0.0)
        rows: list[tuple[str, float | None, str, dict[str, str]]] = [
            ("accuracy", answers.accuracy, "share", {}),
            ("lenient_accuracy", _mean([a.lenient for a in answers.answers]), "share", {}),
            ("latency", _mean([a.latency_s for a in answers.answers]), "s", {}),
            ("throughput", len(answers.answers) / slowest if slowest > 0 else None, "prompts/s", {}),
        ]
        rows += [
            ("accuracy", accuracy, "share", {"category": category})
            for category, accuracy in _by_category(answers).items()
        ]
        found += [
            Measurement(
                metric=metric,
                value=value,
                unit=unit,
                labels={"model": model, **labels},
                world_size=len(facts.ranks),
                fingerprint=fingerprint,
            )
            for metric, value, unit, labels in rows
        ]
    return tuple(found)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _by_category(answers: AnswerSet) -> dict[str, float]:
    rows: dict[str, list[float]] = {}
    for answer in answers.answers:
        rows.setdefault(answer.category, []).append(answer.strict)
    return {category: sum(strict) / len(strict) for category, strict in rows.items()}


def report_details(facts: EvaluateFacts) -> dict[str, Any]:
    """``categories``: paired counts. ``changed``: answers that became right or wrong, verbatim."""
    base, adapter = facts.answers["base"], facts.answers["adapter"]
    theirs = {answer.id: answer for answer in adapter.answers}
    prompts = {task.id: task.prompt for task in facts.tasks}
    changed = [
        {
            "id": ours.id,
            "category": ours.category,
            "prompt": prompts.get(ours.id, ""),
            "expected": ours.expected,
            "base": ours.answer,
            "adapter": theirs[ours.id].answer,
            "base_outcome": ours.outcome.value,
            "adapter_outcome": theirs[ours.id].outcome.value,
        }
        for ours in base.answers
        if ours.id in theirs and ours.outcome is not theirs[ours.id].outcome
    ]
    return {
        "categories": [count.canonical() for count in category_counts(base, adapter)],
        "changed": changed,
        "outcomes": {model: _outcomes(facts.answers[model]) for model in MODELS},
    }


def _outcomes(answers: AnswerSet) -> dict[str, int]:
    counts: dict[str, int] = {}
    for answer in answers.answers:
        counts[answer.outcome.value] = counts.get(answer.outcome.value, 0) + 1
    return counts


def fingerprint_facts(facts: EvaluateFacts) -> dict[str, str]:
    """What makes two evaluations comparable."""
    first = facts.reports[0]
    return {
        **first.versions,
        "device": first.device.name or first.device.kind,
        "dtype": first.dtype,
        "batch_size": str(max((len(b.ids) for r in facts.reports for b in r.batches if not b.alone), default=0)),
        "world_size": str(len(facts.ranks)),
        "prompt_set": facts.tasks_digest,
    }
