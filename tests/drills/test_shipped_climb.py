"""`surefoot climb` as it comes out of the box, and every command that looks at what it left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from drilling import Drill, attempts, statuses

pytestmark = [pytest.mark.slow]

RUNGS = (
    "runner", "sync", "scheduler", "precheck", "mesh", "storage", "collectives", "compute", "cache", "ddp", "fake_trainer",
    "finetune", "evaluate", "gate", "review",
)  # fmt: skip


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Drill, str]:
    """The shipped ladder, climbed once, and what the terminal was told."""
    # A root with all that a shell or a parser could stumble over.
    drill = Drill(tmp_path_factory.mktemp("drill") / "a 'root' \"of\" $(touch owned) `x`; & ünïcödé ☃ %s {y} [z] #1")
    done = drill.run("climb")
    assert done.returncode == 0, done.stderr + done.stdout
    assert drill.left_over() == {}
    return drill, done.stdout


def test_every_rung_passes_at_the_first_attempt(climbed: tuple[Drill, str]) -> None:
    drill, _ = climbed
    assert attempts(drill.run_folder()) == dict.fromkeys(RUNGS, 1)
    assert statuses(drill.json("show")) == dict.fromkeys(RUNGS, "PASSED")


def test_a_root_full_of_shell_signs_runs_nothing(climbed: tuple[Drill, str]) -> None:
    drill, _ = climbed
    assert list(drill.root.parent.iterdir()) == [drill.root]
    assert not list(drill.root.rglob("owned"))


def test_the_files_for_people_and_programs_are_there(climbed: tuple[Drill, str]) -> None:
    drill, out = climbed
    run = drill.run_folder()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"], summary["decision"]) == ("PASSED", 0, "GO")
    suites = ET.parse(run / "junit.xml").getroot()  # noqa: S314 - ours
    assert int(suites.attrib["tests"]) > 50
    assert int(suites.attrib["failures"]) == int(suites.attrib["errors"]) == 0
    assert "PASSED" in (run / "report.html").read_text()
    kinds = [json.loads(line)["kind"] for line in (run / "events.jsonl").read_text().splitlines()]
    assert (kinds.count("rung_started"), kinds.count("rung_ended")) == (len(RUNGS), len(RUNGS))
    assert out.splitlines()[-1] == f"Report: {run / 'report.html'}"
    assert [line for line in out.splitlines() if len(line) > 400] == []


def test_judging_again_is_identical_here_and_in_a_copy_elsewhere(climbed: tuple[Drill, str], tmp_path: Path) -> None:
    drill, _ = climbed
    run = drill.run_folder()
    copy = tmp_path / "somewhere else" / "copied"
    shutil.copytree(run, copy)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    here, again = drill.run("judge", "latest"), drill.run("judge", run.name)
    there = Drill(tmp_path / "no root").run("judge", str(copy))
    assert here.returncode == 0
    assert here.stdout.splitlines()[-1] == "identical to the recorded results"
    assert (again.returncode, again.stdout) == (there.returncode, there.stdout) == (0, here.stdout)
    told = [Drill(tmp_path / "no root").json("judge", str(folder)) for folder in (run, copy)]
    assert told[0] == told[1]
    assert told[0]["differs_from_recorded"] == []
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_copy_that_was_touched_does_not_judge_identical(climbed: tuple[Drill, str], tmp_path: Path) -> None:
    drill, _ = climbed
    copy = tmp_path / "copied"
    shutil.copytree(drill.run_folder(), copy)
    answers = next(copy.glob("rungs/evaluate/attempt-001/raw/*/*.jsonl"))
    answers.write_bytes(answers.read_bytes()[:-20])
    judged = Drill(tmp_path / "no root").json("judge", str(copy), code=2)
    assert judged["differs_from_recorded"] == ["evaluate", "gate", "review"]


def test_runs_show_and_report_tell_of_it(climbed: tuple[Drill, str]) -> None:
    drill, out = climbed
    run = drill.run_folder()
    (row,) = drill.json("runs")["runs"]
    assert (row["run"], row["status"], row["passed"]) == (run.name, "PASSED", "15 of 15")
    assert run.name in drill.run("runs").stdout
    shown = drill.run("show")
    assert shown.returncode == 0
    assert [line for line in shown.stdout.splitlines() if line.startswith("✓ PASSED: 15 of 15")]
    assert shown.stdout.splitlines()[-2] in out
    for name in ("report.html", "junit.xml", "summary.json"):
        (run / name).unlink()
    assert Path(drill.json("report")["report"]) == run / "report.html"
    assert all((run / name).is_file() for name in ("report.html", "junit.xml", "summary.json"))


def test_a_resume_of_what_passed_runs_nothing_and_changes_nothing(climbed: tuple[Drill, str]) -> None:
    drill, _ = climbed
    run = drill.run_folder()
    before = {path: path.stat().st_mtime_ns for path in (run / "rungs").rglob("*") if path.is_file()}
    assert drill.run("climb", "--resume", "latest").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (run / "rungs").rglob("*") if path.is_file()} == before
