"""Jobs that wait: told of, and ended as the rung's policy says. With a scheduler whose answers are scripted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from surefoot.engine.waiting import EXPLAIN_AFTER_S, NODES_DOWN_S, Patience, ShrinkError
from surefoot.errors import SchedulerError
from surefoot.model.events import Event, Note
from surefoot.model.job import EndCause, Job, JobSpec, JobState, JobStatus
from surefoot.model.ladder import Pending
from surefoot.scheduler.base import Waiting

SPEC = JobSpec(name="train", argv=("true",), folder="/nowhere", nodes=4)
JOB = Job(id="12", spec=SPEC, submitted_at=0.0)
PENDING = JobStatus(state=JobState.PENDING, reason="it is next [Resources]", word="Resources")
DOWN = PENDING.model_copy(update={"word": "ReqNodeNotAvail"})
N1_DOWN = Waiting(down="it wants 4 nodes, and 3 of the 4 that fit take jobs: n1 is down (bad rail)")


class Scripted:
    """Only what waiting asks of a scheduler."""

    def __init__(self, *answers: Waiting | SchedulerError) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.cancelled: list[str] = []
        self.moves: list[tuple[str, str]] = []

    def why_waiting(self, job: Job) -> Waiting:  # noqa: ARG002 - the interface's
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SchedulerError):
            raise answer
        return answer

    def cancel(self, jobs: Sequence[Job]) -> None:
        self.cancelled += [job.id for job in jobs]

    def move(self, job: Job, partition: str, reason: str) -> Job:  # noqa: ARG002 - the interface's
        if partition == "none":
            raise SchedulerError("partition 'none' does not exist")
        self.moves.append((job.id, partition))
        return job.model_copy(update={"id": f"{job.id}-again"})


class Watched:
    """A Patience with a clock of its own, fed with one job's status."""

    def __init__(self, policy: Pending | None, *answers: Waiting | SchedulerError) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.scheduler = Scripted(*(answers or (Waiting(),)))
        scheduler: Any = self.scheduler
        self.patience = Patience(scheduler, "finetune", policy, self._hear, clock=lambda: self.now)
        self.job = JOB

    def _hear(self, event: Event) -> None:
        assert isinstance(event, Note)
        self.told.append(event.text)

    def wait(self, seconds: float, status: JobStatus = PENDING) -> None:
        """So long, looked at twice a second."""
        end = self.now + seconds
        while self.now <= end:
            for job in self.patience.tick({"train": self.job}, {self.job.id: status}):
                self.job = job
            self.now += 0.5

    @property
    def given_up(self) -> JobStatus | None:
        return self.patience.given_up.get(self.job.id)


def test_a_job_that_waits_is_told_of_once_and_waited_for_without_limit() -> None:
    waited = Watched(None, Waiting(held_by="n1 by job 7 of ann (train, 3 h 0 min left)"))
    waited.wait(EXPLAIN_AFTER_S - 1)
    assert (waited.told, waited.scheduler.asked) == ([], 0)
    waited.wait(1e4)
    assert waited.told == [
        "finetune: job 'train' (12) waits: it is next [Resources]; held: n1 by job 7 of ann (train, 3 h 0 min left)"
    ]
    assert waited.given_up is None
    assert waited.scheduler.asked < 200  # about once a minute


def test_a_job_whose_nodes_are_down_is_told_of_at_once_and_ended_after_a_while_with_their_names() -> None:
    waited = Watched(None, N1_DOWN)
    waited.wait(1, DOWN)
    assert "n1 is down (bad rail)" in waited.told[0]
    waited.wait(NODES_DOWN_S / 2, DOWN)
    assert waited.given_up is None
    waited.wait(NODES_DOWN_S, DOWN)
    assert waited.given_up is not None
    assert waited.given_up.cause is EndCause.NODE
    assert "n1 is down (bad rail)" in waited.given_up.reason
    assert waited.scheduler.cancelled == ["12"]
    assert len(waited.told) == 2


def test_a_node_that_comes_back_in_time_ends_nothing() -> None:
    waited = Watched(None, N1_DOWN, N1_DOWN, Waiting())
    waited.wait(10 * NODES_DOWN_S, DOWN)
    assert waited.given_up is None


def test_with_a_policy_nodes_that_are_down_are_waited_for_as_long_as_it_says() -> None:
    waited = Watched(Pending(wait_at_most_s=300), N1_DOWN)
    waited.wait(299, DOWN)
    assert waited.given_up is None
    waited.wait(5, DOWN)
    assert waited.given_up is not None
    assert waited.given_up.cause is EndCause.NODE


def test_a_job_that_waited_too_long_is_cancelled_and_says_so() -> None:
    waited = Watched(Pending(wait_at_most_s=10))
    waited.wait(12)
    assert waited.given_up is not None
    assert (waited.given_up.state, waited.given_up.cause) == (JobState.CANCELLED, EndCause.WAITED)
    assert waited.given_up.reason.startswith("waited 10 s of at most 10 for 4 nodes: it is next [Resources]")
    assert waited.scheduler.cancelled == ["12"]


def test_a_job_that_can_never_start_is_ended_at_once_without_any_policy() -> None:
    waited = Watched(None)
    waited.wait(0, PENDING.model_copy(update={"word": "DependencyNeverSatisfied", "reason": "never"}))
    assert waited.given_up is not None
    assert "can never start" in waited.given_up.reason


def test_a_job_is_moved_once_and_then_waits_anew_and_is_cancelled() -> None:
    waited = Watched(Pending(wait_at_most_s=10, then="move", partition="low"))
    waited.wait(15)
    assert waited.job.id == "12-again"
    assert waited.given_up is None
    waited.wait(10)
    assert waited.given_up is not None
    assert waited.scheduler.moves == [("12", "low")]
    assert waited.scheduler.cancelled == ["12-again"]


def test_a_job_that_cannot_be_moved_is_cancelled_and_says_why() -> None:
    waited = Watched(Pending(wait_at_most_s=10, then="move", partition="none"))
    waited.wait(11)
    assert waited.given_up is not None
    assert "could not be moved to partition 'none': partition 'none' does not exist" in waited.given_up.reason


def test_shrinking_ends_the_step_with_the_nodes_to_ask_for() -> None:
    waited = Watched(Pending(wait_at_most_s=10, then="shrink", min_nodes=2), Waiting(free=3))
    with pytest.raises(ShrinkError) as caught:
        waited.wait(11)
    assert caught.value.shrunk.nodes == 3
    assert "job 'train' (12) waited 10 s" in caught.value.shrunk.reason
    assert waited.scheduler.cancelled == []  # the step's end cancels all of its jobs


def test_a_job_that_ran_and_was_requeued_begins_to_wait_anew() -> None:
    waited = Watched(Pending(wait_at_most_s=10))
    waited.wait(8)
    waited.wait(100, JobStatus(state=JobState.RUNNING))
    waited.wait(8)
    assert waited.given_up is None
    waited.wait(4)
    assert waited.given_up is not None


def test_a_scheduler_that_does_not_answer_is_asked_again_and_hides_nothing_that_is_known() -> None:
    waited = Watched(Pending(wait_at_most_s=100), SchedulerError("Socket timed out"))
    waited.wait(99)
    assert (waited.told, waited.given_up) == ([], None)
    assert waited.scheduler.asked > 1
    waited.wait(5)
    assert waited.given_up is not None
    assert "it is next [Resources]" in waited.given_up.reason
