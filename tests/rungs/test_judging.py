"""Reports of ranks count only when they fit the job that they are said to be of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, package_of, planned
from surefoot.connection.local import LocalConnection
from surefoot.errors import EvidenceError
from surefoot.model.run import JobsStep
from surefoot.paths import RootPaths
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
        ("rank-0.json", "code_digest", "0" * 64, "ran other code"),
        ("rank-1.json", "imported_from", "/usr/lib/python3/surefoot", "ran other code .* from /usr/lib"),
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


def without_the_pushed_code(root: Path, change: Callable[[Path], None]) -> View:
    """A job of which the pushed code was changed after it had been verified."""
    view = planned(RUNG, {"seconds": 0.0}, root)
    code = RootPaths(root).pushed(view.inputs.code_digest)
    LocalConnection().put_tree(package_of(view.inputs).tree(view.inputs.code_digest).files, code)
    change(code)
    return collected(RUNG, {"seconds": 0.0}, root)


def test_a_job_whose_code_was_deleted_and_that_runs_the_installed_package_proves_nothing(tmp_path: Path) -> None:
    def delete(code: Path) -> None:
        shutil.rmtree(code / "src")

    with pytest.raises(EvidenceError, match=f"asked for was .* from {tmp_path}/jobs"):
        said(without_the_pushed_code(tmp_path, delete).evidence, JOB, Slept)


def test_a_job_whose_code_was_edited_after_the_push_proves_nothing(tmp_path: Path) -> None:
    def edit(code: Path) -> None:
        with (code / "src" / "surefoot" / "node" / "fake_trainer.py").open("a") as file:
            file.write("\n")

    with pytest.raises(EvidenceError, match="ran other code"):
        said(without_the_pushed_code(tmp_path, edit).evidence, JOB, Slept)


def test_a_root_behind_a_link_is_no_other_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert len(said(collected(RUNG, {"seconds": 0.0}, tmp_path / "link").evidence, JOB, Slept)) == 2


def test_a_plan_that_does_not_say_which_code_runs_proves_nothing(good: View) -> None:
    (job,) = good.plan.jobs
    nameless = job.model_copy(update={"env": {k: v for k, v in job.env.items() if k != "SUREFOOT_CODE"}})
    plan = good.plan.model_copy(update={"steps": (JobsStep(jobs=(nameless,)),)})
    with pytest.raises(EvidenceError, match="which code"):
        said(replace(good.evidence, plan=plan), JOB, Slept)


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
