"""Judging again names every result that is not the recorded one, and none that an older version wrote without `nodes`."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot.cli.runs import _Judged, _same
from surefoot.model.check import Check, Evidence
from surefoot.model.run import Judgement, RungResult
from surefoot.model.status import Status, combine


def check(number: int, *nodes: str, **other: Any) -> Check:
    told = {
        "id": f"precheck.node{number}.memory", "claim": f"node {number} has 64 GiB", "status": Status.FAILED, "actual": 32,
        "evidence": (Evidence(file=f"raw/precheck/rank-{number}.json"),), "nodes": nodes, "next_action": "look",
    }  # fmt: skip
    return Check.model_validate(told | other)


def result(*checks: Check, **other: Any) -> RungResult:
    return RungResult(
        rung="precheck",
        title="Pre-check",
        proves="…",
        status=combine(each.status for each in checks),
        judgement=Judgement(checks=checks, **other),
    )


NOW = result(check(0, "n1"), check(1, "n2"), summary="2 nodes")


def test_the_same_result_is_the_same() -> None:
    assert _same(result(check(0, "n1"), check(1, "n2"), summary="2 nodes"), NOW)
    mixed = result(check(0, status=Status.PASSED), check(1, "n2"))
    assert _same(mixed, mixed.model_copy())


def test_a_version_that_named_no_nodes_as_data_recorded_the_same_result() -> None:
    assert _same(result(check(0), check(1), summary="2 nodes"), NOW)
    assert _same(RungResult.model_validate_json(result(check(0), check(1), summary="2 nodes").model_dump_json()), NOW)


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        result(check(0, "n1"), check(1), summary="2 nodes"),
        result(check(0, "n1"), check(1, "n3"), summary="2 nodes"),
        result(check(0, "n2"), check(1, "n1"), summary="2 nodes"),
        result(check(0), check(1, actual=33), summary="2 nodes"),
        result(check(0), check(1, status=Status.PASSED), summary="2 nodes"),
        result(check(0), summary="2 nodes"),
        result(check(1), check(0), summary="2 nodes"),
        result(check(0), check(1), summary="3 nodes"),
        result(check(0), check(1), summary="2 nodes").model_copy(update={"attempt": 2}),
    ],
    ids=[
        "none",
        "one node gone",
        "another node",
        "exchanged",
        "actual",
        "status",
        "a check gone",
        "order",
        "summary",
        "attempt",
    ],
)
def test_whatever_else_differs_is_told_with_both_statuses(recorded: RungResult | None) -> None:
    judged = _Judged([NOW], {"precheck": recorded} if recorded else {}, "")
    assert judged.different == ["precheck"]
    before = recorded.status if recorded else "not recorded"
    assert judged.differences() == [f"differs from the recorded result: precheck: {before} → FAILED"]


def test_nodes_that_judging_no_longer_names_are_a_difference() -> None:
    assert not _same(NOW, result(check(0), check(1), summary="2 nodes"))
