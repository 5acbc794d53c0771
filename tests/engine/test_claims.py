"""Claims: one process to a run, one to an attempt, whoever comes at the same moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from surefoot.engine.claims import Owner, claim_attempt, climbing
from surefoot.engine.store import read_record, write_record
from surefoot.errors import RequestError
from surefoot.paths import RunPaths
from surefoot.scheduler.processes import start_ticks

PARENT = Owner.this_process().model_copy(update={"pid": os.getppid(), "start_ticks": start_ticks(os.getppid())})
DEAD = PARENT.model_copy(update={"start_ticks": 1})
ELSEWHERE = PARENT.model_copy(update={"host": "another-login-node"})


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


def test_a_live_climb_of_the_run_is_not_disturbed(run: RunPaths) -> None:
    write_record(run.owner, PARENT)
    with pytest.raises(RequestError, match="is being climbed by process"), climbing(run):
        pass
    assert read_record(Owner, run.owner) == PARENT


def test_a_dead_climb_leaves_its_place(run: RunPaths) -> None:
    write_record(run.owner, DEAD)
    with climbing(run):
        assert read_record(Owner, run.owner).pid == os.getpid()
    assert list(run.folder.iterdir()) == []


def test_of_another_host_nothing_is_assumed_until_the_user_says_so(run: RunPaths) -> None:
    write_record(run.owner, ELSEWHERE)
    with pytest.raises(RequestError, match="another-login-node, which cannot be asked from here"), climbing(run):
        pass
    with climbing(run, take_over=True):
        assert read_record(Owner, run.owner).pid == os.getpid()


def test_taking_over_does_not_reach_a_live_process_of_this_host(run: RunPaths) -> None:
    write_record(run.owner, PARENT)
    with pytest.raises(RequestError), climbing(run, take_over=True):
        pass


def test_of_many_at_once_one_climbs(run: RunPaths) -> None:
    write_record(run.owner, DEAD)
    inside: list[int] = []
    refused: list[RequestError] = []
    gate = threading.Barrier(8)
    leave = threading.Event()

    def attempt() -> None:
        gate.wait()
        try:
            with climbing(run):
                inside.append(1)
                leave.wait(10)
        except RequestError as error:
            refused.append(error)
            if len(refused) == 7:
                leave.set()

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(inside), len(refused)) == (1, 7)


def test_an_attempt_has_its_owner_from_its_first_moment(run: RunPaths) -> None:
    number, paths = claim_attempt(run, "ddp")
    assert (number, paths.folder.name) == (1, "attempt-001")
    assert read_record(Owner, paths.owner).pid == os.getpid()
    assert run.rung("ddp").attempts() == [1]
    assert [p.name for p in paths.folder.parent.iterdir()] == ["attempt-001"]


def test_an_attempt_of_another_host_is_left_alone(run: RunPaths) -> None:
    _, paths = claim_attempt(run, "ddp")
    write_record(paths.owner, ELSEWHERE)
    with pytest.raises(RequestError, match="--take-over"):
        claim_attempt(run, "ddp")
    assert claim_attempt(run, "ddp", take_over=True)[0] == 2
