"""Fake trainer: it ends as told, and its files belong to this attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, status_of, with_files
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.fake_trainer import METADATA, RUNG

RANK = "raw/fake_trainer/rank-1.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {"seconds": 0.2}, tmp_path_factory.mktemp("fake"))


def test_a_good_end_passes(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED


def test_told_to_fail_it_exits_with_1_says_why_and_leaves_no_metadata(tmp_path: Path) -> None:
    view = collected(RUNG, {"seconds": 0.2, "fail": True}, tmp_path)
    assert status_of(RUNG, view) is not Status.PASSED
    assert METADATA not in view.evidence
    done = json.loads(view.evidence.blob("raw/fake_trainer/done.json").read())
    assert [rank["exit_code"] for rank in done["ranks"]] == [1, 1]
    log = next(b.text() for b in view.evidence.under("raw/fake_trainer") if b.name.endswith(".out"))
    assert "failing on purpose" in log


@pytest.mark.parametrize("key", ["run", "nonce", "job_id", "world_size", "steps", "seconds"])
def test_metadata_of_another_job_fails(good: View, key: str) -> None:
    def change(data: dict[str, Any]) -> None:
        data[key] = "other" if isinstance(data[key], str) else data[key] + 1

    assert failed(RUNG, edited(good, METADATA, change)) == {"fake_trainer.metadata"}


@pytest.mark.parametrize(
    ("key", "value"), [("steps", 0), ("slept_s", 0.0), ("fail", True), ("slept_s", 1e6), ("slept_s", 5.0)]
)
def test_a_rank_that_did_not_do_its_steps_fails(good: View, key: str, value: Any) -> None:
    assert failed(RUNG, edited(good, RANK, lambda d: d["data"].update({key: value}))) == {"fake_trainer.ran"}


def test_a_job_that_left_no_metadata_is_not_proved(good: View) -> None:
    assert status_of(RUNG, with_files(good, {METADATA: None})) is Status.INCONCLUSIVE
