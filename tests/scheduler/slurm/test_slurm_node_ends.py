"""A job that ended because of a node names that node. Slurm's answers are scripted; the lab breaks real ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot.connection.base import CommandResult
from surefoot.model.job import EndCause, Job, JobSpec, JobState, JobStatus
from surefoot.scheduler.slurm import slurm as module
from surefoot.scheduler.slurm.commands import SEPARATOR
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

SPEC = JobSpec(name="j", argv=("x",), folder="/f", nodes=2)


class ScriptedSlurm:
    """A connection on which one job ended as `job`, and n1 is as `n1` says."""

    remote = False
    host = "head"

    def __init__(self, n1: str, job: str, *, began: bool = False) -> None:
        self.n1, self.job, self.began = n1, job, began
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
        return {path: b"{}" for path in paths if self.began and path.name == "started.json"}


def polled(monkeypatch: pytest.MonkeyPatch, slurm: ScriptedSlurm, polls: int = 3) -> JobStatus:
    monkeypatch.setattr(module, "_FASTEST_S", 0.0)
    monkeypatch.setattr("surefoot.scheduler.slurm.states.BAD_END_GRACE_S", 0.0)
    scheduler = SlurmScheduler(slurm, Site(python="python3"))  # type: ignore[arg-type]
    job = Job(id="7", spec=SPEC, submitted_at=time.time())
    for _ in range(polls):
        status = scheduler.poll([job])["7"]
    return status


def test_a_job_that_a_node_took_down_names_the_node_of_those_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    status = polled(monkeypatch, ScriptedSlurm("down*", job="NODE_FAIL"))
    assert (status.state, status.cause) == (JobState.FAILED, EndCause.NODE)
    assert status.reason.endswith("n1 is down (Not responding)")


def test_a_job_that_slurm_cancelled_as_a_node_could_not_take_it_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    status = polled(monkeypatch, ScriptedSlurm("drained", job="CANCELLED"))
    assert (status.state, status.cause) == (JobState.CANCELLED, EndCause.NODE)
    assert status.reason.endswith("n1 is drained (Not responding)")


def test_a_job_that_had_begun_was_cancelled_by_somebody_whatever_its_nodes_are_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = polled(monkeypatch, ScriptedSlurm("drained", job="CANCELLED", began=True))
    assert status.cause is EndCause.CANCELLED
    status = polled(monkeypatch, ScriptedSlurm("idle", job="CANCELLED"))
    assert status.cause is EndCause.CANCELLED
