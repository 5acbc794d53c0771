"""Sync: a stale, edited, missing or extra file is caught by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, execute, failed, judged, planned, status_of, with_files
from surefoot.model.run import JobsStep, PushStep
from surefoot.model.status import Status
from surefoot.paths import RootPaths
from surefoot.rungs.base import View
from surefoot.rungs.sync import RUNG

RANK = "raw/sync/rank-0.json"
FILE = "src/surefoot/units.py"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {}, tmp_path_factory.mktemp("sync"))


def test_a_fresh_push_passes(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED


def actual(view: View, identifier: str) -> str:
    return str(next(check.actual for check in judged(RUNG, view).checks if check.id == identifier))


@pytest.mark.parametrize(
    ("damage", "word"), [("edit", "differs"), ("remove", "missing"), ("add", "was not sent"), ("link", "was not sent")]
)
def test_a_real_change_after_the_push_is_named(tmp_path: Path, damage: str, word: str) -> None:
    view = planned(RUNG, {}, tmp_path)
    raw = RootPaths(tmp_path).run("run-1").rung("sync").attempt(1).raw
    raw.mkdir(parents=True)
    push, configuration, jobs = view.plan.steps
    assert isinstance(push, PushStep)
    assert isinstance(jobs, JobsStep)
    execute(push, raw, view.inputs)
    execute(configuration, raw, view.inputs)
    victim = Path(push.destination) / FILE
    if damage == "edit":
        victim.write_text(victim.read_text() + "\n")
    elif damage == "remove":
        victim.unlink()
    elif damage == "link":  # a folder elsewhere that Python imports through
        victim = victim.with_name("plugins")
        victim.symlink_to(tmp_path)
    else:
        victim = victim.with_name("extra.py")
        victim.write_text("")
    execute(jobs, raw, view.inputs)
    files = {p.relative_to(raw.parent).as_posix(): p.read_bytes() for p in raw.rglob("*") if p.is_file()}
    view = with_files(view, files)
    assert failed(RUNG, view) == {"sync.rank0.code", "sync.rank0.imported"}
    assert actual(view, "sync.rank0.code") == f"src/surefoot/{victim.name} {'is ' * (damage == 'remove')}{word}"


def test_an_edited_configuration_is_named(good: View) -> None:
    def edit(report: dict[str, Any]) -> None:
        report["data"]["trees"]["configuration"]["files"]["config/recipe.json"] = "0" * 64

    assert actual(edited(good, RANK, edit), "sync.rank0.configuration") == "config/recipe.json differs"


def test_running_an_installed_copy_instead_fails(good: View) -> None:
    damaged = edited(good, RANK, lambda d: d["data"].update(imported_from="/usr/lib/python3/surefoot/__init__.py"))
    assert failed(RUNG, damaged) == {"sync.rank0.imported"}


def test_running_from_another_folder_or_other_content_fails(good: View) -> None:
    for change in ({"imported_from": "/usr/lib/python3/surefoot"}, {"code_digest": "0" * 64}):
        assert failed(RUNG, edited(good, RANK, lambda d, c=change: d.update(c))) == {"sync.rank0.imported"}  # type: ignore[misc]


def test_the_same_file_left_out_on_both_sides_does_not_hide(good: View) -> None:
    damaged = edited(good, RANK, lambda d: d["data"]["trees"]["code"]["files"].pop(FILE))
    damaged = edited(damaged, "raw/push-code.json", lambda d: d["files"].pop(FILE))
    assert failed(RUNG, damaged) == {"sync.code.sent", "sync.rank0.code"}


def test_a_push_to_another_folder_fails(good: View) -> None:
    assert failed(RUNG, edited(good, "raw/push-code.json", lambda d: d.update(destination="/elsewhere"))) == {
        "sync.code.sent"
    }


@pytest.mark.parametrize(
    "name", ["raw/push-code.json", RANK, "raw/sync/job.json", "raw/sync/done.json", "raw/sync/request.json"]
)
def test_without_one_of_its_files_nothing_is_proved(good: View, name: str) -> None:
    assert status_of(RUNG, with_files(good, {name: None})) is Status.INCONCLUSIVE
