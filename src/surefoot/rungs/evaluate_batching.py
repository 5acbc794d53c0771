"""Batches as they were really made, and whether batching changed an answer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from surefoot.evaluation.records import MODELS, Batch, Model, single_sample
from surefoot.model.check import Check
from surefoot.model.score import Answer
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.evaluate_common import answer_refs, as_declared, check, is_error, rank_refs
from surefoot.rungs.evaluate_evidence import EvaluateFacts


def sample_of(facts: EvaluateFacts, view: View) -> tuple[tuple[int, ...], ...]:
    """By rank: positions, in the prompt set, of the items that are answered again one at a time."""
    positions = single_sample(len(facts.tasks), view.expect["batch1_sample"], view.expect["seed"])
    width = len(facts.ranks)
    return tuple(tuple(i for i in positions if i % width == rank) for rank in range(width))


def batches(facts: EvaluateFacts, view: View) -> Check:
    """The calls that the ranks recorded account for every answer, its latency and its prompt."""
    problems = [*_lengths(facts)]
    samples = sample_of(facts, view)
    width, size = len(facts.ranks), view.expect["batch_size"]
    for rank, report in enumerate(facts.reports):
        for model in MODELS:
            known = {a.id: a for a in facts.answers[model].answers[rank::width]}
            wanted = {facts.tasks[i].id for i in samples[rank] if i < len(facts.tasks)}
            alone = {a.id: a for a in facts.single[model].answers if a.id in wanted}
            for answers, only in ((known, False), (alone, True)):
                calls = [b for b in report.batches if (b.model, b.alone) == (model, only)]
                what = f"rank {rank}, {model}{' alone' if only else ''}"
                problems += _accounted(calls, answers, what)
                apart = any(failure.model == model for failure in report.batch_failures)
                problems += _sizes(calls, 1 if only else size, what, apart=apart and not only)
    largest = max((len(b.ids) for report in facts.reports for b in report.batches), default=0)
    return check(
        "batches",
        "every answer came out of one recorded call, in batches as large as asked",
        problems,
        rank_refs(facts, view),
        otherwise=Status.INCONCLUSIVE,
        expected=f"batches of {size}",
        actual=f"batches of up to {largest}",
        derivation="sizes and lengths are of the tensors that the models were given",
    )


def _lengths(facts: EvaluateFacts) -> Iterator[str]:
    """A prompt has one length, whichever model is asked and beside whom."""
    seen: dict[str, int] = {}
    for rank, report in enumerate(facts.reports):
        for batch in report.batches:
            if len(batch.ids) != len(batch.prompt_tokens) or batch.width != max(batch.prompt_tokens, default=0):
                yield f"rank {rank}: a batch of {len(batch.ids)} items contradicts itself ({batch.ids[0]})"
                continue
            for name, tokens in zip(batch.ids, batch.prompt_tokens, strict=True):
                if seen.setdefault(name, tokens) != tokens:
                    yield f"rank {rank}: {name} was given {tokens} tokens here and {seen[name]} there"


def _accounted(calls: list[Batch], answers: Mapping[str, Answer], what: str) -> Iterator[str]:
    """Each answer that is no error stands in one call, with the latency that this call gives."""
    counts = Counter(name for batch in calls for name in batch.ids)
    good = {name for name, answer in answers.items() if not is_error(answer)}
    odd = sorted(name for name in good | set(counts) if counts[name] != 1 or name not in good)
    if odd:
        yield f"{what}: {len(odd)} answers do not come from one call each (first: {odd[0]})"
    for batch in calls:
        share = batch.seconds / len(batch.ids)
        for name in batch.ids:
            if name in good and abs(answers[name].latency_s - share) > 1e-6 * share:
                yield f"{what}: {name} took {answers[name].latency_s:.4g} s, its batch says {share:.4g} s"


def _sizes(calls: list[Batch], size: int, what: str, *, apart: bool) -> Iterator[str]:
    """All batches full but the last; smaller ones only where the rank says that one was taken apart."""
    sizes = sorted((len(batch.ids) for batch in calls), reverse=True)
    full, rest = divmod(sum(sizes), size)
    planned = [size] * full + [rest] * (rest > 0)
    if sizes and (sizes[0] > size or (sizes != planned and not apart)):
        yield f"{what}: batches of {sizes[:4]}, asked for were {planned[:4]}"


def batching(facts: EvaluateFacts, view: View, model: Model) -> Check:
    """A seeded sample, answered again one at a time, gives the same words: if it was batched before."""
    expect = view.expect
    order = [i for share in sample_of(facts, view) for i in share]
    alone = facts.single[model].answers
    unproved = as_declared(alone, [facts.tasks[i] for i in order], f"{model} alone")
    if not order:
        unproved.append("no item was answered alone (batch1_sample: 0 in the ladder)")
    if expect["batch_size"] > 1:
        unproved += _not_batched(facts, model, {facts.tasks[i].id for i in order})
    batched = {answer.id: answer.answer for answer in facts.answers[model].answers}
    differing = [answer for answer in alone if batched.get(answer.id) != answer.answer]
    allowed = expect["batch1_allowed_differences"]
    untied = [a for a in differing if not _tied(facts, model, a.id, expect["near_tie"])]
    faults = differing if len(differing) > allowed else untied
    words = [f"{a.id}: batched {batched.get(a.id, '')[:60]!r}, alone {a.answer[:60]!r}" for a in faults]
    claim = f"batching does not change what the {model} answers"
    if expect["batch_size"] == 1:
        claim = f"the {model} was asked one prompt at a time, as the ladder says, and answers alike when asked again"
    return check(
        f"batching.{model}",
        claim,
        unproved or words,
        (*answer_refs(facts, view, model, single=True), *answer_refs(facts, view, model), *rank_refs(facts, view)),
        otherwise=Status.INCONCLUSIVE if unproved else Status.FAILED,
        expected=f"≤ {allowed} of {len(order)} differ",
        actual=f"{len(differing)} of {len(order)} differ",
        derivation=f"{expect['batch1_derivation']}; {_padding_words(facts, model)}",
        next_action="see batch_failures in the ranks' reports; fewer ranks or a larger batch1_sample batch what is sampled, "
        "batch_size: 1 does without batches"
        if unproved
        else "padding or attention mask is at fault: evaluate with batch_size 1, and report the model",
    )


def _together(facts: EvaluateFacts, model: Model) -> list[Batch]:
    return [b for report in facts.reports for b in report.batches if b.model == model and not b.alone]


def _not_batched(facts: EvaluateFacts, model: Model, sample: set[str]) -> Iterator[str]:
    """Why the sample says nothing about batching: it was answered alone the first time too, or never padded."""
    calls = _together(facts, model)
    beside = {name: len(b.ids) for b in calls for name in b.ids}
    padding = {n: b.width - tokens for b in calls for n, tokens in zip(b.ids, b.prompt_tokens, strict=False)}
    lonely = sorted(name for name in sample - _left_over(facts, model) if beside.get(name, 0) < 2)
    if sample and not any(beside.get(name, 0) > 1 for name in sample):
        lonely = sorted(sample)
    if lonely:
        yield f"{len(lonely)} of {len(sample)} sampled items were answered alone the first time too (first: {lonely[0]})"
    if any(padding.values()) and not any(padding.get(name, 0) for name in sample):
        yield "no sampled item was padded, and others were"


def _left_over(facts: EvaluateFacts, model: Model) -> set[str]:
    """Items that are alone because a rank's items are one more than its full batches hold, and for nothing else."""
    found: set[str] = set()
    for report in facts.reports:
        calls = [b for b in report.batches if b.model == model and not b.alone]
        sizes = sorted(len(b.ids) for b in calls)
        if len(sizes) > 1 and sizes[0] == 1 < sizes[1] and not any(f.model == model for f in report.batch_failures):
            found |= {name for b in calls if len(b.ids) == 1 for name in b.ids}
    return found


def _padding_words(facts: EvaluateFacts, model: Model) -> str:
    calls = _together(facts, model)
    sizes = [len(b.ids) for b in calls]
    padded = sum(b.width > tokens for b in calls for tokens in b.prompt_tokens)
    return f"batches of {min(sizes, default=0)} to {max(sizes, default=0)}, {padded} prompts of {sum(sizes)} padded"


def _tied(facts: EvaluateFacts, model: Model, name: str, near: float) -> bool:
    """Whether the answer given alone shows two best logits that are as good as equal."""
    gaps = [b.smallest_gap for r in facts.reports for b in r.batches if b.model == model and b.alone and name in b.ids]
    return bool(gaps) and all(gap is not None and gap <= near for gap in gaps)
