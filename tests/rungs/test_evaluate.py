"""Evaluate: what the ranks recorded is taken apart and put together again; nothing is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from answer_sets import answer, with_counts
from evaluation_files import FOLDER, ITEMS, evaluate_view, reforged
from rungs_harness import edited, failed, judged, status_of, with_files
from surefoot.errors import EvidenceError
from surefoot.evaluation.records import read_answers
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.evaluate import RUNG, allowed_differences

VIEW = evaluate_view(with_counts("base", 0, 8, 10), with_counts("adapter", 29, 8, 10))
RANK0 = f"{FOLDER}/rank-0.json"
PART = f"{FOLDER}/answers-adapter.rank-0.jsonl"


def test_complete_evidence_passes_and_says_the_figures() -> None:
    judgement = judged(RUNG, VIEW)
    assert {check.status for check in judgement.checks} == {Status.PASSED}
    assert len({check.id for check in judgement.checks}) == len(judgement.checks)
    assert judgement.summary == "base 0.36 → adapter 0.94 on 50 tasks"
    assert [c["category"] for c in judgement.details["categories"]] == [
        "classification",
        "closed_qa",
        "json_extraction",
    ]
    assert len(judgement.details["changed"]) == 29
    changed = judgement.details["changed"][0]
    assert changed["base"] == "The sentiment of this review is positive."
    assert (changed["adapter"], changed["base_outcome"], changed["adapter_outcome"]) == ("positive", "wrong", "correct")
    figures = {(m.metric, m.labels["model"]): m.value for m in judgement.measurements if "category" not in m.labels}
    assert figures["accuracy", "base"] == 0.36
    assert figures["accuracy", "adapter"] == 0.94
    assert figures["latency", "adapter"] == pytest.approx(0.02)
    assert figures["throughput", "base"] == pytest.approx(50 / 0.9)


def test_every_check_names_its_evidence_below_the_run() -> None:
    for check in judged(RUNG, VIEW).checks:
        assert all(ref.file.startswith("rungs/evaluate/attempt-001/") for ref in check.evidence)
        assert check.evidence


def row(view: View, name: str, line: int, **changes: object) -> View:
    """One line of an answers file changed, and the rank's report made to fit."""
    lines = view.evidence.blob(name).text().splitlines()
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changes})
    return reforged(view, name, "".join(f"{text}\n" for text in lines).encode())


def test_an_answers_file_that_its_rank_did_not_write_is_refused() -> None:
    data = VIEW.evidence.blob(PART).read().replace(b"0.02", b"0.01")
    with pytest.raises(EvidenceError, match="is not the file that rank 0 wrote"):
        judged(RUNG, with_files(VIEW, {PART: data}))


@pytest.mark.parametrize("model", ["base", "adapter"])
@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"outcome": "correct", "strict": 1.0, "lenient": 1.0, "answer": "no"}, "scores"),
        ({"lenient": 0.5}, "scores"),
        ({"new_tokens": 32, "outcome": "wrong", "strict": 0.0, "lenient": 1.0, "answer": "so positive"}, "scores"),
        ({"new_tokens": 33}, "scores"),
        ({"outcome": "error", "strict": 0.0, "lenient": 0.0, "error": "out of memory"}, "no_errors"),
        ({"error": "out of memory"}, "no_errors"),
        ({"latency_s": 0.0}, "timed"),
        ({"latency_s": 30.0}, "timed"),
        ({"category": "closed_qa"}, "coverage"),
        ({"expected": "so positive"}, "coverage"),
        ({"id": "another"}, "coverage"),
        ({"scorer": "qa"}, "coverage"),
    ],
)
def test_a_forged_answer_is_found_though_its_digest_fits(model: str, changes: dict[str, Any], check: str) -> None:
    view = row(VIEW, f"{FOLDER}/answers-{model}.rank-0.jsonl", 2, **changes)
    assert f"evaluate.{check}.{model}" in failed(RUNG, view)


def test_a_lost_answer_is_an_error_not_a_wrong_answer_and_its_line_is_named() -> None:
    changes = {"outcome": "error", "strict": 0.0, "lenient": 0.0, "answer": "", "error": "CUDA out of memory"}
    judgement = judged(RUNG, row(VIEW, PART, 3, **changes))
    check = next(c for c in judgement.checks if c.id == "evaluate.no_errors.adapter")
    assert check.status is Status.ERROR
    assert (check.evidence[0].line, check.evidence[0].text) == (3, "CUDA out of memory")


@pytest.mark.parametrize("model", ["base", "adapter"])
def test_another_prompt_under_the_same_id_is_found(model: str) -> None:
    view = row(VIEW, f"{FOLDER}/answers-{model}.rank-1.jsonl", 5, prompt_digest="0" * 64)
    assert "evaluate.same_prompts" in failed(RUNG, view)


def test_one_digest_for_all_prompts_is_found() -> None:
    view = VIEW
    for name in sorted(VIEW.evidence.files):
        if "answers-" in name:
            lines = [json.loads(line) for line in view.evidence.blob(name).text().splitlines()]
            rows = [lines[0], *({**line, "prompt_digest": "a" * 64} for line in lines[1:])]
            view = reforged(view, name, "".join(json.dumps(r) + "\n" for r in rows).encode())
    assert "evaluate.same_prompts" in failed(RUNG, view)


@pytest.mark.parametrize("model", ["base", "adapter"])
def test_batching_that_changes_an_answer_fails(model: str) -> None:
    name = next(
        f"{FOLDER}/answers-{model}-batch1.rank-{rank}.jsonl"
        for rank in (0, 1)
        if VIEW.evidence.blob(f"{FOLDER}/answers-{model}-batch1.rank-{rank}.jsonl").text().count("\n") > 1
    )
    first = json.loads(VIEW.evidence.blob(name).text().splitlines()[1])
    category, number = first["id"].rsplit("-", 1)
    other = answer(category, int(number), "something else").canonical()
    check = f"evaluate.batching.{model}"
    assert failed(RUNG, row(VIEW, name, 2, **other)) == {check}
    # In bfloat16 it may differ where two tokens were as good as tied, and only there.
    allowing = {"batch1_allowed_differences": 1, "near_tie": 0.03}
    forged = expecting(row(VIEW, name, 2, **other), **allowing)
    report = name.replace(f"answers-{model}-batch1.", "").replace("jsonl", "json")
    gaps: tuple[tuple[float | None, set[str]], ...] = ((None, {check}), (0.02, set()), (0.04, {check}))
    for gap, problems in gaps:
        assert failed(RUNG, with_gap(forged, report, first["id"], gap)) == problems
    none = expecting(forged, batch1_allowed_differences=0)
    assert failed(RUNG, with_gap(none, report, first["id"], 0.0)) == {check}


def expecting(view: View, **changes: Any) -> View:
    """The view with a plan that expects something else."""
    plan = view.plan.model_copy(update={"expect": {**view.expect, **changes}})
    return replace(view, evidence=replace(view.evidence, plan=plan))


def with_gap(view: View, report: str, item: str, gap: float | None) -> View:
    """The view with a smallest gap of the two best logits where `item` was answered alone."""

    def change(content: Any) -> None:
        for batch in content["data"]["batches"]:
            if batch["alone"] and item in batch["ids"]:
                batch["smallest_gap"] = gap

    return edited(view, report, change)


def rebatched(view: View, size: int, *, failures: bool = False) -> View:
    """The view as if every batch had been one of `size`, by the ranks' own account."""
    for rank in (0, 1):

        def change(content: Any) -> None:
            data = content["data"]
            found = [b for b in data["batches"] if b["alone"]]
            for model in ("base", "adapter"):
                items = [
                    (name, tokens)
                    for b in data["batches"]
                    if b["model"] == model and not b["alone"]
                    for name, tokens in zip(b["ids"], b["prompt_tokens"], strict=True)
                ]
                for start in range(0, len(items), size):
                    part = items[start : start + size]
                    names, tokens = [n for n, _ in part], [t for _, t in part]
                    found.append(
                        {
                            "model": model, "alone": False, "ids": names, "prompt_tokens": tokens, "width": max(tokens),
                            "seconds": 0.02 * len(part),
                        }
                    )  # fmt: skip
                if failures:
                    data["batch_failures"].append({"model": model, "items": 16, "error": "out of memory"})
            data["batches"] = found

        view = edited(view, f"{FOLDER}/rank-{rank}.json", change)
    return view


def test_a_sample_that_was_never_batched_proves_nothing_about_batching() -> None:
    apart = {c.id: c for c in judged(RUNG, rebatched(VIEW, 1, failures=True)).checks}
    for model in ("base", "adapter"):
        assert apart[f"evaluate.batching.{model}"].status is Status.INCONCLUSIVE
        assert "answered alone the first time too" in str(apart[f"evaluate.batching.{model}"].actual)
    assert apart["evaluate.batches"].status is Status.PASSED  # taken apart, and it says so
    unsaid = {c.id: c.status for c in judged(RUNG, rebatched(VIEW, 1)).checks}
    assert unsaid["evaluate.batches"] is Status.INCONCLUSIVE


def test_a_ladder_that_asks_for_batches_of_one_claims_nothing_about_batching() -> None:
    view = expecting(rebatched(VIEW, 1), batch_size=1)
    checks = {c.id: c for c in judged(RUNG, view).checks}
    assert {c.status for c in checks.values()} == {Status.PASSED}
    assert checks["evaluate.batching.base"].claim.startswith("the base was asked one prompt at a time")
    assert failed(RUNG, expecting(VIEW, batch_size=1)) == {"evaluate.batches"}


def test_one_item_left_over_from_full_batches_is_no_fault() -> None:
    view = expecting(rebatched(VIEW, 12), batch_size=12)  # 25 a rank: 12 + 12 + 1
    assert failed(RUNG, view) == set()
    assert failed(RUNG, expecting(rebatched(VIEW, 25), batch_size=25)) == set()


def test_a_sample_without_padding_among_padded_items_proves_nothing_about_padding() -> None:
    view = VIEW
    sampled = {a.id for r in (0, 1) for a in read_part(f"{FOLDER}/answers-base-batch1.rank-{r}.jsonl")}
    for rank in (0, 1):

        def change(content: Any) -> None:
            for batch in content["data"]["batches"]:
                batch["prompt_tokens"] = [30 if n in sampled else 25 for n in batch["ids"]]
                batch["width"] = max(batch["prompt_tokens"])

        view = edited(view, f"{FOLDER}/rank-{rank}.json", change)
    checks = {c.id: c for c in judged(RUNG, view).checks}
    assert checks["evaluate.batching.base"].status is Status.INCONCLUSIVE
    assert checks["evaluate.batching.base"].actual == "no sampled item was padded, and others were"


def read_part(name: str) -> tuple[Any, ...]:
    return read_answers(VIEW.evidence.blob(name).text(), file=name).answers


def test_a_sample_of_nothing_proves_nothing_about_batching() -> None:
    plan = VIEW.plan.model_copy(update={"expect": {**VIEW.expect, "batch1_sample": 0}})
    checks = judged(RUNG, replace(VIEW, evidence=replace(VIEW.evidence, plan=plan))).checks
    assert {c.id: c.status for c in checks}["evaluate.batching.base"] is Status.INCONCLUSIVE


def test_the_allowance_is_nothing_for_float32_and_stated_for_bfloat16() -> None:
    assert allowed_differences("float32", 8)[0] == 0
    allowed, why = allowed_differences("bfloat16", 8)
    assert allowed == 2
    assert "at most a quarter of 8" in why


@pytest.mark.parametrize("sample", range(8))
def test_a_sample_too_small_for_a_share_allows_no_difference(sample: int) -> None:
    allowed, why = allowed_differences("bfloat16", sample)
    assert allowed == 0
    assert "too few" in why


def report_key(key: str, value: Any) -> Callable[[Any], None]:
    """Change rank 0's data: ``a.b`` is a key of a key, and digits are positions."""

    def change(content: Any) -> None:
        *path, last = key.split(".")
        target = content["data"]
        for part in path:
            target = target[int(part)] if part.isdigit() else target[part]
        target[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("tasks_digest", "0" * 64, "prompt_set"),
        ("tasks", 49, "prompt_set"),
        ("base_digest", "0" * 64, "base_identity"),
        ("adapter_digest", "0" * 64, "adapter_identity"),
        ("device.kind", "cuda", "settings"),
        ("device.threads", 2, "settings"),
        ("dtype", "bfloat16", "settings"),
        ("decoding.base.max_new_tokens", 16, "settings"),
        ("decoding.adapter.do_sample", True, "settings"),
        ("decoding.adapter.num_beams", 4, "settings"),
        ("decoding.base.repetition_penalty", 1.3, "settings"),
        ("decoding.adapter.end_tokens", [2, 3], "settings"),
        ("decoding", {}, "settings"),
        ("batches", [], "batches"),
        ("batches", [], "batching.base"),
        ("batches.0.alone", True, "batches"),
        ("batches.0.model", "adapter", "batches"),
        ("batches.0.width", 99, "batches"),
        ("batches.0.prompt_tokens.0", 7, "batches"),
        ("batches.0.prompt_tokens", [7], "batches"),
        ("batches.0.ids.0", "another", "batches"),
        ("batches.0.seconds", 7.0, "batches"),
        ("items", 24, "settings"),
        ("adapter_load.tensors_equal", 41, "adapter_loaded"),
        ("adapter_load.tensors_in_file", 43, "adapter_loaded"),
        ("adapter_load.parameters", 0, "adapter_loaded"),
        ("probes.0.max_abs_delta", 0.0, "adapter_acts"),
        ("probes.0.adapter_max", 99.0, "adapter_acts"),
        ("probes.0.prompt_digest", "0" * 64, "adapter_acts"),
        ("probes.0.id", "another", "adapter_acts"),
        ("probes", [], "adapter_acts"),
        ("answering_s.base", 0.0, "timed.base"),
        ("answering_s.adapter", 0.001, "timed.adapter"),
        ("answering_s.adapter", 1e6, "timed.adapter"),
    ],
)
def test_a_report_that_does_not_fit_is_found(key: str, value: Any, check: str) -> None:
    assert f"evaluate.{check}" in failed(RUNG, edited(VIEW, RANK0, report_key(key, value)))


def test_an_adapter_that_does_nothing_fails() -> None:
    view = VIEW
    for rank in (0, 1):
        name = f"{FOLDER}/rank-{rank}.json"

        def inert(content: Any) -> None:
            for probe in content["data"]["probes"]:
                probe |= {
                    "adapter_argmax": probe["base_argmax"],
                    "adapter_max": probe["base_max"],
                    "max_abs_delta": 0.0,
                }

        view = edited(view, name, inert)
    checks = {c.id: c for c in judged(RUNG, view).checks}
    assert checks["evaluate.adapter_acts"].status is Status.FAILED
    assert "does nothing" in str(checks["evaluate.adapter_acts"].actual)


def test_another_prompt_set_than_the_staged_one_is_found() -> None:
    name = f"{FOLDER}/tasks.jsonl"
    changed = VIEW.evidence.blob(name).read().replace(b"prompt of classification-00", b"prompt of classification-xx")
    assert "evaluate.prompt_set" in failed(RUNG, with_files(VIEW, {name: changed}))


FILES = sorted(name for name in VIEW.evidence.files if name.startswith(FOLDER) and not name.endswith("done.json"))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["deleted", "empty", "cut", "last line gone", "doubled", "NaN"])
def test_no_damaged_file_passes(name: str, damage: str) -> None:
    data = VIEW.evidence.blob(name).read()
    damaged = {
        "deleted": None,
        "empty": b"",
        "cut": data[: len(data) * 2 // 3],
        "last line gone": b"".join(data.splitlines(keepends=True)[:-1]),
        "doubled": data + data,
        "NaN": data.replace(b"0.02", b"NaN", 1) if b"0.02" in data else data.replace(b"0", b"NaN", 1),
    }[damage]
    assert status_of(RUNG, with_files(VIEW, {name: damaged})) is not Status.PASSED


@pytest.mark.parametrize("name", [name for name in FILES if "rank-0" in name])
def test_no_file_of_one_rank_passes_for_the_other_ranks(name: str) -> None:
    other = name.replace("rank-0", "rank-1")
    zero, one = VIEW.evidence.blob(name).read(), VIEW.evidence.blob(other).read()
    assert status_of(RUNG, with_files(VIEW, {other: zero})) is not Status.PASSED
    assert status_of(RUNG, with_files(VIEW, {name: one, other: zero})) is not Status.PASSED


def test_base_and_adapter_answers_swapped_with_fitting_digests_are_refused() -> None:
    other = PART.replace("adapter", "base")
    view = reforged(VIEW, PART, VIEW.evidence.blob(other).read())
    with pytest.raises(EvidenceError, match="model is 'base', asked for was 'adapter'"):
        judged(RUNG, view)


def test_answers_of_another_run_with_fitting_digests_are_refused() -> None:
    with pytest.raises(EvidenceError, match="nonce is 'stale'"):
        judged(RUNG, row(VIEW, PART, 1, nonce="stale"))


def test_a_third_rank_that_was_not_asked_for_is_refused() -> None:
    third = VIEW.evidence.blob(RANK0).read()
    assert status_of(RUNG, with_files(VIEW, {f"{FOLDER}/rank-2.json": third})) is Status.INCONCLUSIVE


def test_the_sample_has_every_item_of_the_prompt_set() -> None:
    assert ITEMS == 50
