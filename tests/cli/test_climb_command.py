"""`climb` and `rung`: what is run, what is kept, and which exit code answers for it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from surefoot.cli import run
from surefoot.engine.claims import Owner
from surefoot.engine.store import load_manifest, write_record
from surefoot.scheduler.processes import start_ticks
from toy_cli import ToyCli, statuses
from toy_ladder import NAMES, WRITES_42, attempts

WRITES_41 = WRITES_42.replace("42", "41")
PASSED = dict.fromkeys(NAMES, "PASSED")


def test_a_climb_that_passes_exits_0_and_leaves_its_reports(toy: ToyCli) -> None:
    said = toy.climb()
    assert said.code == 0, said.err
    names = {path.name for path in toy.only_run.folder.iterdir() if path.is_file()}
    assert names == {"run.json", "events.jsonl", "report.html", "junit.xml", "summary.json"}
    assert said.out.splitlines()[-1] == f"Report: {toy.only_run.report}"


def test_a_failed_rung_exits_1_and_the_last_line_says_how_to_go_on(toy: ToyCli) -> None:
    toy.set(sync=WRITES_41)
    said = toy.climb()
    assert said.code == 1
    words = said.out.splitlines()[-1].partition("go on with: ")[2]
    assert shlex.split(words) == ["surefoot", "climb", "--resume", toy.only_run.folder.name, "--root", str(toy.root)]
    toy.set()
    assert run(shlex.split(words)[1:]) == 0
    assert attempts(toy.only_run) == {"runner": 1, "sync": 2, "scheduler": 1, "precheck": 1}


def test_where_the_root_is_the_default_the_words_do_not_name_it(toy: ToyCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_ROOT", str(toy.root))
    toy.set(sync=WRITES_41)
    assert toy.climb().out.splitlines()[-1].endswith(f"--resume {toy.only_run.folder.name}")


def test_settings_of_the_first_climb_stay_when_a_run_is_taken_up_with_others(toy: ToyCli) -> None:
    assert toy.climb("--set", "sync.time_limit_s=77").code == 0
    said = toy("climb", "--resume", "latest", "--set", "precheck.time_limit_s=66")
    assert said.code == 0
    ladder = load_manifest(toy.only_run).inputs.ladder
    assert (ladder.spec("sync").time_limit_s, ladder.spec("precheck").time_limit_s) == (77, 66)
    assert attempts(toy.only_run) == {**dict.fromkeys(NAMES, 1), "precheck": 2}
    assert "changed since this run began: ladder: rungs[3].time_limit_s: 300 → 66" in said.out
    assert (toy.only_run.inputs / "ladder.yaml").read_text() == toy.ladder.read_text()


def test_settings_of_one_rung_command_stay_for_the_next(toy: ToyCli) -> None:
    first = ("--run", "ci-1", "--ladder", str(toy.ladder), "--set", "runner.time_limit_s=77")
    assert toy("rung", "runner", *first).code == 0
    assert toy("rung", "sync", "--run", "ci-1", "--set", "sync.time_limit_s=66").code == 0
    ladder = load_manifest(toy.only_run).inputs.ladder
    assert [ladder.spec(name).time_limit_s for name in NAMES] == [77, 66, 300, 300]
    assert attempts(toy.only_run) == {"runner": 1, "sync": 1, "scheduler": 0, "precheck": 0}


def test_a_wrong_setting_on_a_resume_names_it_and_changes_nothing(toy: ToyCli) -> None:
    toy.climb()
    before = toy.only_run.manifest.read_bytes()
    said = toy("climb", "--resume", "latest", "--set", "sync.time_limt_s=5")
    assert said.code == 3
    assert "--set sync.time_limt_s=5" in said.err
    assert "did you mean time_limit_s?" in said.err
    assert toy.only_run.manifest.read_bytes() == before


def test_what_passed_is_left_untouched_by_a_resume(toy: ToyCli) -> None:
    toy.climb()
    files = [path for path in (toy.only_run.folder / "rungs").rglob("*") if path.is_file()]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    assert toy("climb", "--resume", "latest").code == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files} == before


def test_only_a_rung_whose_needs_did_not_pass_exits_2_and_says_what_to_climb(toy: ToyCli) -> None:
    said = toy.climb("--only", "sync")
    assert said.code == 2
    words = said.out.splitlines()[-1].partition("Climb up to it: ")[2]
    assert shlex.split(words)[4:] == ["--root", str(toy.root), "--to", "sync"]
    assert run(shlex.split(words)[1:]) == 0


def test_the_exit_code_answers_for_the_rungs_that_were_asked_for(toy: ToyCli) -> None:
    toy.set(scheduler=WRITES_41)
    assert toy.climb().code == 1
    one = toy("climb", "--resume", "latest", "--only", "precheck", "--json")
    assert one.code == 0
    assert one.json["status"] == "FAILED"
    assert one.json["asked"] == {"rungs": ["precheck"], "status": "PASSED", "exit_code": 0, "interrupted": False}
    name = toy.only_run.folder.name
    assert toy("rung", "precheck", "--run", name).code == 0
    assert toy("rung", "scheduler", "--run", name).code == 1


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        (["--to", "sync"], {"runner", "sync"}),
        (["--to", "precheck"], {"runner", "sync", "precheck"}),
        (["--only", "runner"], {"runner"}),
        (["--from", "runner", "--to", "scheduler"], {"runner", "sync", "scheduler"}),
    ],
)
def test_to_from_and_only_run_what_they_say(toy: ToyCli, options: list[str], ran: set[str]) -> None:
    said = toy.climb(*options, "--json")
    assert said.code == 0
    assert {name for name, status in statuses(said.json).items() if status == "PASSED"} == ran
    assert {name for name, number in attempts(toy.only_run).items() if number} == ran
    assert {status for name, status in statuses(said.json).items() if name not in ran} == {"SKIPPED"}


def test_from_runs_what_builds_on_a_rung_once_its_needs_have_passed(toy: ToyCli) -> None:
    assert toy.climb("--from", "sync").code == 2
    assert toy("climb", "--resume", "latest", "--only", "runner").code == 0
    assert toy("climb", "--resume", "latest", "--from", "sync").code == 0
    assert attempts(toy.only_run) == dict.fromkeys(NAMES, 1)


def test_a_dry_run_exits_2_and_makes_nothing(toy: ToyCli) -> None:
    said = toy.climb("--dry-run")
    assert said.code == 2
    assert "precheck  (needs sync)" in said.out
    as_json = toy.climb("--dry-run", "--json", "--only", "sync")
    assert as_json.code == 2
    assert list(as_json.json["plans"]) == ["sync"]
    assert not toy.root.exists()


def test_ci_jobs_that_name_one_run_climb_it_together(toy: ToyCli) -> None:
    blocked = toy("rung", "sync", "--run", "pipe-7", "--ladder", str(toy.ladder))
    assert blocked.code == 2
    assert "sync needs runner, which was not asked for" in blocked.out
    assert [toy("rung", name, "--run", "pipe-7").code for name in NAMES] == [0] * 4
    assert attempts(toy.only_run) == dict.fromkeys(NAMES, 1)
    assert statuses(toy("show", "pipe-7", "--json").json) == PASSED


def test_a_ci_run_is_never_taken_up_by_a_part_of_its_name(toy: ToyCli) -> None:
    for name in ("123", "12"):
        assert toy("rung", "runner", "--run", name, "--ladder", str(toy.ladder)).code == 0
    assert [paths.folder.name for paths in toy.runs] == ["12", "123"]


@pytest.mark.parametrize("name", ["a b", "../x", "", "-x", "é", "x" * 82, "latest"])
def test_a_name_that_no_run_can_have_is_refused(toy: ToyCli, name: str) -> None:
    assert toy("rung", "runner", f"--run={name}", "--ladder", str(toy.ladder)).code == 3
    assert not toy.root.exists()


def test_an_unknown_rung_is_told_with_the_nearest_before_a_run_is_made(toy: ToyCli) -> None:
    for command in (["climb", "--only", "sinc"], ["climb", "--to", "sinc"], ["rung", "sinc", "--run", "r"]):
        said = toy(*command, "--ladder", str(toy.ladder))
        assert said.code == 3
        assert "did you mean 'sync'?" in said.err
    assert not toy.root.exists()


def test_a_run_that_is_being_climbed_is_not_climbed_by_another(toy: ToyCli) -> None:
    toy.set(sync=WRITES_41)
    toy.climb()
    other = Owner.this_process().model_copy(update={"pid": os.getppid(), "start_ticks": start_ticks(os.getppid())})
    write_record(toy.only_run.owner, other)
    said = toy("climb", "--resume", "latest")
    assert said.code == 3
    assert f"is being climbed by process {os.getppid()}" in said.err
    write_record(toy.only_run.owner, other.model_copy(update={"start_ticks": 1}))  # it died
    toy.set()
    assert toy("climb", "--resume", "latest").code == 0
    assert not toy.only_run.owner.exists()


def test_jobs_of_a_rung_that_a_live_process_collects_are_not_ended_by_a_resume(
    toy: ToyCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.climb("--only", "runner")
    attempt = toy.only_run.rung("runner").attempt(1)
    attempt.collection.unlink()
    owner = Owner.this_process().model_copy(update={"pid": os.getppid(), "start_ticks": start_ticks(os.getppid())})
    write_record(attempt.owner, owner)
    reaped: list[Path] = []
    monkeypatch.setattr("surefoot.scheduler.local.reap", lambda folder: bool(reaped.append(folder)) or True)
    said = toy("rung", "runner", "--run", toy.only_run.folder.name)
    assert said.code == 3
    assert "is being collected by process" in said.err
    assert reaped == []


def test_another_rung_of_the_run_leaves_the_result_of_one_in_the_making_to_its_collector(toy: ToyCli) -> None:
    toy.climb("--to", "precheck")
    scheduler = toy.only_run.rung("scheduler")
    attempt = scheduler.attempt(1)
    attempt.folder.mkdir()
    owner = Owner.this_process().model_copy(update={"pid": os.getppid(), "start_ticks": start_ticks(os.getppid())})
    write_record(attempt.owner, owner)
    before = scheduler.result.read_bytes()
    assert toy("rung", "precheck", "--run", toy.only_run.folder.name).code == 0
    assert scheduler.result.read_bytes() == before


def test_a_copy_of_a_run_is_not_resumed_in_place_of_it(toy: ToyCli) -> None:
    toy.climb()
    paths = toy.only_run
    copy = paths.folder.with_name("copy")
    copy.mkdir()
    (copy / "run.json").write_bytes(paths.manifest.read_bytes())
    said = toy("climb", "--resume", "copy")
    assert said.code == 3
    assert "is a copy of run" in said.err


def test_events_that_cannot_be_kept_are_told_and_do_not_end_the_climb(toy: ToyCli) -> None:
    toy.climb("--only", "runner")
    toy.only_run.events.unlink()
    toy.only_run.events.mkdir()
    said = toy("climb", "--resume", "latest")
    assert said.code == 0
    assert "events.jsonl is not kept: Is a directory" in said.out


def test_reports_that_cannot_be_written_exit_4_and_what_was_found_is_told(toy: ToyCli) -> None:
    toy.climb("--only", "runner")
    toy.only_run.report.unlink()
    toy.only_run.report.mkdir()
    said = toy("climb", "--resume", "latest", "--json")
    assert said.code == 4
    assert said.json["error"]["kind"] == "StorageError"
    assert "4 of 4 rungs proved" in said.err


def test_the_manifest_keeps_what_was_typed(toy: ToyCli) -> None:
    toy.climb("--set", "sync.time_limit_s=77")
    command = json.loads(toy.only_run.manifest.read_text())["command"]
    assert command[:2] == ["surefoot", "climb"]
    assert "sync.time_limit_s=77" in command


def test_a_root_has_one_name_however_it_is_given(toy: ToyCli, tmp_path: Path) -> None:
    toy.set(sync=WRITES_41)
    toy.climb()
    toy.set()
    (tmp_path / "link").symlink_to(toy.root)
    for root in ("link", "./x/../root"):
        assert run(["climb", "--resume", "latest", "--root", root]) == 0
    assert attempts(toy.only_run)["runner"] == 1
