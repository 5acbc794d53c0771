"""The shipped ladder on a real cluster: over ssh, through Slurm, on two hosts; and what cannot stop it."""

from __future__ import annotations

import json
import random
import signal
import statistics
import threading
import time
from pathlib import Path

import pytest
import yaml

from drilling import QUICK, Drill, attempts, end, statuses, wait_until
from lab_drill import LabDrill, events
from surefoot.connection.ssh import SshConnection
from surefoot.engine.watch import JobWatch
from surefoot.files import sha256_file
from surefoot.lab.places import LabPaths
from surefoot.model.job import JobSpec
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def drill(climbing_lab: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=climbing_lab)


def test_the_whole_ladder_passes_on_two_hosts_and_the_shared_root_holds_the_run(drill: LabDrill) -> None:
    """Both ways to launch: the DDP step by torchrun, everything else one task for each rank.

    A lab that roles made declares its Ansible site: then the hosts are found as that declares them.
    """
    # Hosts of a lab share this machine's cores: how fast one computes depends on what else runs.
    settings = ("--set", "ddp.launch=torchrun", "--set", "compute.max_spread=0.95")
    answer = drill.json("climb", *drill.on_lab, *QUICK, *settings)
    found = statuses(answer)
    assert set(found.values()) == {"PASSED"}
    declared = "ansible" in yaml.safe_load(drill.paths.cluster.read_text())
    assert {"finetune", "gate", "review", *(("inventory", "drift") if declared else ())} <= found.keys()
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


@pytest.mark.alone
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
