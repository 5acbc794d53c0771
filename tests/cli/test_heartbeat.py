"""A log of a climb gets a line from every running rung, also from one that says nothing."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

import sample_run
from surefoot.model.events import Progress, RungEnded, RungStarted
from surefoot.reports.live import LiveLadder

RUN = sample_run.passed_run()


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def told(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def wait_for(console: Console, lines: int) -> list[str]:
    deadline = time.monotonic() + 10
    while len(told(console)) < lines and time.monotonic() < deadline:
        time.sleep(0.01)
    return told(console)


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setattr("surefoot.reports.live._TICK_S", 0.01)
    return Console(file=io.StringIO(), width=200, force_terminal=False)


def test_a_rung_that_sends_no_event_is_told_of_every_ten_seconds(console: Console) -> None:
    clock = Clock()
    with LiveLadder(console, RUN.manifest, clock=clock) as live:
        live.on_event(RungStarted(rung="finetune", at=1000.0))
        live.on_event(Progress(rung="finetune", job="train", done=40, total=90, text="step 40/90", at=1001.0))
        live.on_event(RungStarted(rung="ddp", at=1000.0))
        for seconds, lines in ((9.9, 2), (10.0, 4), (19.9, 4), (20.0, 6)):
            clock.now = 1000.0 + seconds
            time.sleep(0.05)
            wait_for(console, lines)
            assert len(told(console)) == lines
    assert told(console)[2:] == [
        "  ddp: running (10.0 s)",
        "  finetune: step 40/90 (10.0 s)",
        "  ddp: running (20.0 s)",
        "  finetune: step 40/90 (20.0 s)",
    ]


def test_a_rung_that_ended_is_told_of_no_more_and_the_timer_ends_with_the_climb(console: Console) -> None:
    clock = Clock()
    with LiveLadder(console, RUN.manifest, clock=clock) as live:
        live.on_event(RungStarted(rung="ddp", at=1000.0))
        live.on_event(RungEnded(result=RUN.result("ddp"), at=1001.0))
        clock.now = 2000.0
        time.sleep(0.1)
    assert len(told(console)) == 2
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_an_output_that_cannot_be_written_does_not_end_the_climb() -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    full = Console(file=Full(), width=80, force_terminal=False)
    with LiveLadder(full, RUN.manifest) as live:
        for _ in range(3):
            live.on_event(RungStarted(rung="ddp", at=1.0))
