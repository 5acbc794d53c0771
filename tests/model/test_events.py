"""Events survive the file that keeps them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from surefoot.model.check import Check, Evidence
from surefoot.model.events import Event, JobChanged, Note, Progress, RungEnded, RungStarted, event_line, parse_event
from surefoot.model.job import JobState
from surefoot.model.run import Judgement, RungResult
from surefoot.model.status import Status

CHECK = Check(id="ddp.loss", claim="c", status=Status.PASSED, evidence=(Evidence(file="raw/a"),))
RESULT = RungResult(
    rung="ddp",
    title="DDP step",
    proves="p",
    status=Status.PASSED,
    judgement=Judgement(checks=(CHECK,), summary="loss 1.25", details={"big": list(range(1000))}),
)


@pytest.mark.parametrize(
    "event",
    [
        RungStarted(rung="ddp", at=1.5),
        JobChanged(rung="ddp", job="step", job_id="17", state=JobState.PENDING, reason="Resources", at=2),
        Progress(rung="finetune", job="train", done=40, total=90, text="loss 0.41\n", at=3),
        Note(text="resumed", at=4),
    ],
)
def test_an_event_is_one_line_that_reads_back_the_same(event: Event) -> None:
    line = event_line(event)
    assert "\n" not in line
    assert parse_event(line) == event


def test_an_ended_rung_is_kept_short_but_keeps_status_and_summary() -> None:
    line = event_line(RungEnded(result=RESULT, at=5))
    event = parse_event(line)
    assert "details" not in line
    assert "measurements" not in line
    assert isinstance(event, RungEnded)
    assert (event.result.status, event.result.judgement.summary) == (Status.PASSED, "loss 1.25")


def test_a_line_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        parse_event('{"kind": "rung_exploded", "at": 1}')
