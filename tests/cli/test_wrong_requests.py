"""What goes wrong is told in words, with the exit code of its kind, and never as a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.cli import run
from toy_cli import ToyCli

SUREFOOT = [sys.executable, "-m", "surefoot"]


def test_an_unknown_option_or_command_exits_3_with_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, near in ((["climb", "--resum", "x"], "--resume"), (["clmb"], "climb"), (["judge"], "RUN")):
        assert run(arguments) == 3
        out, err = capfd.readouterr()
        assert out == ""
        assert near in err


def test_json_is_all_there_is_on_standard_output_when_something_is_wrong(toy: ToyCli) -> None:
    for arguments, code in (
        (["climb", "--json", "--bogus"], 3),
        (["climb", "--json", "--only", "nothing"], 3),
        (["climb", "--json", "--ladder", "nothing.yaml"], 3),
        (["show", "--json"], 3),
        (["judge", "nothing", "--json"], 3),
        (["report", "nothing", "--json"], 3),
        (["clmb", "--json"], 3),
    ):
        said = toy(*arguments)
        assert (said.code, said.json["exit_code"]) == (code, code), arguments
        assert said.json["error"]["message"]
        assert said.err


def test_json_of_every_command_is_json_and_nothing_else(toy: ToyCli) -> None:
    assert toy.climb("--json").json["asked"]["exit_code"] == 0
    assert toy("show", "--json").json["status"] == "PASSED"
    assert toy("judge", "latest", "--json").json["differs_from_recorded"] == []
    assert [row["status"] for row in toy("runs", "--json").json["runs"]] == ["PASSED"]
    assert Path(toy("report", "--json").json["report"]) == toy.only_run.report
    assert toy("rung", "sync", "--run", toy.only_run.folder.name, "--json").json["asked"]["rungs"] == ["sync"]


def test_a_run_that_is_not_there_is_told_with_the_nearest(toy: ToyCli) -> None:
    toy("rung", "runner", "--run", "pipeline-1234", "--ladder", str(toy.ladder))
    for command in (["show"], ["judge"], ["report"], ["climb", "--resume"]):
        said = toy(*command, "pipelin-1243")
        assert said.code == 3
        assert "nearest: pipeline-1234" in said.err
        assert toy(*command, "x" * 5000).code == 3
        assert toy(*command, "").code == 3


def test_part_of_a_name_that_fits_several_runs_is_refused(toy: ToyCli) -> None:
    for name in ("ci-1", "ci-2"):
        toy("rung", "runner", "--run", name, "--ladder", str(toy.ladder))
    said = toy("show", "ci")
    assert said.code == 3
    assert "'ci' fits 2 runs: ci-1, ci-2" in said.err


def _garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00garbage")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text(path.read_text()[:200]),
    "no text": _garbage,
    "another thing": lambda path: path.write_text("[1, 2]"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "a folder": _folder,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_exits_3_and_other_runs_stay_listed(toy: ToyCli, damage: str) -> None:
    toy.climb("--only", "runner")
    toy("rung", "runner", "--run", "sound", "--ladder", str(toy.ladder))
    manifest = next(paths.manifest for paths in toy.runs if paths.folder.name != "sound")
    DAMAGES[damage](manifest)
    for command in ("show", "judge", "report"):
        said = toy(command, manifest.parent.name)
        assert said.code == 3
        assert "Traceback" not in said.err
    assert toy("climb", "--resume", manifest.parent.name).code == 3
    rows = {row["run"]: row["status"] for row in toy("runs", "--json").json["runs"]}
    # One rung of four: the run as a whole is not proved.
    assert rows == {manifest.parent.name: "UNREADABLE", "sound": "INCONCLUSIVE"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["result.json", "attempt-001/plan.json", "attempt-001/collection.json"])
def test_a_damaged_rung_is_no_crash_and_no_pass_and_a_resume_mends_it(toy: ToyCli, name: str, damage: str) -> None:
    toy.climb("--to", "sync")
    rung = toy.only_run.rung("sync").folder
    DAMAGES[damage](rung / name)
    judged = toy("judge", "latest", "--json")
    assert (judged.code, toy("show").code) == (2, 2)
    if name == "result.json":
        assert "judged from evidence alone" in toy("show").out
    else:
        assert next(row for row in judged.json["rungs"] if row["rung"] == "sync")["status"] == "INCONCLUSIVE"
    if (rung / "result.json").is_dir():
        (rung / "result.json").rmdir()
    assert toy("climb", "--resume", "latest", "--to", "sync").code == 0


def test_a_run_folder_without_anything_but_its_manifest_is_inconclusive(toy: ToyCli) -> None:
    toy.climb()
    shutil.rmtree(toy.only_run.folder / "rungs")
    assert toy("show").code == 2
    assert toy("judge", "latest").code == 2
    assert toy("climb", "--resume", "latest").code == 0


def test_a_run_folder_that_a_killed_climb_left_empty_is_told_of(toy: ToyCli) -> None:
    (toy.root / "runs" / "ci").mkdir(parents=True)
    said = toy("rung", "runner", "--run", "ci", "--ladder", str(toy.ladder))
    assert said.code == 3
    assert "remove that folder" in said.err


def test_a_root_that_cannot_be_made_exits_4(toy: ToyCli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in ("file", "file/below", "/proc/nothing/x"):
        for command in (["climb"], ["rung", "runner", "--run", "x"]):
            assert run([*command, "--ladder", str(toy.ladder), "--root", root]) == 4


@pytest.mark.parametrize("root", ["a\nb", "a\x1b[31mb", "a\udcffb", "a\x00b"])
def test_a_root_that_records_and_logs_cannot_hold_is_refused(
    root: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["climb"], ["rung", "runner", "--run", "x"], ["show"], ["runs"], ["judge", "x"]):
        assert run([*command, "--root", root]) == 3
        assert "line break, a control character" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.slow
@pytest.mark.parametrize("size", [f"{kib}k" for kib in (4, 8, 16, 24, 40, 56, 72, 96, 128, 256, 1024)])
def test_on_a_disk_that_fills_up_a_climb_ends_with_4_and_says_so(tmp_path: Path, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        done = subprocess.run(
            [*SUREFOOT, "climb", "--to", "scheduler", "--json", "--root", str(disk / "root")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    told = json.loads(done.stdout)
    assert told.get("exit_code") == 4


def test_a_reader_that_hangs_up_changes_neither_exit_code_nor_what_is_recorded(toy: ToyCli) -> None:
    toy.climb("--only", "sync")  # BLOCKED: exit 2
    for command in (["show"], ["show", "--json"], ["judge", "latest"]):
        with subprocess.Popen(
            [*SUREFOOT, *command, "--root", str(toy.root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(60) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_no_success(toy: ToyCli) -> None:
    toy.climb("--only", "runner")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SUREFOOT, "runs", "--root", str(toy.root)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_of_ours_is_4_and_not_the_1_that_means_disproved(toy: ToyCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.cli.climb.select", lambda *_: 1 / 0)
    said = toy.climb("--json")
    assert said.code == 4
    assert "this is a fault of Surefoot's" in said.err
    assert said.json["error"]["kind"] == "ZeroDivisionError"


def test_a_manifest_whose_ladder_was_cut_is_not_judged_as_if_it_were_whole(toy: ToyCli) -> None:
    toy.climb()
    manifest = json.loads(toy.only_run.manifest.read_text())
    del manifest["inputs"]["ladder"]["rungs"][1:]
    toy.only_run.manifest.write_text(json.dumps(manifest))
    said = toy("judge", "latest")
    assert said.code == 3
    assert "whose digest it records" in said.err


def test_a_result_edited_to_say_passed_is_not_shown_as_one(toy: ToyCli) -> None:
    toy.climb("--set", "runner.time_limit_s=300")
    for folder in (toy.only_run.folder / "rungs").glob("*/attempt-*"):
        shutil.rmtree(folder)
    for command in ("show", "judge", "report"):
        said = toy(command, "latest")
        assert said.code == 2
        assert "differs from the recorded result" in said.out


def test_no_message_rules_the_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    assert run(["nccl", "read", "q\x1b[31m\u202e"]) == 3
    said = capfd.readouterr().err
    assert "q\ufffd[31m\ufffd: No such file" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("error", [OSError(28, "full", "a\x1b[31m"), RuntimeError("b\x1b[31m")])
def test_nor_does_a_fault(error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.setattr("surefoot.cli.cli.main", fail)
    assert run(["runs"]) == 4
    said = capfd.readouterr().err
    assert "\ufffd[31m" in said
    assert "\x1b" not in said
