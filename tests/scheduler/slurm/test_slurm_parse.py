"""Recorded output of Slurm's commands. Files whose first line begins with ``#:`` were written from manual pages."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from surefoot.errors import SchedulerError
from surefoot.scheduler.slurm import parse
from surefoot.scheduler.slurm.commands import SEPARATOR
from surefoot.scheduler.slurm.launch import kill_wait_s

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"


def text(name: str) -> str:
    lines = (GOLDEN / name).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#:"))


def test_the_queue_of_22_05() -> None:
    rows = {row.id: row for row in parse.queue(text("22.05.8/squeue.txt"))}
    assert len(rows) == 18
    assert (rows["6"].state, rows["6"].nodes, rows["6"].limit_s, rows["6"].elapsed_s) == ("RUNNING", "n[1-2]", 600, 5)
    assert (rows["11"].state, rows["11"].reason, rows["11"].started_at) == ("PENDING", "Resources", 1795975348)
    assert (rows["12"].reason, rows["12"].started_at, rows["12"].nodes) == ("Dependency", None, "")
    assert (rows["5_2"].state, rows["5_2"].tag) == ("FAILED", "surefoot:run-1:abc:arr")
    assert rows["14_4"].state == "PENDING"


def test_accounting_of_22_05() -> None:
    rows = {row.id: row for row in parse.accounting(text("22.05.8/sacct.txt"))}
    assert len(rows) == 18
    assert (rows["2"].state, rows["2"].exit_code, rows["2"].signal) == ("FAILED", 7, 0)
    assert (rows["3"].exit_code, rows["3"].signal) == (0, 11)
    assert rows["7"].state == "CANCELLED"
    assert (rows["8"].state, rows["8"].ended_at) == ("TIMEOUT", 1795974826)
    assert (rows["13"].started_at, rows["13"].nodes) == (None, "")


def test_an_empty_answer_is_no_rows() -> None:
    assert parse.accounting(text("22.05.8/sacct-unknown.txt")) == []
    assert parse.queue(text("22.05.8/squeue-one-unknown.txt")) == []


def test_nodes_and_partitions_of_22_05() -> None:
    nodes = parse.nodes(text("22.05.8/sinfo.txt"))
    assert [(n.name, n.partition, n.default, n.gpus, n.usable) for n in nodes[:2]] == [
        ("n1", "gpu", True, 8, True),
        ("n1", "short", False, 8, True),
    ]
    assert [(p.name, p.max_time_s, p.max_nodes) for p in parse.partitions(text("22.05.8/partitions.txt"))] == [
        ("gpu", inf, inf),
        ("short", 300, inf),
    ]


def test_times_in_a_zone_that_is_not_known_are_no_times() -> None:
    rows = parse.queue(text("20.11-documented/squeue.txt"))
    assert [row.submitted_at for row in rows] == [None] * 3
    assert rows[0].elapsed_s == 93_784
    assert rows[0].limit_s == 172_800
    assert rows[1].tag == ""
    assert rows[1].reason.startswith("ReqNodeNotAvail")


def test_lives_of_a_requeued_job_and_elements_taken_together() -> None:
    rows = parse.accounting(text("20.11-documented/sacct.txt"))
    assert [(row.id, row.state) for row in rows] == [
        ("41", "CANCELLED"), ("44", "PREEMPTED"), ("44", "PENDING"), ("46", "NODE_FAIL"),
    ]  # fmt: skip


def test_a_node_that_is_down_or_draining_is_not_usable_and_says_why() -> None:
    nodes = parse.nodes(text("20.11-documented/sinfo.txt"))
    assert [(n.state, n.usable, n.gpus, n.reason) for n in nodes] == [
        ("down", False, 8, "Not responding"), ("draining", False, 8, "bad rail"), ("idle", True, 0, ""),
    ]  # fmt: skip


def test_states_and_limits_of_25_05() -> None:
    assert [row.state for row in parse.queue(text("25.05-documented/squeue.txt"))] == [
        "COMPLETING", "REQUEUE_HOLD", "SOMETHING_NEW",
    ]  # fmt: skip
    partitions = parse.partitions(text("25.05-documented/partitions.txt"))
    assert [(p.name, p.state, p.max_nodes, p.max_time_s) for p in partitions] == [
        ("gpu", "UP", 4, 604_800), ("old", "DRAIN", inf, inf),
    ]  # fmt: skip


@pytest.mark.parametrize("parser", [parse.queue, parse.accounting, parse.nodes])
@pytest.mark.parametrize("line", ["slurm_load_jobs error: nonsense", SEPARATOR.join("abc"), SEPARATOR * 30])
def test_a_line_that_is_no_row_is_an_error_that_shows_it(parser: object, line: str) -> None:
    with pytest.raises(SchedulerError, match="fields instead of"):
        parser(f"{line}\n")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("1-02:03:04", 93_784),
        ("03:04", 184),
        ("1:00:00", 3600),
        ("5", 300),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
        ("12:34.567", 754),
    ],
)
def test_durations(said: str, seconds: float | None) -> None:
    assert parse.duration_s(said) == seconds


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:a100:4,gpu:h100:2,nvme:1", 6),
        ("(null)", 0),
        ("gpu:a100_3g.20gb:7(IDX:0-6)", 7),
        ("gres:gpu:2", 2),
        ("mps:100", 0),
    ],
)
def test_gpus_of_a_node(gres: str, count: int) -> None:
    assert parse.gpus(gres) == count


def test_the_job_id_is_what_sbatch_said_and_nothing_else() -> None:
    assert parse.job_id("12\n") == parse.job_id("12;cluster\n") == parse.job_id("warning\n12\n") == "12"
    for said in ("", "Submitted batch job 12", "12_3"):
        with pytest.raises(SchedulerError, match="did not say a job id"):
            parse.job_id(said)


def test_how_long_slurm_waits_before_it_kills() -> None:
    assert kill_wait_s(text("22.05.8/config.txt")) == 5
    assert kill_wait_s("") == 30
