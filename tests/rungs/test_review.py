"""Review: the chain from base to verdict holds link by link, and a person still decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import recorded
from candidate import STEPS, falling, review_view
from evaluation_files import FOLDER
from rungs_harness import failed, judged, status_of
from surefoot.errors import EvidenceError
from surefoot.evidence import Blob
from surefoot.model.status import Status
from surefoot.model.verdict import CategoryCount
from surefoot.rungs.base import View
from surefoot.rungs.review import RUNG
from surefoot.rungs.review_proposal import half_width, items_needed, proposals


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return review_view(tmp_path_factory.mktemp("candidate"))


def test_a_chain_that_holds_is_ready_for_a_person_and_not_approved(view: View) -> None:
    judgement = judged(RUNG, view)
    assert {c.id: c.status for c in judgement.checks if c.status is not Status.PASSED} == {}
    assert judgement.summary.startswith("ready for a person to decide: ")
    assert judgement.details["decision"] == "pending human review"
    assert len(judgement.details["changed"]) == 30
    assert [c.id for c in judgement.checks] == ["review.one_run", "review.lineage"]


def test_the_lineage_names_every_digest_that_the_decision_stands_on(view: View) -> None:
    lineage = judged(RUNG, view).details["lineage"]
    wanted = {
        "run",
        "base",
        "train",
        "evaluate",
        "recipe",
        "code",
        "configuration",
        "adapter",
        "answers",
        "policy",
        "verdict",
        "attempts",
    }
    assert set(lineage) == wanted
    for name in wanted - {"run", "answers", "attempts"}:
        assert len(lineage[name]["digest"]) == 64
    assert len(lineage["answers"]) == 8
    for name, digest in lineage["answers"].items():
        blob = view.needs["evaluate"].blob(name.removeprefix("rungs/evaluate/attempt-001/"))
        assert blob.sha256 == digest


def changed(view: View, rung: str, file: str, change: Callable[[Any], None]) -> View:
    """The view with one JSON file of a rung below changed."""
    evidence = view.needs[rung]
    content = json.loads(evidence.blob(file).read())
    change(content)
    return replaced(view, rung, file, json.dumps(content).encode())


def replaced(view: View, rung: str, file: str, data: bytes) -> View:
    evidence = view.needs[rung]
    files = {**evidence.files, file: Blob(name=file, data=data)}
    return replace(view, needs={**view.needs, rung: replace(evidence, files=files)})


@pytest.mark.parametrize(
    ("rung", "file", "key", "link"),
    [
        ("finetune", "raw/finetune/rank-0.json", "base_digest", "base, trained on by rank 0"),
        ("finetune", "raw/finetune/rank-1.json", "data_digest", "training data, trained on by rank 1"),
        ("finetune", "raw/finetune/rank-1.json", "adapter_digest", "adapter, saved, as rank 1"),
        ("evaluate", f"{FOLDER}/rank-0.json", "base_digest", "base, evaluated by rank 0"),
        ("evaluate", f"{FOLDER}/rank-1.json", "adapter_digest", "adapter, evaluated by rank 1"),
    ],
)
def test_a_broken_link_is_named(view: View, rung: str, file: str, key: str, link: str) -> None:
    broken = changed(view, rung, file, lambda content: content["data"].update({key: "0" * 64}))
    assert lineage_of(broken).startswith(link)
    assert lineage_of(broken).endswith(": 0000000000000000")


def lineage_of(view: View) -> str:
    """What the one check that failed found."""
    (check,) = [c for c in judged(RUNG, view).checks if c.status is not Status.PASSED]
    assert (check.id, check.status) == ("review.lineage", Status.FAILED)
    return str(check.actual)


def test_an_adapter_whose_file_changed_is_not_the_one_that_was_judged(view: View) -> None:
    broken = replaced(view, "finetune", "raw/finetune/adapter/adapter_model.safetensors", b"other weights")
    assert "adapter, verdict: " in lineage_of(broken)


def test_another_prompt_set_than_the_staged_one_is_named(view: View) -> None:
    name = f"{FOLDER}/tasks.jsonl"
    data = view.needs["evaluate"].blob(name).read()
    other = replaced(view, "evaluate", name, data.replace(b"review", b"Review", 1))
    assert lineage_of(other).startswith("held-out set, copied beside the answers: ")


def test_another_recipe_than_this_runs_is_named(view: View) -> None:
    recipe = view.inputs.recipe.model_copy(update={"seed": 99})
    other = replace(view, inputs=view.inputs.model_copy(update={"recipe": recipe}))
    assert lineage_of(other).startswith("recipe, training log: ")


def test_judging_a_review_reads_no_file(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = RUNG.read(view)

    def refuse(blob: Blob) -> bytes:
        raise AssertionError(f"{blob.name} is read while judging")

    monkeypatch.setattr(Blob, "read", refuse)
    monkeypatch.setattr(Blob, "sha256", property(refuse))
    assert {c.status for c in RUNG.judge(facts, view).checks} == {Status.PASSED}


@pytest.mark.parametrize("rung", ["cache", "finetune", "evaluate", "gate"])
def test_evidence_of_another_run_or_attempt_is_named(view: View, rung: str) -> None:
    evidence = view.needs[rung]
    plan = evidence.plan.model_copy(update={"attempt": 2})
    later = replace(view, needs={**view.needs, rung: replace(evidence, plan=plan)})
    assert failed(RUNG, later) == {"review.one_run"}
    assert status_of(RUNG, replace(view, needs={k: v for k, v in view.needs.items() if k != rung})) is not Status.PASSED


def test_a_loss_curve_with_a_hole_cannot_be_read(view: View) -> None:
    log = "raw/finetune/train.jsonl"
    lines = view.needs["finetune"].blob(log).text().splitlines(keepends=True)
    with pytest.raises(EvidenceError):
        judged(RUNG, replaced(view, "finetune", log, "".join(lines[:-1]).encode()))


def count(category: str, items: int, base: int, adapter: int) -> CategoryCount:
    return CategoryCount(
        category=category, items=items, base_correct=base, adapter_correct=adapter, base_lenient=base,
        adapter_lenient=adapter, gained=max(0, adapter - base), lost=max(0, base - adapter),
    )  # fmt: skip


RECIPE = recorded.demo_recipe(learning_rate=1e-2, epochs=3)
GAIN = (count("classification", 30, 0, 20),)


def proposed(losses: list[float], counts: tuple[CategoryCount, ...]) -> dict[str, tuple[str, str]]:
    return {p["parameter"]: (p["proposed"], p["why"]) for p in proposals(RECIPE, losses, counts)}


def test_a_loss_that_still_falls_asks_for_more_epochs() -> None:
    found = proposed([2.0 - 0.02 * i for i in range(STEPS)], GAIN)
    assert found["epochs"][0] == "6"
    assert "still falling" in found["epochs"][1]


def test_a_loss_that_rises_asks_for_a_lower_rate() -> None:
    found = proposed([1.0 + 0.02 * i for i in range(STEPS)], GAIN)
    assert found["learning_rate"][0] == "0.0033"
    assert "rising" in found["learning_rate"][1]


def test_a_settled_loss_and_a_plain_gain_ask_for_nothing() -> None:
    assert set(proposed(falling(), GAIN)) == {"(none)"}


def test_noise_is_not_taken_for_a_trend() -> None:
    wobbling = [1.0 + (0.4 if i % 2 else -0.4) + (0.06 if i >= 72 else 0) for i in range(STEPS)]
    assert set(proposed(wobbling, GAIN)) == {"(none)"}


def test_a_lost_category_asks_for_rows_of_it_and_a_lower_rate() -> None:
    found = proposed(falling(), (*GAIN, count("json_extraction", 10, 10, 7)))
    assert "fell from 10 to 7 of 10" in found["training rows of json_extraction"][1]
    assert found["learning_rate"][0] == "0.0033"


def test_an_inert_adapter_asks_for_a_higher_rate() -> None:
    flat = [2.0 + 0.01 * ((i * 7) % 5 - 2) for i in range(STEPS)]
    assert proposed(flat, (count("classification", 30, 0, 0),))["learning_rate"][0] == "0.1"


def test_near_the_ceiling_more_items_are_asked_for_with_their_number() -> None:
    found = proposed(falling(), (count("classification", 50, 18, 47),))
    number, why = found["evaluation items"]
    assert int(number) == items_needed(47, 50)
    assert "± 0.08" in why


def test_the_number_of_items_gives_the_resolution_that_it_promises() -> None:
    # By hand: ñ = 50 + 3.84, p = (47 + 1.92) / ñ = 0.9086, 1.96 · √(0.9086 · 0.0914 / 53.84) = 0.0770;
    # at one half 1.96² · 0.25 / 0.02² = 2401.
    assert items_needed(5000, 10000) == 2401
    assert half_width(47, 50) == pytest.approx(0.0770, abs=1e-4)
    assert items_needed(50, 50) > 50
    assert half_width(round(2401 / 2), 2401) == pytest.approx(0.02, abs=1e-4)


def test_a_short_curve_says_nothing_about_its_trend() -> None:
    assert set(proposed([2.0, 1.0, 0.5], GAIN)) == {"(none)"}
