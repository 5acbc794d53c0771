"""A job that waits for nodes that are down is given up; one that waits for others is not. Slurm's answers are scripted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot.connection.base import CommandResult
from surefoot.model.job import EndCause, Job, JobSpec, JobState
from surefoot.scheduler.slurm import slurm as module
from surefoot.scheduler.slurm.commands import SEPARATOR
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

SPEC = JobSpec(name="j", argv=("x",), folder="/f", nodes=2)


class ScriptedSlurm:
    """A connection on which one job waits, or is taken down, and n1 is as `n1` says."""

    remote = False
    host = "head"

    def __init__(self, n1: str, job: str = "PENDING") -> None:
        self.n1, self.job = n1, job
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.asked.append(argv[0])
        nodes = [("n1", "gpu*", self.n1, "8", "1000", "(null)", "Not responding"), ("n2", "gpu*", "idle", "8", "1000", "(null)", "none")]  # fmt: skip
        queue = ("7", self.job, "Resources", str(int(time.time())), "", "0:00", "1:00", "n[1-2]", "j", "")
        said = {
            "sinfo": "".join(f"{SEPARATOR.join(row)}\n" for row in nodes),
            "scontrol": "PartitionName=gpu State=UP MaxTime=UNLIMITED MaxNodes=UNLIMITED\n",
            "squeue": f"{SEPARATOR.join(queue)}\n",
        }
        return CommandResult(0, None, said.get(argv[0], "").encode(), b"", 0.0, 0.0)

    def read_many(self, paths: Iterable[Path]) -> Mapping[Path, bytes]:
        del paths
        return {}


def polled(monkeypatch: pytest.MonkeyPatch, slurm: ScriptedSlurm, polls: int = 3) -> tuple[Any, SlurmScheduler]:
    monkeypatch.setattr(module, "_FASTEST_S", 0.0)
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(module, "STRANDED_S", 0.0)
    scheduler = SlurmScheduler(slurm, Site(python="python3"))  # type: ignore[arg-type]
    job = Job(id="7", spec=SPEC, submitted_at=time.time())
    for _ in range(polls):
        status = scheduler.poll([job])["7"]
    return status, scheduler


def test_a_job_that_waits_for_a_node_that_is_down_is_cancelled_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = ScriptedSlurm("down*")
    status, _ = polled(monkeypatch, slurm)
    assert (status.state, status.cause, status.nodes) == (JobState.CANCELLED, EndCause.NODE, "n1")
    assert "it wants 2 nodes, and 1 of the 2 that fit take jobs: n1 is down (Not responding)" in status.reason
    assert slurm.asked.count("scancel") == 1


@pytest.mark.parametrize("state", ["idle", "allocated", "mixed"])
def test_a_job_that_waits_for_others_goes_on_waiting(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    slurm = ScriptedSlurm(state)
    status, _ = polled(monkeypatch, slurm)
    assert status.state is JobState.PENDING
    assert "scancel" not in slurm.asked


def test_a_node_that_comes_back_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = ScriptedSlurm("down*")
    monkeypatch.setattr(module, "STRANDED_S", 3600.0)
    scheduler = SlurmScheduler(slurm, Site(python="python3"))  # type: ignore[arg-type]
    assert scheduler.poll([Job(id="7", spec=SPEC, submitted_at=time.time())])["7"].state is JobState.PENDING
    assert "scancel" not in slurm.asked


def test_a_job_that_a_node_took_down_names_the_node_of_those_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.scheduler.slurm.states.BAD_END_GRACE_S", 0.0)
    status, _ = polled(monkeypatch, ScriptedSlurm("down*", job="NODE_FAIL"))
    assert (status.state, status.cause) == (JobState.FAILED, EndCause.NODE)
    assert status.reason.endswith("n1 is down (Not responding)")
