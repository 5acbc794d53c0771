"""Waiting, retrying and what a killed climb leaves, through the engine, on a real Slurm of four nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_climb
from slurm_climb import RUNG, SLEEPS, SlurmRung, new_session, request
from slurm_here import SlurmHere, wait_for
from surefoot.engine import waiting
from surefoot.engine.judge import Judge
from surefoot.engine.orphans import Climber, jobs_of_run
from surefoot.engine.session import Session, resume
from surefoot.engine.store import load_manifest, read_record, write_record
from surefoot.files import sha256_file
from surefoot.model.events import Event, JobChanged, Note
from surefoot.model.job import JobState
from surefoot.model.run import Collection, Plan, RungResult, SealedFile, Shrunk
from surefoot.model.status import Status
from surefoot.paths import RootPaths

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _this_slurm(slurm: SlurmHere, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm's commands find this cluster, and nothing is left in it."""
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    yield
    slurm.command("scancel", "--user=root")
    deadline = time.monotonic() + 60
    while slurm.command("squeue", "-h"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def hold(slurm: SlurmHere, nodes: str) -> str:
    """A job of somebody else that has these nodes for itself. Its id."""
    identifier = slurm.command(
        "sbatch", "--parsable", f"--nodelist={nodes}", f"--nodes={nodes.count(',') + 1}", "--exclusive", "--mem=0",
        "--job-name=train", "--output=/dev/null", "--time=60", "--wrap=sleep 600",
    ).strip()  # fmt: skip
    deadline = time.monotonic() + 30
    while slurm.command("squeue", "-h", "-j", identifier, "-o", "%T").strip() != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return identifier


class Climbed:
    """A climb that was run, and what it told."""

    def __init__(self, session: Session, rung: SlurmRung) -> None:
        self.session = session
        self.rung = rung
        self.events: list[Event] = []
        results = session.climb({RUNG: rung}, frozenset({RUNG}), self.events.append).run()
        self.result: RungResult = results[RUNG]

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Note))

    def check(self, identifier: str) -> Any:
        return next(check for check in self.result.judgement.checks if check.id == identifier)

    def judged_again(self) -> RungResult:
        paths = self.session.run_paths
        return Judge(paths, load_manifest(paths), {RUNG: self.rung}).run()[RUNG]


def test_a_rung_whose_job_waits_too_long_is_inconclusive_and_names_what_holds_its_nodes(
    slurm: SlurmHere, tmp_path: Path
) -> None:
    holder = hold(slurm, "n2")
    climbed = Climbed(new_session(tmp_path, pending={"wait_at_most_s": 3}), SlurmRung())
    assert climbed.result.status is Status.INCONCLUSIVE
    check = climbed.check("job.toy.ended")
    assert "waited 3 s of at most 3 for 4 nodes" in check.actual
    assert f"n2 by job {holder} of root (train, 59 min left)" in check.actual
    assert "pending" in check.next_action
    assert climbed.judged_again() == climbed.result
    pending = [e for e in climbed.events if isinstance(e, JobChanged) and e.state is JobState.PENDING]
    assert any("[Resources]" in event.reason for event in pending)
    assert slurm.command("squeue", "-h", "-n", "toy") == ""


def test_a_rung_shrinks_to_the_nodes_that_are_free_and_says_so(slurm: SlurmHere, tmp_path: Path) -> None:
    hold(slurm, "n2")
    session = new_session(tmp_path, pending={"wait_at_most_s": 3, "then": "shrink", "min_nodes": 2})
    climbed = Climbed(session, SlurmRung())
    assert climbed.result.status is Status.PASSED, climbed.result
    assert climbed.result.judgement.summary == "on 3 of 4 nodes: 42,42,42"
    check = climbed.check("evidence.nodes")
    assert check.actual == "3 of 4 nodes: the others are not proved"
    assert "waited 3 s" in check.derivation
    assert session.run_paths.rung(RUNG).attempts() == [1, 2]
    assert climbed.judged_again() == climbed.result


def test_an_attempt_on_fewer_nodes_than_the_ladder_allows_is_no_evidence(slurm: SlurmHere, tmp_path: Path) -> None:  # noqa: ARG001
    """As if somebody had written a smaller plan, and sealed it anew."""
    session = new_session(tmp_path, pending={"wait_at_most_s": 100, "then": "shrink", "min_nodes": 2})
    climbed = Climbed(session, SlurmRung())
    assert climbed.result.status is Status.PASSED
    paths = session.run_paths.rung(RUNG).attempt(1)
    plan, seal = read_record(Plan, paths.plan), read_record(Collection, paths.collection)
    for nodes in (1, 4, 5):
        write_record(paths.plan, plan.model_copy(update={"shrunk": Shrunk(nodes=nodes, reason="")}))
        sealed = SealedFile(sha256=sha256_file(paths.plan), size_bytes=paths.plan.stat().st_size)
        write_record(paths.collection, seal.model_copy(update={"files": {**seal.files, "plan.json": sealed}}))
        assert climbed.judged_again().status is Status.INCONCLUSIVE


def test_a_rung_moves_to_the_other_partition_and_its_check_says_so(slurm: SlurmHere, tmp_path: Path) -> None:
    hold(slurm, "n2")
    slurm.command("scontrol", "update", "PartitionName=gpu", "Nodes=n2")
    try:
        pending = {"wait_at_most_s": 3, "then": "move", "partition": "short"}
        climbed = Climbed(new_session(tmp_path, nodes=1, pending=pending), SlurmRung())
    finally:
        slurm.command("scontrol", "update", "PartitionName=gpu", "Nodes=ALL")
    assert climbed.result.status is Status.PASSED, climbed.result
    check = climbed.check("job.toy.ended")
    assert check.actual == "exit code 0, at try 2"
    assert "moved to partition short" in check.derivation
    assert "moved to partition short as job" in climbed.notes
    folder = climbed.session.run_paths.rung(RUNG).attempt(1).job("toy")
    assert json.loads((folder / "submission.json").read_text())["moved_to"] == "short"
    assert json.loads((folder / "job.json").read_text())["spec"]["partition"] == ""
    assert climbed.judged_again() == climbed.result


@pytest.mark.slow
def test_nodes_that_are_down_are_named_at_once_and_end_the_rung_when_they_stay_so(
    slurm: SlurmHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "NODES_DOWN_S", 12.0)  # a minute, by tests/engine/test_waiting.py
    slurm.command("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=bad rail")
    try:
        climbed = Climbed(new_session(tmp_path), SlurmRung())
    finally:
        slurm.command("scontrol", "update", "NodeName=n3", "State=RESUME")
    assert climbed.result.status is Status.ERROR
    assert "n3 is down (bad rail" in climbed.check("job.toy.ended").actual
    told = next(e.at for e in climbed.events if isinstance(e, Note) and "n3 is down" in e.text)
    assert climbed.result.started_at is not None
    assert told - climbed.result.started_at < 30
    assert climbed.result.ended_at is not None
    assert climbed.result.ended_at - told >= 12


@pytest.mark.slow
def test_a_job_whose_node_failed_runs_again_without_it_and_the_check_says_so(slurm: SlurmHere, tmp_path: Path) -> None:
    code = "import os, time\n" + f"time.sleep(0 if os.path.exists('try-1') else 600)\n{slurm_climb.WRITES}"
    session = new_session(tmp_path, nodes=2)
    folder = session.run_paths.rung(RUNG).attempt(1).job("toy")
    killed: list[str] = []

    def kill_one() -> None:
        wait_for(folder / "started.json")
        time.sleep(1)
        identifier = json.loads((folder / "job.json").read_text())["id"]
        nodes = slurm.command("squeue", "-h", "-j", identifier, "-o", "%N").strip()
        killed.append(slurm.command("scontrol", "show", "hostnames", nodes).split()[0])
        slurm.stop_one(killed[0])
        for pid in _step_daemons(identifier):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_one)
    thread.start()
    try:
        climbed = Climbed(session, SlurmRung(code, time_limit_s=600))
    finally:
        thread.join()
        slurm.start_node(killed[0])
    assert climbed.result.status is Status.PASSED, climbed.result
    check = climbed.check("job.toy.ended")
    assert check.actual == "exit code 0, at try 2"
    assert check.derivation.startswith("try 2: a node failed")
    assert check.derivation.endswith(f": try 2 of 3 without {killed[0]}")
    assert f"without {killed[0]}" in climbed.notes
    assert killed[0] not in {e.nodes for e in climbed.events if isinstance(e, JobChanged) and e.state.final}
    first, second = (json.loads((folder / name / "job.json").read_text())["id"] for name in ("try-1", "."))
    assert first != second
    seal = read_record(Collection, session.run_paths.rung(RUNG).attempt(1).collection)
    assert [job.id for job in seal.jobs] == [first, second]


def test_a_time_limit_is_not_tried_again(tmp_path: Path) -> None:
    climbed = Climbed(new_session(tmp_path, nodes=1), SlurmRung(SLEEPS, time_limit_s=3))
    assert climbed.result.status is Status.FAILED
    assert "TIMEOUT" in climbed.check("job.toy.ended").actual
    seal = read_record(Collection, climbed.session.run_paths.rung(RUNG).attempt(1).collection)
    assert len(seal.jobs) == 1


def _step_daemons(identifier: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if line.startswith(f"slurmstepd: [{identifier}."):
            found.append(int(process.name))
    return found


@pytest.fixture
def killed(tmp_path: Path) -> Session:
    """A run whose climb was killed with 9 while its job ran."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\nfrom pathlib import Path\nimport slurm_climb as c\n"
        "s = c.new_session(Path(sys.argv[1]), nodes=2); print(s.manifest.run_id, flush=True)\n"
        "s.climb({c.RUNG: c.SlurmRung(c.SLEEPS)}, frozenset({c.RUNG}), lambda e: None).run()"
    )
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), tests], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        run = process.stdout.readline().strip()
    paths = RootPaths(tmp_path).run(run)
    wait_for(paths.rung(RUNG).attempt(1).job("toy") / "begun", 60)
    with jobs_of_run(paths) as jobs:
        assert [(one.job.rung, one.climber) for one in jobs.found(run)] == [(RUNG, Climber.ALIVE)]
    process.kill()
    process.wait()
    return resume(paths, request(tmp_path, nodes=2))


def test_what_a_killed_climb_leaves_is_listed_as_an_orphan_and_reaped(killed: Session, slurm: SlurmHere) -> None:
    hold(slurm, "n4")  # not a climb's: never touched
    run = killed.manifest.run_id
    with jobs_of_run(killed.run_paths) as jobs:
        found = jobs.found()
        assert [(one.job.run, one.job.rung, one.job.name, one.climber) for one in found] == [
            (run, RUNG, "toy", Climber.GONE)
        ]
        assert found[0].job.folder == str(killed.run_paths.rung(RUNG).attempt(1).job("toy"))
        assert found[0].job.nodes
        assert jobs.reap(found) == []
        assert jobs.found() == []
    assert slurm.command("squeue", "-h", "-o", "%j").split() == ["train"]


def test_a_run_that_is_taken_up_again_ends_what_its_killed_climb_left_first(killed: Session, slurm: SlurmHere) -> None:
    first = slurm.command("squeue", "-h", "-o", "%i").split()
    assert len(first) == 1
    climbed = Climbed(killed, SlurmRung())
    assert climbed.result.status is Status.PASSED, climbed.result
    assert climbed.result.attempt == 2
    assert slurm.command("squeue", "-h") == ""
    done = json.loads((killed.run_paths.rung(RUNG).attempt(1).job("toy") / "done.json").read_text())
    assert (done["id"], done["state"]) == (first[0], "CANCELLED")
