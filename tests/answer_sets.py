"""Answer sets built to order: for tests of the gate and of what reads answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from surefoot.evaluation.scorers import score_text
from surefoot.model.policy import Policy
from surefoot.model.score import Answer, AnswerSet, AnswersHeader, Scorer

SEED_POLICY = Policy(
    name="seed",
    min_machine_accuracy=0.8,
    max_empty_outputs=0,
    max_adapter_avg_latency_seconds=30,
    max_accuracy_regression_vs_base=0.03,
)
CATEGORIES: dict[str, tuple[int, Scorer, str]] = {
    "classification": (30, "exact", "positive"),
    "closed_qa": (10, "qa", "Lisbon"),
    "json_extraction": (10, "json", '{"city": "Lisbon", "count": 3}'),
}
"""Category → items, scorer, expected answer: the shape of the demonstration's prompt set."""

WRONG = {
    "classification": "The sentiment of this review is positive.",
    "closed_qa": "It is Oslo.",
    "json_extraction": '{"city": "Oslo", "count": 4}',
}
"""Wrong in the form asked for; for classification the label stands in the sentence (a matter of form)."""


def answer(category: str, number: int, text: str, *, latency_s: float = 0.02, tokens: int = 5) -> Answer:
    """One answer, scored as its text deserves."""
    _, scorer, expected = CATEGORIES[category]
    scored = score_text(scorer, expected, text, truncated=False)
    name = f"{category}-{number:02d}"
    return Answer(
        id=name,
        category=category,
        prompt_digest=hashlib.sha256(name.encode()).hexdigest(),
        expected=expected,
        answer=text,
        outcome=scored.outcome,
        strict=scored.strict,
        lenient=scored.lenient,
        latency_s=latency_s,
        new_tokens=tokens,
        scorer=scorer,
    )


def answer_set(model: str, answers: Iterable[Answer]) -> AnswerSet:
    """A set with a header that fits."""
    rows = tuple(answers)
    header = AnswersHeader(
        prompt_set="builtin:demo-eval",
        prompt_set_digest="5e" * 32,
        count=len(rows),
        model=model,
        model_digest=hashlib.sha256(model.encode()).hexdigest(),
        run="run-1",
        nonce="nonce-1",
    )
    return AnswerSet(header=header, answers=rows)


def with_counts(model: str, *correct: int) -> AnswerSet:
    """A set with this many right answers per category: the first ones are right."""
    rows = []
    for (category, (items, _, expected)), right in zip(CATEGORIES.items(), correct, strict=True):
        rows += [answer(category, i, expected if i < right else WRONG[category]) for i in range(items)]
    return answer_set(model, rows)


def as_text(answers: AnswerSet) -> str:
    """As an answers file."""
    records = (answers.header, *answers.answers)
    return "".join(json.dumps(record.canonical()) + "\n" for record in records)
