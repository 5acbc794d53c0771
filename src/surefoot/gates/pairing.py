"""Do two answer sets belong together, and what did each category gain and lose? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

# The scorers are pure; using them here is what lets a gate stand on records alone: a score that
# was edited, or an answer that was, does not survive scoring it again.
from surefoot.evaluation.scorers import score_text
from surefoot.model.score import Answer, AnswerSet, Outcome
from surefoot.model.verdict import CategoryCount

_SHOWN = 3


def evidence_problems(base: AnswerSet, adapter: AnswerSet) -> list[str]:
    """Everything that keeps these two sets from being evidence, in words; empty when nothing does."""
    problems = [*_one(base, "base"), *_one(adapter, "adapter")]
    for field in ("prompt_set", "prompt_set_digest", "count"):
        left, right = getattr(base.header, field), getattr(adapter.header, field)
        if left != right:
            problems.append(f"{field} differs: base {left!r}, adapter {right!r}")
    if base.header.model_digest == adapter.header.model_digest:
        problems.append("base and adapter have the same digest: one model was compared with itself")
    ours, theirs = {a.id: a for a in base.answers}, {a.id: a for a in adapter.answers}
    if ours.keys() != theirs.keys():
        alone = sorted(ours.keys() ^ theirs.keys())
        problems.append(f"{len(alone)} items were answered by one model only: {_some(alone)}")
    for field in ("prompt_digest", "category", "expected", "scorer"):
        differing = sorted(
            key for key in ours.keys() & theirs.keys() if getattr(ours[key], field) != getattr(theirs[key], field)
        )
        if differing:
            problems.append(f"{field} differs between base and adapter on {len(differing)} items: {_some(differing)}")
    return problems


def _one(answers: AnswerSet, name: str) -> Iterator[str]:
    """Problems of one set."""
    header = answers.header
    if not answers.answers:
        yield f"{name}: no answers"
    if header.count != len(answers.answers):
        yield f"{name}: {len(answers.answers)} answers of {header.count} declared"
    if header.model != name:
        yield f"{name}: the answers are of {header.model!r}"
    for field in ("model_digest", "prompt_set_digest"):
        if not getattr(header, field):
            yield f"{name}: the header names no {field}"
    twice = sorted(key for key, count in Counter(a.id for a in answers.answers).items() if count > 1)
    if twice:
        yield f"{name}: {len(twice)} items are answered more than once: {_some(twice)}"
    errors = [a.id for a in answers.answers if a.outcome is Outcome.ERROR or a.error]
    if errors:
        yield f"{name}: {len(errors)} items have no answer because the machinery failed: {_some(errors)}"
    unlike = [a.id for a in answers.answers if not _score_stands(a)]
    if unlike:
        yield f"{name}: {len(unlike)} recorded scores are not what the answer scores: {_some(unlike)}"
    unhashed = [a.id for a in answers.answers if not a.prompt_digest]
    if unhashed:
        yield f"{name}: {len(unhashed)} answers do not say which prompt they answer: {_some(unhashed)}"


def _score_stands(answer: Answer) -> bool:
    """Scored again, the verbatim answer gives what is recorded. WRONG and TRUNCATED both count as not correct."""
    if answer.outcome is Outcome.ERROR:
        return True  # reported on its own
    try:
        again = score_text(answer.scorer, answer.expected, answer.answer, answer.outcome is Outcome.TRUNCATED)
    except ValueError:
        return False
    return (
        again.outcome is answer.outcome
        and again.strict == answer.strict
        and abs(again.lenient - answer.lenient) < 1e-9  # shares travel through JSON
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def category_counts(base: AnswerSet, adapter: AnswerSet) -> tuple[CategoryCount, ...]:
    """Paired counts per category, in order of first appearance, over the items that both answered."""
    theirs = {answer.id: answer for answer in adapter.answers}
    pairs: dict[str, list[tuple[Answer, Answer]]] = {}
    for ours in base.answers:
        if ours.id in theirs:
            pairs.setdefault(ours.category, []).append((ours, theirs[ours.id]))
    return tuple(_count(category, rows) for category, rows in pairs.items())


def _count(category: str, rows: list[tuple[Answer, Answer]]) -> CategoryCount:
    right = [(b.outcome is Outcome.CORRECT, a.outcome is Outcome.CORRECT) for b, a in rows]
    return CategoryCount(
        category=category,
        items=len(rows),
        base_correct=sum(b for b, _ in right),
        adapter_correct=sum(a for _, a in right),
        base_lenient=round(sum(b.lenient for b, _ in rows), 9),
        adapter_lenient=round(sum(a.lenient for _, a in rows), 9),
        gained=sum(a and not b for b, a in right),
        lost=sum(b and not a for b, a in right),
    )
