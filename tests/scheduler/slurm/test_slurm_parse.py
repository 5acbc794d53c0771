"""Rows, times and sizes as Slurm writes them. What labs of several versions printed is in `test_slurm_recorded`.

Here are cases that no lab has shown, written from the manual pages of the version that their folder names.
"""

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


def test_an_empty_answer_is_no_rows() -> None:
    assert parse.accounting("") == parse.queue("") == parse.nodes("") == []


def test_times_in_a_zone_that_is_not_known_are_no_times() -> None:
    rows = parse.queue(text("20.11-documented/squeue.txt"))
    assert [row.submitted_at for row in rows] == [None] * 3
    assert rows[0].elapsed_s == 93_784
    assert rows[0].limit_s == 172_800
    assert rows[1].tag == ""
    assert rows[1].reason.startswith("ReqNodeNotAvail")


def test_a_node_that_is_down_or_draining_is_not_usable_and_says_why() -> None:
    nodes = parse.nodes(text("20.11-documented/sinfo.txt"))
    assert [(n.state, n.usable, n.gpus, n.reason) for n in nodes] == [
        ("down", False, 8, "Not responding"), ("draining", False, 8, "bad rail"), ("idle", True, 0, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "usable", "told"),
    [
        ("idle", True, "n1 is idle"),
        ("idle*", False, "n1 is idle, and does not respond"),
        ("mixed*+", False, "n1 is mixed, and does not respond"),
        ("down*", False, "n1 is down"),
        ("idle~", True, "n1 is idle"),
        ("allocated+", True, "n1 is allocated"),
    ],
)
def test_slurm_starts_nothing_on_a_node_that_does_not_respond(state: str, usable: bool, told: str) -> None:
    (node,) = parse.nodes(SEPARATOR.join(["n1", "gpu*", state, "8", "1000", "(null)", "none"]) + "\n")
    assert (node.usable, node.told) == (usable, told)


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
    assert parse.job_id("Your balance: 400 h\n12;cluster\nHave a nice day\n") == "12"
    for said in ("", "Submitted batch job 12", "12_3", "12\n13\n"):
        with pytest.raises(SchedulerError, match=r"did not say (a|one) job id"):
            parse.job_id(said)


def test_a_line_break_in_a_job_s_name_or_comment_or_folder_hides_no_job() -> None:
    queue = ["1", "RUNNING", "None", "1", "1", "0:01", "10:00", "n1"]
    text = "".join(
        f"{SEPARATOR.join(row)}\n"
        for row in (
            [*queue, "my\njob\n\nname", "one\ntwo", "/srv/a\nb"],
            ["2", *queue[1:], "sync", "surefoot:r:n:sync", "/srv/c"],
        )
    )
    found = parse.queue_of_user(text)
    assert [(row.id, row.name, row.tag, folder) for row, folder in found] == [
        ("1", "my\njob\n\nname", "one\ntwo", "/srv/a\nb"), ("2", "sync", "surefoot:r:n:sync", "/srv/c"),
    ]  # fmt: skip
    (holder,) = parse.holders(SEPARATOR.join(["3", "ann", "a\nb", "n1", "5:00"]) + "\n")
    assert (holder.name, holder.left_s) == ("a\nb", 300)


def test_a_line_break_in_a_node_s_reason_hides_no_node() -> None:
    rows = [["n1", "gpu*", "drained", "8", "1000", "(null)", "fan\nbroken"], ["n2", "gpu*", "idle", "8", "1000", "(null)", "none"]]  # fmt: skip
    found = parse.nodes("".join(f"{SEPARATOR.join(row)}\n" for row in rows))
    assert [(node.name, node.reason) for node in found] == [("n1", "fan\nbroken"), ("n2", "")]


def test_what_a_wrapper_prints_before_or_after_the_queue_is_an_error() -> None:
    row = SEPARATOR.join(["1", "RUNNING", "None", "1", "1", "0:01", "10:00", "n1", "j", "t"])
    for said in (f"hello\n{row}\n", f"{row}\nhello\n", f"{SEPARATOR.join('ab')}\n{row}\n", f"x{row}\n"):
        with pytest.raises(SchedulerError, match=r"fields instead of|no job's id"):
            parse.queue(said)


def test_how_long_slurm_waits_before_it_kills_where_nothing_says_so() -> None:
    assert kill_wait_s("") == 30


def test_a_reason_in_brackets_loses_them_and_nothing_else() -> None:
    fields = ["1", "FAILED", "{}", "1", "1", "0:01", "10:00", "n1", "j", "t"]
    row = SEPARATOR.join(fields)
    said = {"(Resources)": "Resources", "RaisedSignal:9(Killed)": "RaisedSignal:9(Killed)", "None": "None"}
    assert {reason: parse.queue(row.format(reason) + "\n")[0].reason for reason in said} == said


@pytest.mark.parametrize(
    ("gres", "kind"),
    [("gpu:h100:8(S:0-1),nvme:1", "h100"), ("gpu:8", ""), ("(null)", ""), ("gpu:b:1,gpu:a:2", "a+b"), ("nvme:x:1", "")],
)
def test_the_type_of_a_nodes_gpus_is_what_the_site_calls_them(gres: str, kind: str) -> None:
    assert parse.gpu_type(gres) == kind


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000, "-1", ""])
def test_what_is_no_count_makes_no_row_of_a_node(number: str) -> None:
    with pytest.raises(SchedulerError, match="are no numbers"):
        parse.nodes(SEPARATOR.join(["n1", "gpu*", "idle", number, "1000", "gpu:8", "none"]))


def test_a_time_that_no_clock_shows_is_none() -> None:
    for text in ("9" * 5000, f"{'9' * 400}-00:00:00", "\u00b2"):
        assert (parse.duration_s(text), parse.moment(text)) == (None, None)
