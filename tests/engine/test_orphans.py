"""Which jobs nobody waits for: known from the claims that climbs leave, and never guessed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.engine.claims import Owner
from surefoot.engine.orphans import Climber, Jobs, climber_of
from surefoot.engine.store import write_record
from surefoot.model.job import JobSpec
from surefoot.model.listed import TaggedJob
from surefoot.paths import AttemptPaths, RootPaths
from surefoot.scheduler.local import LocalScheduler
from surefoot.scheduler.processes import start_ticks

RUN = "20261129-120000-ab12"


@pytest.fixture
def home(tmp_path: Path) -> RootPaths:
    """A root with one run, of which nobody says who climbs it."""
    root = RootPaths(tmp_path)
    root.run(RUN).folder.mkdir(parents=True)
    root.run(RUN).manifest.write_text("{}")
    return root


@pytest.fixture
def attempt(home: RootPaths) -> AttemptPaths:
    paths = home.run(RUN).rung("ddp").attempt(2)
    paths.raw.mkdir(parents=True)
    return paths


def job(run: str = RUN, state: str = "RUNNING", attempt: int = 2) -> TaggedJob:
    folder = f"/shared/root/runs/{run}/rungs/ddp/attempt-{attempt:03d}/raw/step"
    return TaggedJob(id="7", name="step", state=state, run=run, nonce="0123456789abcdef", folder=folder)


def owner(**changes: object) -> Owner:
    return Owner.this_process().model_copy(update=changes)


def test_a_job_s_folder_says_which_rung_and_attempt_it_belongs_to() -> None:
    assert (job().rung, job().attempt) == ("ddp", 2)
    elsewhere = job().model_copy(update={"folder": "/home/ann/work"})
    assert (elsewhere.rung, elsewhere.attempt) == ("", None)


def test_a_job_whose_attempt_is_being_collected_is_none(home: RootPaths, attempt: AttemptPaths) -> None:
    write_record(attempt.owner, owner())
    assert climber_of(job(), home)[0] is Climber.ALIVE


def test_a_job_whose_collector_is_gone_is_an_orphan_also_while_its_run_is_climbed_anew(
    home: RootPaths, attempt: AttemptPaths
) -> None:
    write_record(attempt.owner, owner(start_ticks=1))
    write_record(home.run(RUN).owner, owner())
    climber, why = climber_of(job(), home)
    assert climber is Climber.GONE
    assert f"process {os.getpid()}" in why


def test_a_job_of_a_sealed_attempt_is_an_orphan_unless_it_is_ending(home: RootPaths, attempt: AttemptPaths) -> None:
    write_record(attempt.owner, owner())
    attempt.collection.write_text("{}")
    assert climber_of(job(), home)[0] is Climber.GONE
    assert climber_of(job(state="COMPLETING"), home)[0] is Climber.DONE


def test_of_a_climb_on_another_host_nothing_is_known(home: RootPaths, attempt: AttemptPaths) -> None:
    write_record(attempt.owner, owner(host="elsewhere"))
    assert climber_of(job(), home)[0] is Climber.ELSEWHERE


def test_a_run_that_is_not_here_is_unknown_and_its_jobs_are_no_orphans(home: RootPaths) -> None:
    assert climber_of(job("other"), home)[0] is Climber.UNKNOWN
    assert climber_of(job(""), home)[0] is Climber.UNKNOWN


def test_a_copy_of_a_run_says_nothing_of_who_is_alive(home: RootPaths, attempt: AttemptPaths) -> None:
    """The one on shared storage, as the login host sees it while a workstation climbs."""
    assert attempt.folder.exists()
    assert climber_of(job(), home)[0] is Climber.UNKNOWN
    assert climber_of(job(attempt=9), home)[0] is Climber.UNKNOWN
    attempt.owner.write_text("{")
    assert climber_of(job(), home)[0] is Climber.UNKNOWN


class Listed:
    """A scheduler that has two jobs, of which one does not end."""

    def tagged(self, runs: Path) -> list[TaggedJob]:  # noqa: ARG002 - the interface's
        return [job("other").model_copy(update={"id": "8"}), job()]

    def end(self, jobs: list[TaggedJob]) -> list[TaggedJob]:
        return [one for one in jobs if one.id == "8"]


def test_only_orphans_are_reaped_and_what_stays_is_told(home: RootPaths, attempt: AttemptPaths) -> None:
    write_record(attempt.owner, owner(start_ticks=1))
    jobs = Jobs(LocalConnection(), Listed(), home)  # type: ignore[arg-type]
    found = jobs.found()
    assert [(one.job.id, one.orphan) for one in found] == [("8", False), ("7", True)]
    assert [one.job.id for one in jobs.found("other")] == ["8"]
    assert jobs.reap([one for one in found if one.orphan]) == []
    assert [one.job.id for one in jobs.reap(found)] == ["8"]


def test_what_the_user_says_is_gone_is_an_orphan(home: RootPaths, attempt: AttemptPaths) -> None:
    write_record(attempt.owner, owner(host="elsewhere"))
    jobs = Jobs(LocalConnection(), Listed(), home, take_over=True)  # type: ignore[arg-type]
    assert [one.orphan for one in jobs.found()] == [True, True]
    assert "by --take-over" in jobs.found("other")[0].why


@pytest.fixture
def running(home: RootPaths) -> Iterator[tuple[LocalScheduler, Path]]:
    """A job of the local scheduler, and its folder."""
    folder = home.run(RUN).rung("ddp").attempt(1).job("step")
    folder.mkdir(parents=True)
    scheduler = LocalScheduler()
    argv = (sys.executable, "-c", "import time; time.sleep(60)")
    submitted = scheduler.submit(JobSpec(name="step", argv=argv, folder=str(folder), env={"SUREFOOT_NONCE": "n" * 8}))
    while not (folder / "supervisor.json").exists():
        scheduler.poll([submitted])
    yield scheduler, folder
    scheduler.close()


def test_local_jobs_are_listed_while_they_run_and_end_when_they_are_reaped(
    home: RootPaths, running: tuple[LocalScheduler, Path]
) -> None:
    scheduler, folder = running
    listed = scheduler.tagged(home.runs)
    assert [(one.name, one.run, one.rung, one.nonce) for one in listed] == [("step", RUN, "ddp", "n" * 8)]
    assert scheduler.end(listed) == []
    assert scheduler.tagged(home.runs) == []
    assert folder.exists()


def test_a_process_that_has_the_number_of_one_that_is_gone_is_not_taken_for_it() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        ticks = start_ticks(other.pid)
        assert ticks is not None
        assert owner(pid=other.pid, start_ticks=ticks).may_live()
        assert not owner(pid=other.pid, start_ticks=ticks - 1).may_live()
    finally:
        other.kill()
        other.wait()
