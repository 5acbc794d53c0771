"""Running a step's jobs: those that it wants cancelled are, once their ranks run."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.engine.jobs import JobsRunner
from surefoot.engine.watch import JobWatch
from surefoot.model.events import Event
from surefoot.model.job import ExpectedExit, JobSpec, JobState
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
