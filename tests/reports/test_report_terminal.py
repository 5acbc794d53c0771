"""The terminal tells what became of a run and of a climb, with and without colour."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sample_run
from surefoot.model.check import Check, Evidence
from surefoot.model.events import Event, JobChanged, Note, Progress, RungEnded, RungStarted
from surefoot.model.job import JobState
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.reports.terminal import LiveLadder, show

RUN = sample_run.passed_run()


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown(name: str) -> str:
    run = sample_run.all_runs()[name]
    console = plain()
    show(console, run.manifest, run.results, run.overall, report=Path("/srv/runs/r/report.html"))
    return output(console)


def test_the_last_lines_are_the_verdict_and_the_report() -> None:
    lines = shown("passed").splitlines()
    assert lines[-2] == "✓ PASSED: 14 of 14 rungs proved in 1 min 40 s. Exit 0: proved."
    assert lines[-1] == "Report: /srv/runs/r/report.html"


def test_every_rung_fits_eighty_columns_without_escape_sequences() -> None:
    text = shown("interrupted")
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.splitlines()[:-2])
    for rung in sample_run.RUNGS:
        assert rung[0] in text


def test_a_failed_check_is_told_with_figures_file_line_and_next_action() -> None:
    text = shown("failed")
    for part in (
        "✗ FAILED", "expected exit 0", "actual   exit 1", "rungs/fake_trainer/attempt-001/raw/fake_trainer/done.json:1",
        "RuntimeError: told to fail", "take that out", "⊘ BLOCKED",
    ):  # fmt: skip
        assert part in text


def test_an_unmeasured_figure_reads_as_a_dash() -> None:
    assert "actual   -" in shown("interrupted")


def test_escape_sequences_and_markup_in_evidence_do_not_reach_the_terminal() -> None:
    bad = "\x1b]0;owned\x07\x9b31m [red]x[/red] [/]\nnext line\u202e"
    check = Check(
        id="storage.x",
        claim=bad,
        status=Status.FAILED,
        expected=bad,
        actual=bad,
        next_action=bad,
        evidence=(Evidence(file=bad, text=bad),),
    )
    judgement = Judgement(checks=(check,), summary=bad)
    run = RUN.with_result(
        RUN.result("storage").model_copy(
            update={"status": Status.FAILED, "reason": bad, "title": bad, "judgement": judgement}
        )
    )
    console = plain()
    show(console, run.manifest, run.results, run.overall)
    live = LiveLadder(console, run.manifest)
    with live:
        live.on_event(RungEnded(result=run.result("storage"), at=1))
        live.on_event(Note(text=bad, at=1))
    text = output(console)
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "[red]x[/red] [/]" in text


def test_a_terminal_that_lacks_the_signs_gets_question_marks_not_an_error() -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80)
    show(console, RUN.manifest, RUN.results, RUN.overall)
    console.file.flush()
    assert b"PASSED: 14 of 14 rungs proved" in raw.getvalue()


# --- the climb as it happens --------------------------------------------------------------

TRAIN = {"rung": "finetune", "job": "train"}


def lines_of(*events: Event) -> list[str]:
    console = plain(200)
    with LiveLadder(console, RUN.manifest) as live:
        for event in events:
            live.on_event(event)
    return output(console).splitlines()


def test_without_a_terminal_start_and_end_of_a_rung_are_one_line_each() -> None:
    result = RUN.result("ddp")
    assert lines_of(RungStarted(rung="ddp", at=0), RungEnded(result=result, at=4)) == [
        "▸ ddp: started",
        "✓ ddp: PASSED  loss 2.5000000 on 2 ranks, expected 2.5 (4.3 s)",
    ]


def test_without_a_terminal_progress_is_told_at_most_every_ten_seconds_with_an_estimate() -> None:
    steps = [Progress(**TRAIN, done=n, total=90, text=f"loss {3 - n / 40:.2f}", at=float(n)) for n in range(1, 36)]
    told = lines_of(RungStarted(rung="finetune", at=0), *steps)
    assert told == [
        "▸ finetune: started",
        "  finetune: 10/90 loss 2.75 (10.0 s, about 1 min 20 s left)",
        "  finetune: 20/90 loss 2.50 (20.0 s, about 1 min 10 s left)",
        "  finetune: 30/90 loss 2.25 (30.0 s, about 1 min 00 s left)",
    ]


def changed(state: JobState, at: float, **more: Any) -> JobChanged:
    return JobChanged.model_validate({**TRAIN, "job_id": "57", "state": state, "at": at, **more})


def test_without_a_terminal_a_job_that_waits_says_so_and_why_once_and_then_as_every_running_rung() -> None:
    waits = [changed(JobState.PENDING, at, reason="it is next", expected_start=1e5 + at) for at in (1, 5, 6, 14, 17)]
    assert lines_of(RungStarted(rung="finetune", at=0), *waits)[1:] == [
        "  finetune: job train 57 PENDING: it is next; starts 1970-01-02",
        "  finetune: job train 57 pending (it is next) (17.0 s)",
    ]


def test_without_a_terminal_each_change_of_a_job_is_one_line() -> None:
    told = lines_of(
        RungStarted(rung="finetune", at=0),
        changed(JobState.PENDING, 1, reason="it is next"),  # starts at once: not worth a line
        changed(JobState.RUNNING, 2, nodes="n[1-2]"),
        changed(JobState.RUNNING, 3, nodes="n[1-2]", elapsed_s=1),
        changed(JobState.PENDING, 4, reason="preempted; Slurm puts it back into the queue"),
        changed(JobState.PENDING, 9, reason="preempted; Slurm puts it back into the queue"),
        changed(JobState.RUNNING, 10, nodes="n[3-4]"),
        changed(JobState.TIMEOUT, 11, nodes="n[3-4]", reason="time limit"),
    )
    assert told[1:] == [
        "  finetune: job train 57 RUNNING on n[1-2]",
        "  finetune: job train 57 PENDING: preempted; Slurm puts it back into the queue",
        "  finetune: job train 57 RUNNING on n[3-4]",
        "  finetune: job train 57 TIMEOUT on n[3-4]: time limit",
    ]


def test_without_a_terminal_a_job_of_this_machine_is_not_worth_a_line() -> None:
    """It has no nodes: its rung's own lines tell of it."""
    assert len(lines_of(RungStarted(rung="finetune", at=0), changed(JobState.RUNNING, 1))) == 1


def test_no_estimate_is_made_before_there_is_a_pace_or_where_the_total_is_unknown() -> None:
    start = RungStarted(rung="finetune", at=0)
    assert "left" not in lines_of(start, Progress(**TRAIN, done=1, total=90, at=11))[-1]
    unknown = [Progress(**TRAIN, done=n, total=0, text="warming up", at=10.0 * n) for n in (1, 2)]
    assert "left" not in lines_of(start, *unknown)[-1]


def test_a_rung_that_runs_again_forgets_its_former_pace() -> None:
    told = lines_of(
        RungStarted(rung="finetune", at=0),
        Progress(**TRAIN, done=80, total=90, at=30),
        RungStarted(rung="finetune", at=40),
        Progress(**TRAIN, done=5, total=90, text="again", at=51),
    )
    assert told[-1] == "  finetune: 5/90 again (11.0 s)"


def test_a_job_that_is_submitted_again_forgets_its_former_pace() -> None:
    told = lines_of(
        RungStarted(rung="finetune", at=0),
        changed(JobState.RUNNING, 1),
        Progress(**TRAIN, done=1, total=90, at=2),
        Progress(**TRAIN, done=80, total=90, at=30),
        changed(JobState.RUNNING, 40, job_id="58"),
        Progress(**TRAIN, done=5, total=90, text="again", at=51),
    )
    assert told[-1] == "  finetune: 5/90 again (51.0 s)"


@pytest.fixture
def screen() -> Console:
    return Console(
        file=io.StringIO(), width=100, height=30, force_terminal=True, color_system=None, _environ={"TERM": "xterm"}
    )


def drawn(live: LiveLadder, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=100, height=height)
    console.print(live._render())
    return output(console)


def test_in_a_terminal_each_rung_is_waiting_running_or_done(screen: Console) -> None:
    live = LiveLadder(screen, RUN.manifest, {"ddp", "finetune", "gate"}, clock=lambda: 45.0)
    for event in (
        RungEnded(result=RUN.result("ddp"), at=1), RungStarted(rung="finetune", at=5),
        Progress(**TRAIN, done=10, total=90, text="loss 0.90", at=15), Progress(**TRAIN, done=40, total=90, text="step 40/90 loss 0.41", at=45),
    ):  # fmt: skip
        live.on_event(event)
    rows = {line.split()[1]: line for line in drawn(live).splitlines() if line.strip()}
    assert "✓" in rows["ddp"]
    assert "PASSED" in rows["ddp"]
    assert "step 40/90 loss 0.41" in rows["finetune"]
    assert "40.0 s, about 50.0 s left" in rows["finetune"]
    assert "waits" in rows["gate"]
    assert "not asked for" in rows["review"]


def test_on_a_low_screen_the_running_rung_stays_in_sight() -> None:
    low = Console(file=io.StringIO(), width=100, height=8, force_terminal=True, _environ={"TERM": "xterm"})
    live = LiveLadder(low, RUN.manifest, clock=lambda: 10.0)
    for name in ("runner", "sync", "scheduler"):
        live.on_event(RungEnded(result=RUN.result(name), at=1))
    live.on_event(RungStarted(rung="gate", at=5))
    text = drawn(live)
    assert "gate" in text
    assert "3 done" in text
    assert len(text.splitlines()) <= 8


def jobs_view(width: int, height: int, *events: Event) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, _environ={"TERM": "xterm"})
    live = LiveLadder(console, RUN.manifest, clock=lambda: 100.0)
    live.on_event(RungStarted(rung="finetune", at=5))
    for event in events:
        live.on_event(event)
    screen = Console(file=io.StringIO(), width=width, height=height)
    screen.print(live._render())
    return [line.rstrip() for line in output(screen).splitlines()]


def test_the_jobs_of_a_running_rung_stand_below_it_with_time_and_limit_which_go_on_by_themselves() -> None:
    lines = jobs_view(80, 30, changed(JobState.RUNNING, 60, nodes="n[1-3]", elapsed_s=3, limit_s=7200))
    at = next(index for index, line in enumerate(lines) if "finetune" in line)
    assert lines[at + 1] == "     train  57  RUNNING  0:43/2:00:00  n[1-3]"


def test_a_job_that_waits_shows_since_when_until_when_and_for_what() -> None:
    events = [changed(JobState.PENDING, at, reason="it is next [Resources]", expected_start=1e6) for at in (40, 70)]
    lines = jobs_view(80, 30, *events)
    at = next(index for index, line in enumerate(lines) if "finetune" in line)
    assert "in the queue" in lines[at]
    assert lines[at + 1] == "     train  57  PENDING  1:00  starts 1970-01-12"
    assert lines[at + 2] == "       it is next [Resources]"


def test_jobs_that_completed_are_counted_and_those_that_failed_are_shown() -> None:
    events = [changed(JobState.COMPLETED, 50, job=f"ok-{n}", nodes="n1") for n in range(3)]
    lines = jobs_view(
        80, 30, *events, changed(JobState.FAILED, 51, job="bad", nodes="n2", elapsed_s=9, reason="failed")
    )
    at = next(index for index, line in enumerate(lines) if "finetune" in line)
    assert "4 of 4 jobs over" in lines[at]
    assert lines[at + 1 : at + 3] == ["     bad  57  FAILED  0:09  n2", "       failed"]
    assert not any("ok-1" in line for line in lines)


@pytest.mark.parametrize("height", [8, 16, 18, 20, 24])
def test_however_many_jobs_there_are_the_view_fits_eighty_columns_and_the_screen(height: int) -> None:
    long = "ReqNodeNotAvail, " * 20
    states = (JobState.PENDING, JobState.RUNNING)
    events = [
        changed(
            states[n % 2], 50, job=f"job-{n}-{'x' * 50}", job_id=str(10**11 + n), nodes=f"{'gpu,' * 30}", reason=long
        )
        for n in range(40)
    ]
    lines = jobs_view(80, height, *events)
    assert len(lines) <= height
    assert max(map(len, lines)) <= 80
    assert any("finetune" in line for line in lines)


def test_the_view_takes_events_from_many_threads(screen: Console) -> None:
    with LiveLadder(screen, RUN.manifest) as live:

        def work(name: str) -> None:
            live.on_event(RungStarted(rung=name, at=0))
            for n in range(200):
                live.on_event(Progress(rung=name, job="j", done=n, total=200, at=float(n)))
            live.on_event(RungEnded(result=RUN.result(name), at=200))

        threads = [threading.Thread(target=work, args=(name,)) for name, *_ in sample_run.RUNGS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        text = drawn(live)
    assert text.count("PASSED") == 14
