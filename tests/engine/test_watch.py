"""The one poller: it survives what a scheduler survives, and never leaves who waits for it waiting."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from surefoot.engine.watch import JobWatch
from surefoot.errors import MachineryError, SchedulerError
from surefoot.model.job import Job, JobSpec, JobState, JobStatus


class Flaky:
    """A scheduler whose answers are scripted: an exception to raise, or a state."""

    def __init__(self, *answers: Exception | JobState) -> None:
        self.answers = list(answers)
        self.polls = 0

    def poll(self, jobs: Sequence[Job]) -> Mapping[str, JobStatus]:
        self.polls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {job.id: JobStatus(state=answer) for job in jobs}

    def submit(self, spec: JobSpec) -> Job:
        raise NotImplementedError

    def cancel(self, jobs: Sequence[Job]) -> None:
        raise NotImplementedError

    def reap(self, folder: Path) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def job(name: str = "job") -> Job:
    return Job(id=name, spec=JobSpec(name=name, argv=("true",), folder="/nowhere"), submitted_at=0.0)


def wait(watch: JobWatch, *jobs: Job) -> dict[str, JobStatus]:
    return watch.wait(jobs, threading.Event(), lambda _job, _status: None, lambda _states: False)


BLIP = SchedulerError("slurm_load_jobs error: Socket timed out on send/recv operation")


def test_a_blip_is_asked_again() -> None:
    watch = JobWatch(Flaky(BLIP, JobState.RUNNING, BLIP, BLIP, JobState.COMPLETED))
    try:
        assert wait(watch, job())["job"].state is JobState.COMPLETED
    finally:
        watch.close()


def test_a_scheduler_that_stays_silent_is_told_to_who_waits_and_believed_again_when_it_answers() -> None:
    flaky = Flaky(BLIP)
    watch = JobWatch(flaky, patience_s=0.2)
    try:
        with pytest.raises(SchedulerError, match="Socket timed out"):
            wait(watch, job())
        flaky.answers = [JobState.COMPLETED]
        assert wait(watch, job("later"))["later"].state is JobState.COMPLETED
    finally:
        watch.close()


def test_a_fault_of_our_own_in_polling_does_not_hang_who_waits() -> None:
    watch = JobWatch(Flaky(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")), patience_s=0.1)
    try:
        with pytest.raises(MachineryError, match="polling broke: UnicodeDecodeError"):
            wait(watch, job())
    finally:
        watch.close()


def test_many_jobs_are_one_question() -> None:
    flaky = Flaky(JobState.RUNNING, JobState.RUNNING, JobState.COMPLETED)
    watch = JobWatch(flaky)
    try:
        wait(watch, *(job(f"job-{n}") for n in range(50)))
        assert flaky.polls <= 4
    finally:
        watch.close()
