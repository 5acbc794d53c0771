"""Reports of ranks count only when they fit the job that they are said to be of."""

from __future__ import annotations

from typing import Any

import pytest

from rungs_harness import collected, edited
from surefoot.errors import EvidenceError
from surefoot.rungs.base import View
from surefoot.rungs.fake_trainer import RUNG, Slept
from surefoot.rungs.judging import said, shorten

JOB = "fake_trainer"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {"seconds": 0.0}, tmp_path_factory.mktemp("judging"))


def test_reports_come_in_order_of_rank(good: View) -> None:
    assert [one.rank for one in said(good.evidence, JOB, Slept)] == [0, 1]


@pytest.mark.parametrize(
    ("name", "key", "value", "word"),
    [
        ("rank-0.json", "started_at", 0, "outside"),
        ("rank-0.json", "ended_at", 4e9, "outside"),
        ("rank-0.json", "pid", 0, "no such process"),
        ("rank-0.json", "host", "", "no such process"),
        ("job.json", "submitted_at", 0, "contradict"),
        ("job.json", "id", "1", "is of job"),
        ("done.json", "started_at", 0, "contradict"),
        ("done.json", "name", "other", "is of job"),
        ("request.json", "steps", 0, "not what the plan asked for"),
    ],
)
def test_a_fact_that_contradicts_another_file_is_named(good: View, name: str, key: str, value: Any, word: str) -> None:
    damaged = edited(good, f"raw/{JOB}/{name}", lambda d: d.update({key: value}))
    with pytest.raises(EvidenceError, match=word):
        said(damaged.evidence, JOB, Slept)


def test_data_swapped_between_ranks_shows(good: View) -> None:
    damaged = edited(good, f"raw/{JOB}/rank-0.json", lambda d: d["data"].update(rank=1))
    with pytest.raises(EvidenceError, match="data of rank 1"):
        said(damaged.evidence, JOB, Slept)


def test_another_job_in_job_json_shows(good: View) -> None:
    damaged = edited(good, f"raw/{JOB}/job.json", lambda d: d["spec"].update(nodes=2))
    with pytest.raises(EvidenceError, match="not the job"):
        said(damaged.evidence, JOB, Slept)


def test_long_lists_are_shortened_with_their_number() -> None:
    assert shorten(["a", "b", "c"], most=2) == "a; b and 1 more"
    assert shorten([]) == ""
