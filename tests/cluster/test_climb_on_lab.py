"""The shipped ladder on a real cluster: over ssh, through Slurm, on two hosts; and what cannot stop it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import statistics
import threading
import time
from pathlib import Path

import pytest

from drilling import QUICK, Drill, attempts, end, settled, statuses, wait_until
from lab_drill import LabDrill, events
from surefoot.connection.ssh import SshConnection
from surefoot.engine.watch import JobWatch
from surefoot.files import sha256_file
from surefoot.lab.places import LabPaths
from surefoot.model.job import JobSpec
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]  # slow: alone on the machine, as it measures


@pytest.fixture
def drill(climbing_lab: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=climbing_lab)


def test_the_whole_ladder_passes_on_two_hosts_and_the_shared_root_holds_the_run(drill: LabDrill) -> None:
    """Both ways to launch: the DDP step by torchrun, everything else one task for each rank."""
    # Hosts of a lab share this machine's cores: how fast one computes depends on what else runs.
    settings = ("--set", "ddp.launch=torchrun", "--set", "compute.max_spread=0.95")
    answer = drill.json("climb", *drill.on_lab, *QUICK, *settings)
    assert set(statuses(answer).values()) == {"PASSED"}
    run = drill.run_folder()
    ranks = [json.loads(path.read_text()) for path in (run / "rungs/ddp").rglob("rank-*.json")]
    assert sorted((rank["rank"], rank["host"]) for rank in ranks) == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]
    trained = [json.loads(path.read_text()) for path in (run / "rungs/finetune").rglob("rank-*.json")]
    assert {rank["host"] for rank in trained} == {"n1", "n2"}
    there = Drill(drill.paths.shared).json("show", run.name)
    assert statuses(there) == statuses(answer)
    assert there["differs_from_recorded"] == []
    assert drill.queue() == []
    assert [p for p in drill.paths.shared.glob("scratch/*") if run.name in p.name] == []


def test_a_job_costs_two_seconds_more_than_it_takes_at_most(drill: LabDrill) -> None:
    connection = SshConnection("head", config=drill.paths.ssh_config)
    scheduler = SlurmScheduler(connection, Site(python="/usr/bin/python3", partition="gpu", account="lab"))
    watch = JobWatch(scheduler)
    folder = drill.paths.shared / "added-time"
    added = []
    try:
        for number in range(9):
            spec = JobSpec(name=f"j{number}", argv=("/bin/sleep", "1"), folder=str(folder / f"j{number}"))
            began = time.time()
            job = scheduler.submit(spec)
            status = watch.wait([job], threading.Event(), lambda *_: None, lambda _: False)[job.id]
            assert status.done is not None
            added.append(time.time() - began - (status.done.ended_at - status.done.started_at))
    finally:
        watch.close()
        scheduler.close()
        connection.close()
    print(f"\nadded per job: median {statistics.median(added):.2f} s, most {max(added):.2f} s")  # noqa: T201 - for the log
    assert statistics.median(added) <= 2, added


UP_TO = ("--to", "storage")


def test_twenty_kills_leave_no_job_and_lose_no_evidence(drill: LabDrill) -> None:
    chance = random.Random(20)
    run: Path | None = None
    kept: dict[Path, bytes] = {}
    for number in range(20):
        words = ("--resume", "latest") if run else (*drill.on_lab, *QUICK, "--set", "fake_trainer.seconds=3")
        again = ("--again", chance.choice(("sync", "scheduler"))) if run and number % 3 == 2 else ()
        before = set(drill.queue())  # what the kill before this one left, until somebody reaps it
        climb = drill.start("climb", *words, *UP_TO, *again)
        time.sleep(chance.uniform(0.2, 5.0))
        hard = number % 2 == 0
        code, out, err = end(climb, signal.SIGKILL if hard else signal.SIGTERM, wait_s=60)
        assert "Traceback" not in out + err, err
        assert code in ((-signal.SIGKILL, 0) if hard else (130, 0, -signal.SIGTERM)), (code, err)
        if not hard:
            assert set(drill.queue()) <= before, "an interrupted climb cancels its jobs"
        run = run or next(iter((drill.root / "runs").glob("*/run.json")), None)
        if run is not None:
            now = {seal: seal.read_bytes() for seal in run.parent.glob("rungs/*/attempt-*/collection.json")}
            assert {seal: now.get(seal) for seal in kept} == kept, f"kill {number}: what was sealed stays"
            kept = now
    assert run is not None
    answer = drill.json("climb", "--resume", "latest", *UP_TO)
    for seal, content in kept.items():
        assert seal.read_bytes() == content
        for name, file in json.loads(content)["files"].items():
            assert sha256_file(seal.parent / name) == file["sha256"]
    assert {answer["asked"]["status"]} == {"PASSED"}
    assert drill.queue() == []
    assert drill.left_over(wait_s=30) == {}, "not even the shared ssh connections of those that were killed"
    print(f"\nattempts after twenty kills: {attempts(run.parent)}")  # noqa: T201 - for the log


def test_a_run_goes_on_from_another_control_host_when_the_first_is_gone(drill: LabDrill, tmp_path: Path) -> None:
    """All that the first had of its own is deleted, in the middle of a job of it."""
    climb = drill.start("climb", *drill.on_lab, *QUICK, "--set", "fake_trainer.seconds=60", "--to", "fake_trainer")
    run = drill.run_folder()
    wait_until(lambda: (run / "rungs/fake_trainer/attempt-001/raw").is_dir() or climb.poll() is not None)
    wait_until(lambda: any("fake" in job for job in drill.queue()))
    end(climb, signal.SIGKILL)
    before = {name: content for name, (_, content) in settled(run).items()}
    assert {name.split("/")[1] for name in before} >= {"runner", "sync", "scheduler"}
    shutil.rmtree(drill.root)

    other = LabDrill(tmp_path / "other" / "root", lab=drill.lab)
    again = ("climb", "--resume", run.name, *drill.on_lab, "--set", "fake_trainer.seconds=1")
    refused = other.run(*again)
    assert refused.returncode == 3
    assert "--take-over" in refused.stderr
    assert not (other.root / "runs" / run.name).exists()
    answer = other.json(*again, "--to", "fake_trainer", "--take-over")
    assert answer["asked"]["status"] == "PASSED"
    taken = other.run_folder()
    # Its ladder was changed, so what was sent to jobs is proved anew; what PASSED there else is kept as it was.
    made = {rung: number for rung, number in attempts(taken).items() if number}
    assert made == {**dict.fromkeys(made, 1), "sync": 2, "fake_trainer": 2}
    kept = {name: content for name, content in before.items() if "/sync/" not in name}
    after = settled(taken)
    assert {name: after[name][1] for name in kept} == kept
    assert other.json("judge", run.name, code=2)["differs_from_recorded"] == []
    assert drill.queue() == []


def test_a_link_that_is_cut_for_twenty_seconds_in_the_middle_of_a_poll_changes_nothing(drill: LabDrill) -> None:
    seconds = ("--set", "fake_trainer.seconds=12")
    climb = drill.start("climb", *drill.on_lab, *QUICK, *seconds, "--to", "fake_trainer", "--json")
    run = drill.run_folder()

    def running() -> bool:
        assert climb.poll() is None, climb.communicate()
        return any(e.get("job") == "fake-trainer" and e.get("state") == "RUNNING" for e in events(run)) or any(
            e.get("rung") == "fake_trainer" and e.get("state") == "RUNNING" for e in events(run)
        )

    wait_until(running)
    with drill.link_cut(20):
        pass
    out, err = climb.communicate(timeout=120)
    assert climb.returncode == 0, err
    assert json.loads(out)["asked"]["status"] == "PASSED"
    assert attempts(run)["fake_trainer"] == 1
