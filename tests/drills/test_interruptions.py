"""What is killed, interrupted or told to fail leaves nothing running, and a resume ends PASSED."""

from __future__ import annotations

import json
import random
import shlex
import signal
import time

import pytest

from drilling import QUICK, Drill, attempts, end, settled, statuses, training, wait_until

pytestmark = pytest.mark.slow

ABOVE_FINETUNE = ("finetune", "evaluate", "gate", "review")


def test_the_drill_blocks_all_that_builds_on_the_failed_trainer_and_a_resume_passes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    drill = Drill(tmp_path_factory.mktemp("drill") / "root")
    failed = drill.json("climb", *QUICK, "--set", "fake_trainer.fail=true", code=1)
    run = drill.run_folder()
    found = statuses(failed)
    assert found["fake_trainer"] == "FAILED"
    assert [name for name, status in found.items() if status == "BLOCKED"] == list(ABOVE_FINETUNE)
    assert {status for name, status in found.items() if name not in ("fake_trainer", *ABOVE_FINETUNE)} == {"PASSED"}
    checks = next(row for row in failed["rungs"] if row["rung"] == "fake_trainer")["not_passed"]
    shown = [seen for check in checks for seen in check["evidence"] if seen["file"].endswith(".out")]
    assert shown
    log = (run / shown[0]["file"]).read_text().splitlines()
    assert shown[0]["text"] in log[shown[0]["line"] - 1]
    assert "fail" in shown[0]["text"]

    before = settled(run)
    assert len(before) == 2 * 10
    again = drill.json("climb", "--resume", run.name, "--set", "fake_trainer.fail=false")
    assert set(statuses(again).values()) == {"PASSED"}
    # What was sent to jobs holds the settings, so `sync` proves it anew.
    before = {name: seen for name, seen in before.items() if "/sync/" not in name}
    assert {name: settled(run)[name] for name in before} == before
    assert attempts(run) == {**dict.fromkeys(found, 1), "sync": 2, "fake_trainer": 2}
    # The settings of the first climb are those of the run: only `fail` was changed.
    ladder = {spec["rung"]: spec for spec in json.loads((run / "run.json").read_text())["inputs"]["ladder"]["rungs"]}
    assert ladder["collectives"]["max_size"] == 1024
    assert ladder["fake_trainer"]["fail"] is False
    assert drill.left_over() == {}


def test_a_fine_tune_that_is_killed_or_interrupted_is_taken_up_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    drill = Drill(tmp_path_factory.mktemp("drill") / "root")
    climb = drill.start("climb", *QUICK)
    run = drill.run_folder()
    wait_until(lambda: training(run, 1) or climb.poll() is not None)

    other = drill.run("climb", "--resume", run.name)
    assert other.returncode == 3
    assert f"is being climbed by process {climb.pid}" in other.stderr
    assert climb.poll() is None

    assert end(climb, signal.SIGKILL)[0] == -signal.SIGKILL
    assert drill.left_over() == {}
    (done,) = (run / "rungs/finetune/attempt-001/raw").glob("*/done.json")  # ended, and not just run to its end
    assert json.loads(done.read_text())["reason"] == "the process that submitted it is gone"
    before = settled(run)
    assert len(before) == 2 * 11
    assert drill.json("show", code=2)["status"] == "INCONCLUSIVE"

    for attempt, number in ((2, signal.SIGINT), (3, signal.SIGTERM)):
        climb = drill.start("climb", "--resume", run.name)
        wait_until(lambda climb=climb, attempt=attempt: training(run, attempt) or climb.poll() is not None)
        asked_at = time.monotonic()
        code, _, err = end(climb, number)
        assert code == 130, err
        assert time.monotonic() - asked_at < 10
        words = shlex.split(err.splitlines()[-1].partition("Go on with: ")[2])
        assert words == ["surefoot", "climb", "--resume", run.name, "--root", str(drill.root)]
        assert drill.left_over(wait_s=1) == {}
        seal = json.loads((run / f"rungs/finetune/attempt-{attempt:03d}/collection.json").read_text())
        assert seal["outcome"] == "ABORTED"

    assert set(statuses(drill.json("climb", "--resume", run.name)).values()) == {"PASSED"}
    assert {name: settled(run)[name] for name in before} == before
    assert attempts(run) == {**dict.fromkeys(attempts(run), 1), "finetune": 4}
    assert drill.json("judge", run.name)["differs_from_recorded"] == []
    assert drill.left_over() == {}


def test_a_climb_that_is_killed_at_any_moment_is_taken_up_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    drill = Drill(tmp_path_factory.mktemp("drill") / "root")
    seed = random.randrange(2**32)
    print(f"moments of seed {seed}")  # noqa: T201 - shown when it fails
    moments = random.Random(seed)
    command = ["climb", *QUICK, "--set", "finetune.time_limit_s=600"]
    kept: dict[str, tuple[int, bytes]] = {}
    for _ in range(10):
        climb = drill.start(*command)
        time.sleep(moments.uniform(0.3, 3.5))
        end(climb, signal.SIGKILL)
        assert drill.left_over() == {}
        runs = list((drill.root / "runs").glob("*/run.json"))
        if runs:  # killed before there was one, it is climbed anew
            (manifest,) = runs
            command = ["climb", "--resume", manifest.parent.name]
            now = settled(manifest.parent)
            assert {name: now.get(name) for name in kept} == kept, "what PASSED was touched"
            kept = now
    run = drill.run_folder()
    assert set(statuses(drill.json(*command)).values()) == {"PASSED"}
    assert {name: settled(run)[name] for name in kept} == kept
    assert drill.json("judge", run.name)["differs_from_recorded"] == []
    assert drill.left_over() == {}


TO_FAKE_TRAINER = ["--to", "fake_trainer"]


def test_each_of_ten_killed_climbs_passes_when_it_is_resumed(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("drill")
    for number in range(10):
        drill = Drill(root / str(number))
        climb = drill.start("climb", *QUICK, *TO_FAKE_TRAINER)
        run = drill.run_folder()
        time.sleep(0.12 * number)  # runner, sync, scheduler and fake_trainer take about 1.2 s together
        end(climb, signal.SIGKILL)
        assert drill.left_over() == {}, number
        answer = drill.json("climb", "--resume", run.name, *TO_FAKE_TRAINER)
        assert answer["asked"]["rungs"] == ["runner", "sync", "scheduler", "fake_trainer"]
        assert drill.left_over() == {}
