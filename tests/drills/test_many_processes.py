"""Several processes on one root: CI jobs one after another, and two climbs at once."""

from __future__ import annotations

import json

import pytest

from drilling import QUICK, Drill, attempts, statuses

pytestmark = pytest.mark.slow


def test_a_pipeline_of_rung_commands_proves_the_ladder(tmp_path_factory: pytest.TempPathFactory) -> None:
    drill = Drill(tmp_path_factory.mktemp("drill") / "root")
    run = ["--run", "pipeline-7"]
    early = drill.json("rung", "scheduler", *run, *QUICK, code=2)
    assert early["asked"] == {"rungs": ["scheduler"], "status": "BLOCKED", "exit_code": 2, "interrupted": False}
    names = list(statuses(early))
    assert len(names) == 15
    for name in names:
        done = drill.run("rung", name, *run)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    folder = drill.run_folder()
    assert attempts(folder) == dict.fromkeys(names, 1)
    assert statuses(drill.json("show")) == dict.fromkeys(names, "PASSED")
    assert json.loads((folder / "summary.json").read_text())["status"] == "PASSED"
    assert drill.json("judge", "pipeline-7")["differs_from_recorded"] == []
    assert drill.left_over() == {}


def test_two_climbs_at_once_on_one_root_both_pass(tmp_path_factory: pytest.TempPathFactory) -> None:
    drill = Drill(tmp_path_factory.mktemp("drill") / "root")
    climbs = [drill.start("climb", "--json", *QUICK) for _ in range(2)]
    answers = []
    try:
        for climb in climbs:
            out, err = climb.communicate(timeout=280)
            assert climb.returncode == 0, err[-3000:] + out[-3000:]
            answers.append(json.loads(out))
    finally:
        for climb in climbs:
            climb.kill()
    assert [set(statuses(answer).values()) for answer in answers] == [{"PASSED"}] * 2
    assert len({answer["run_id"] for answer in answers}) == 2
    assert drill.left_over() == {}
