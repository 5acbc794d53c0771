"""Gate: the policy's verdict on the evaluation's own files, one check for each rule."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from answer_sets import SEED_POLICY, with_counts
from evaluation_files import FOLDER, evaluate_view, gate_view, reforged
from rungs_harness import failed, judged, status_of
from surefoot.errors import EvidenceError
from surefoot.gates.gate import RULES
from surefoot.model.status import Status
from surefoot.model.verdict import Decision
from surefoot.rungs.base import View
from surefoot.rungs.gate import CLAIMS, NEXT, RUNG

BASE = with_counts("base", 0, 8, 10)
EVALUATED = evaluate_view(BASE, with_counts("adapter", 29, 8, 10))
VIEW = gate_view(EVALUATED)


def test_go_is_passed_with_a_check_for_each_rule() -> None:
    judgement = judged(RUNG, VIEW)
    assert {check.status for check in judgement.checks} == {Status.PASSED}
    rules = ["gate.coverage", "gate.evidence", *(f"gate.{rule}" for rule in RULES), "gate.verdict"]
    assert [check.id for check in judgement.checks] == rules
    assert judgement.verdict is not None
    assert judgement.verdict.decision is Decision.GO
    assert judgement.summary == "GO: 29 gained, 0 lost of 50, a formatting win"
    floor = next(check for check in judgement.checks if check.id == "gate.min_machine_accuracy")
    assert (floor.expected, floor.actual, floor.unit) == (0.8, 0.94, "share")
    assert floor.evidence[0].file == f"rungs/evaluate/attempt-001/{FOLDER}/answers-base.rank-0.jsonl"


def test_every_rule_has_a_claim_and_a_next_action() -> None:
    assert set(CLAIMS) == set(NEXT) == {"evidence", *RULES}


def test_no_go_is_failed_and_names_the_rule() -> None:
    view = gate_view(evaluate_view(BASE, with_counts("adapter", 0, 8, 10)))
    assert failed(RUNG, view) == {"gate.min_machine_accuracy", "gate.verdict"}
    assert status_of(RUNG, view) is Status.FAILED


def test_a_category_that_lost_is_a_warning_beside_go() -> None:
    judgement = judged(RUNG, gate_view(evaluate_view(BASE, with_counts("adapter", 30, 8, 7))))
    assert judgement.verdict is not None
    assert judgement.verdict.decision is Decision.GO
    assert judgement.details["warnings"] == list(judgement.verdict.warnings)
    assert judgement.summary == "GO: 30 gained, 3 lost of 50, a formatting win; worse: json_extraction 10 → 7"


def test_it_runs_nothing() -> None:
    assert VIEW.plan.steps == ()


def test_it_judges_by_the_policy_of_today() -> None:
    strict = SEED_POLICY.model_copy(update={"min_machine_accuracy": 1.0})
    view = replace(VIEW, inputs=VIEW.inputs.model_copy(update={"policy": strict}))
    assert failed(RUNG, view) == {"gate.min_machine_accuracy", "gate.verdict"}
    assert status_of(RUNG, view) is Status.FAILED


def test_without_an_evaluation_nothing_is_decided() -> None:
    with pytest.raises(EvidenceError, match="'evaluate' must stand below"):
        judged(RUNG, replace(VIEW, needs={}))


def test_an_evaluation_of_fewer_items_than_planned_is_inconclusive() -> None:
    plan = EVALUATED.plan.model_copy(update={"expect": {**EVALUATED.expect, "tasks": 51}})
    view = gate_view(replace(EVALUATED, evidence=replace(EVALUATED.evidence, plan=plan)))
    assert failed(RUNG, view) == {"gate.coverage"}


def forged(name: str, line: int, **changes: object) -> View:
    """The gate above an evaluation in which one line was changed, digests made to fit."""
    lines = EVALUATED.evidence.blob(name).text().splitlines()
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changes})
    return gate_view(reforged(EVALUATED, name, "".join(f"{text}\n" for text in lines).encode()))


@pytest.mark.parametrize("model", ["base", "adapter"])
@pytest.mark.parametrize(
    "changes",
    [
        {"strict": 0.0},
        {"outcome": "error"},
        {"answer": "edited"},
        {"expected": "edited"},
        {"prompt_digest": "0" * 64},
        {"category": "edited"},
        {"id": "edited"},
        {"error": "lost"},
        {"latency_s": None},
        {"latency_s": float("nan")},
    ],
)
def test_a_forged_line_never_passes_the_gate(model: str, changes: dict[str, object]) -> None:
    # Line 17 of a part holds a closed-QA item that both answer right.
    name = f"{FOLDER}/answers-{model}.rank-0.jsonl"
    assert json.loads(EVALUATED.evidence.blob(name).text().splitlines()[16])["outcome"] == "correct"
    assert status_of(RUNG, forged(name, 17, **changes)) is not Status.PASSED
