"""The evaluation's checks. Pure; each compares raw evidence with what was asked or computes it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from surefoot.benchmarks.device import device_problems
from surefoot.evaluation.records import MODELS, Model, rescored
from surefoot.model.check import Check, Evidence
from surefoot.model.score import Answer
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.evaluate_batching import batches, batching
from surefoot.rungs.evaluate_common import answer_refs, as_declared, check, is_error, rank_refs
from surefoot.rungs.evaluate_evidence import TASKS, EvaluateFacts, item_ref


def all_checks(facts: EvaluateFacts, view: View) -> Iterator[Check]:
    """Every check of this rung, in the order in which a person would ask."""
    yield _prompt_set(facts, view)
    yield _identity(facts, view, "base", "cache", "the model that was staged")
    yield _identity(facts, view, "adapter", "finetune", "the one that the fine-tune saved")
    yield _settings(facts, view)
    for model in MODELS:
        yield _coverage(facts, view, model)
    yield _same_prompts(facts, view)
    for model in MODELS:
        yield _no_errors(facts, view, model)
        yield _scores(facts, view, model)
        yield _timed(facts, view, model)
    yield _adapter_loaded(facts, view)
    yield _adapter_acts(facts, view)
    yield batches(facts, view)
    for model in MODELS:
        yield batching(facts, view, model)


def _prompt_set(facts: EvaluateFacts, view: View) -> Check:
    problems = []
    asked, wanted = view.expect["tasks_digest"], view.expect["tasks"]
    if facts.tasks_digest != asked:
        problems.append(f"the copy of the prompts has digest {facts.tasks_digest[:16]}, staged was {asked[:16]}")
    if len(facts.tasks) != wanted:
        problems.append(f"{len(facts.tasks)} prompts, staged were {wanted}")
    for rank, report in enumerate(facts.reports):
        if report.tasks_digest != asked or report.tasks != wanted:
            problems.append(f"rank {rank} read {report.tasks} prompts with digest {report.tasks_digest[:16]}")
    for model in MODELS:
        for sort, header in (("", facts.answers[model].header), (" (alone)", facts.single[model].header)):
            if header.prompt_set_digest != asked:
                problems.append(f"{model}'s answers{sort} are to prompt set {header.prompt_set_digest[:16]}")
    return check(
        "prompt_set",
        "every rank was asked the prompt set that the cache rung staged",
        problems,
        (view.evidence.ref(TASKS), *rank_refs(facts, view)),
        otherwise=Status.INCONCLUSIVE,
        expected=f"{wanted} prompts, {asked[:16]}",
        actual=f"{len(facts.tasks)} prompts, {facts.tasks_digest[:16]}",
        derivation="digest computed from the copy in this evidence",
    )


def _identity(facts: EvaluateFacts, view: View, model: Model, rung: str, what: str) -> Check:
    wanted = view.expect[f"{model}_digest"]
    found = [(f"rank {r} loaded", getattr(report, f"{model}_digest")) for r, report in enumerate(facts.reports)]
    found += [("the answers are of", facts.answers[model].header.model_digest)]
    found += [("the answers given alone are of", facts.single[model].header.model_digest)]
    problems = [f"{who} {digest[:16]}" for who, digest in found if digest != wanted]
    return check(
        f"{model}_identity",
        f"the {model} that answered is {what}",
        problems,
        rank_refs(facts, view),
        otherwise=Status.FAILED,
        expected=wanted[:16],
        actual=wanted[:16],
        derivation=f"tree digest, from the {rung} rung",
        next_action=f"files changed after the {rung} rung: run {rung} and what follows again",
    )


def _settings(facts: EvaluateFacts, view: View) -> Check:
    """Where and how the models answered, by what the ranks found on the models, not by what they were asked."""
    expect = view.expect
    ranks = list(zip(facts.ranks, facts.reports, strict=True))
    devices = [(f"rank {a.rank} on {a.host}", a.host, a.local_rank, report.device) for a, report in ranks]
    problems = device_problems(devices, expect["device"])
    greedy = {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "max_new_tokens": expect["max_new_tokens"]}
    ends = {decoding.end_tokens for report in facts.reports for decoding in report.decoding.values()}
    for rank, report in enumerate(facts.reports):
        if report.dtype != expect["dtype"]:
            problems.append(f"rank {rank}: dtype {report.dtype}, asked for was {expect['dtype']}")
        for model in MODELS:
            held = report.decoding.get(model)
            problems += [
                f"rank {rank}: the {model} answered with {key} {getattr(held, key, 'unknown')}, asked for was {wanted}"
                for key, wanted in greedy.items()
                if getattr(held, key, None) != wanted
            ]
        share = len(range(rank, len(facts.tasks), len(facts.ranks)))
        if report.items != share:
            problems.append(f"rank {rank} says that it had {report.items} items, its share is {share}")
    if len(ends) != 1:
        problems.append(f"models or ranks ended answers at different tokens: {sorted(ends)}")
    words = f"{expect['device']}, {expect['dtype']}, greedy, ≤ {expect['max_new_tokens']} tokens"
    return check(
        "settings",
        "the models answered where and how they were asked to",
        problems,
        rank_refs(facts, view),
        otherwise=Status.FAILED,
        expected=words,
        actual=words,
        derivation="read off the models after they had answered: device and type of their tensors, the generation "
        f"configuration that they held; answers end at token {', '.join(map(str, min(ends, default=())))}",
        next_action="see the ranks' reports: a silent fallback measures something else than was asked",
    )


def _coverage(facts: EvaluateFacts, view: View, model: Model) -> Check:
    answers = facts.answers[model].answers
    return check(
        f"coverage.{model}",
        f"the {model} answered every task of the declared set, once each",
        as_declared(answers, list(facts.tasks), model),
        (view.evidence.ref(TASKS), *answer_refs(facts, view, model)),
        otherwise=Status.INCONCLUSIVE,
        expected=view.expect["tasks"],
        actual=len(answers),
        unit="tasks",
    )


def _same_prompts(facts: EvaluateFacts, view: View) -> Check:
    base, adapter = (facts.answers[model].answers for model in MODELS)
    pairs = list(zip(base, adapter, strict=False))
    problems = [b.id for b, a in pairs if (b.id, b.prompt_digest) != (a.id, a.prompt_digest) or not b.prompt_digest]
    words = [f"{name}: base and adapter were given different token ids" for name in problems]
    if len(base) != len(adapter) or not pairs:
        words.append(f"base answered {len(base)} items, adapter {len(adapter)}")
    distinct = len({b.prompt_digest for b in base})
    prompts = len({task.prompt for task in facts.tasks})
    if distinct != prompts:
        words.append(f"{prompts} different prompts have {distinct} different digests")
    known = {b.id: b.prompt_digest for b in base}
    for model in MODELS:
        unlike = [a.id for a in facts.single[model].answers if known.get(a.id) != a.prompt_digest]
        words += [f"{name}: alone, the {model} was given other token ids" for name in unlike]
    return check(
        "same_prompts",
        "base and adapter were given identical token ids, item by item",
        words,
        tuple(ref for model in MODELS for ref in answer_refs(facts, view, model)),
        otherwise=Status.INCONCLUSIVE,
        expected=len(facts.tasks),
        actual=len(pairs),
        unit="identical prompts",
    )


def _item_refs(facts: EvaluateFacts, view: View, model: Model, bad: Callable[[Answer], bool]) -> tuple[Evidence, ...]:
    """The lines of the first answers that are bad; the files when none is."""
    width = len(facts.ranks)
    answers = facts.answers[model].answers
    lines = tuple(
        item_ref(view.evidence, model, i, width, text=answer.error or answer.answer)
        for i, answer in enumerate(answers)
        if bad(answer)
    )
    return lines[:5] or answer_refs(facts, view, model)


def _no_errors(facts: EvaluateFacts, view: View, model: Model) -> Check:
    both = (*facts.answers[model].answers, *facts.single[model].answers)
    problems = [f"{a.id}: {a.error or 'error without a text'}" for a in both if is_error(a)]
    apart = [f for report in facts.reports for f in report.batch_failures if f.model == model]
    note = "" if not apart else f"{len(apart)} batches did not fit as one and were taken apart: {apart[0].error[:120]}"
    return check(
        f"no_errors.{model}",
        f"no answer of the {model} was lost to the machinery",
        problems,
        _item_refs(facts, view, model, is_error),
        otherwise=Status.ERROR,
        expected=0,
        actual=0,
        unit="errors",
        derivation=note,
        next_action="mend what the error names (memory: lower batch_size in the ladder), then --resume RUN",
    )


def _scores(facts: EvaluateFacts, view: View, model: Model) -> Check:
    limit = view.expect["max_new_tokens"]

    def differs(answer: Answer) -> bool:
        return bool(rescored(answer, limit))

    answers = (*facts.answers[model].answers, *facts.single[model].answers)
    problems = [f"{a.id}: {rescored(a, limit)}" for a in answers if differs(a)]
    problems += [f"{a.id}: {a.new_tokens} tokens, the limit is {limit}" for a in answers if a.new_tokens > limit]
    return check(
        f"scores.{model}",
        f"every recorded score of the {model} follows from its verbatim answer",
        problems,
        _item_refs(facts, view, model, differs),
        otherwise=Status.FAILED,
        expected=len(answers),
        actual=len(answers),
        unit="scores recomputed",
        next_action="the answers or their scores were edited, or the scorers changed since: run this rung again",
    )


def _timed(facts: EvaluateFacts, view: View, model: Model) -> Check:
    """Latencies are there, and fit into the time that the ranks took."""
    answers, width = facts.answers[model].answers, len(facts.ranks)
    problems = [f"{a.id} has no latency" for a in answers if a.latency_s <= 0 and not is_error(a)]
    for rank, (account, report) in enumerate(zip(facts.ranks, facts.reports, strict=True)):
        share = answers[rank::width]
        total = math.fsum(a.latency_s for a in share)
        took = report.answering_s.get(model, 0.0)
        if took <= 0 and share:
            problems.append(f"rank {rank} did not measure how long it took")
        elif total > took * 1.001:
            problems.append(f"rank {rank}: latencies add up to {total:.3f} s, answering took {took:.3f} s")
        if sum(report.answering_s.values()) > account.ended_at - account.started_at:
            problems.append(f"rank {rank} says that it answered for longer than it ran")
    mean = math.fsum(a.latency_s for a in answers) / len(answers) if answers else None
    return check(
        f"timed.{model}",
        f"the latency of every answer of the {model} was measured",
        problems,
        (*answer_refs(facts, view, model), *rank_refs(facts, view)),
        otherwise=Status.INCONCLUSIVE,
        expected="every latency > 0, and their sum within the ranks' time",
        actual=mean,
        unit="s mean",
    )


def _adapter_loaded(facts: EvaluateFacts, view: View) -> Check:
    problems = []
    for rank, report in enumerate(facts.reports):
        load = report.adapter_load
        if not 0 < load.tensors_in_file == load.tensors_in_model == load.tensors_equal or load.parameters == 0:
            problems.append(
                f"rank {rank}: {load.tensors_in_file} tensors in the file, {load.tensors_in_model} in the model, "
                f"{load.tensors_equal} equal"
            )
    return check(
        "adapter_loaded",
        "every tensor of the adapter's file is in the model, bit for bit",
        problems,
        rank_refs(facts, view),
        otherwise=Status.FAILED,
        expected=facts.reports[0].adapter_load.tensors_in_file,
        actual=facts.reports[0].adapter_load.tensors_equal,
        unit="tensors",
        next_action="the adapter's target modules do not fit this base: compare adapter_config.json with the recipe",
    )


def _adapter_acts(facts: EvaluateFacts, view: View) -> Check:
    """Base and adapter differ in the logits of the first answer token: the adapter is not inert."""
    digests = {answer.id: answer.prompt_digest for answer in facts.answers["adapter"].answers}
    probes = [(rank, probe) for rank, report in enumerate(facts.reports) for probe in report.probes]
    broken = []
    for rank, probe in probes:
        if digests.get(probe.id) != probe.prompt_digest:
            broken.append(f"rank {rank}: probe {probe.id} is of another prompt")
        # Two maxima cannot lie further apart than the largest difference anywhere in the vocabulary.
        if abs(probe.adapter_max - probe.base_max) > probe.max_abs_delta * (1 + 1e-5) + 1e-5:
            broken.append(f"rank {rank}, probe {probe.id}: its figures contradict each other")
        if probe.base_argmax != probe.adapter_argmax and probe.max_abs_delta == 0:
            broken.append(f"rank {rank}, probe {probe.id}: another first token at no difference")
    silent = [rank for rank, report in enumerate(facts.reports) if report.items and not report.probes]
    broken += [f"rank {rank} compared no logits" for rank in silent]
    largest = max((probe.max_abs_delta for _, probe in probes), default=None)
    pairs = zip(facts.answers["base"].answers, facts.answers["adapter"].answers, strict=False)
    same = sum(b.answer == a.answer for b, a in pairs)
    inert = [] if largest else ["base and adapter give identical logits: the adapter does nothing"]
    problems = broken or inert
    note = f"{same} of {len(facts.tasks)} answers are word for word the base's"
    return check(
        "adapter_acts",
        "the adapter was applied: it changes the model's logits",
        problems,
        rank_refs(facts, view),
        otherwise=Status.INCONCLUSIVE if broken or largest is None else Status.FAILED,
        expected="largest |Δ logit| > 0",
        actual=largest,
        unit="logit",
        derivation=note,
        next_action="an adapter whose B matrices are all 0 never learned: see the fine-tune's loss and learning rate",
    )
