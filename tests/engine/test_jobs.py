"""Running a step's jobs: those that it wants cancelled are, once their ranks run."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.engine import jobs
from surefoot.engine.jobs import JobsRunner, as_expected
from surefoot.engine.watch import JobWatch
from surefoot.errors import StorageError
from surefoot.model.events import Event
from surefoot.model.job import ExpectedExit, Job, JobDone, JobSpec, JobState, JobStatus, RankExit
from surefoot.model.run import JobsStep
from surefoot.paths import AttemptPaths
from surefoot.scheduler.local import LocalScheduler, read_done

SOURCES = Path(__file__).parents[2] / "src"


def waiting(paths: AttemptPaths, name: str, state: JobState, **changes: object) -> JobSpec:
    folder = paths.job(name)
    folder.mkdir(parents=True)
    env = {"PYTHONPATH": str(SOURCES), "SUREFOOT_RUN": "r", "SUREFOOT_NONCE": "n"}
    argv = (sys.executable, "-m", "surefoot.node.waiting")
    spec = JobSpec(name=name, argv=argv, folder=str(folder), env=env, request={"seconds": 60})
    return spec.model_copy(update={"expect": ExpectedExit(state=state), **changes})


@pytest.mark.slow
def test_a_step_cancels_the_jobs_that_it_names_and_no_other(tmp_path: Path) -> None:
    paths, events = AttemptPaths(tmp_path), list[Event]()
    specs = (
        waiting(paths, "cancelled", JobState.CANCELLED),
        waiting(paths, "limit", JobState.TIMEOUT, time_limit_s=3),
    )
    scheduler = LocalScheduler(cpus=2)
    watch = JobWatch(scheduler)
    try:
        began = time.monotonic()
        runner = JobsRunner(LocalConnection(), watch, events.append, threading.Event(), "rung")
        assert runner.run(JobsStep(jobs=specs, cancel=("cancelled",)), paths, [])
        assert time.monotonic() - began < 30
    finally:
        watch.close()
        scheduler.close()
    for spec in specs:
        done = read_done(Path(spec.folder))
        assert done is not None
        assert done.state is spec.expect.state
        assert (Path(spec.folder) / "rank-0.json").exists(), "it ran before it was ended"


@pytest.mark.parametrize("ranks", [(), (0,), (0, 0), (0, 1, 2)])
def test_a_job_that_does_not_tell_of_each_rank_once_did_not_end_as_expected(ranks: tuple[int, ...]) -> None:
    job = Job(id="1", spec=JobSpec(name="j", argv=("x",), folder="/f", ranks_per_node=2), submitted_at=1)
    told = tuple(RankExit(rank=rank, host="n1", exit_code=0) for rank in ranks)
    done = JobDone(id="1", name="j", state=JobState.COMPLETED, started_at=1, ended_at=2, ranks=told)
    assert not as_expected(job, JobStatus(state=JobState.COMPLETED, done=done))


@pytest.mark.slow
def test_a_job_whose_evidence_cannot_be_brought_home_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def bring_home(_connection: object, _there: Path, here: Path) -> None:
        asked.append(here.name)
        if here.name == "first":
            raise StorageError("its folder cannot be read")

    monkeypatch.setattr(jobs, "bring_home", bring_home)
    paths, names = AttemptPaths(tmp_path), ("first", "second")
    specs = tuple(JobSpec(name=name, argv=("true",), folder=str(paths.job(name))) for name in names)
    for spec in specs:
        Path(spec.folder).mkdir(parents=True)
    scheduler = LocalScheduler(cpus=2)
    watch = JobWatch(scheduler)
    try:
        runner = JobsRunner(LocalConnection(), watch, list[Event]().append, threading.Event(), "rung")
        with pytest.raises(StorageError, match="cannot be read"):
            runner.run(JobsStep(jobs=specs), paths, [])
    finally:
        watch.close()
        scheduler.close()
    assert asked == ["first", "second"]
