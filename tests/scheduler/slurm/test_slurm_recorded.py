"""Every version of Slurm that was recorded on a lab (``record_slurm.py``): what it printed means the same to us."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from surefoot.connection.base import CommandResult
from surefoot.hostlist import expand
from surefoot.model.job import EndCause, JobState
from surefoot.scheduler.slurm import commands, parse
from surefoot.scheduler.slurm.controller import is_busy
from surefoot.scheduler.slurm.launch import kill_wait_s
from surefoot.scheduler.slurm.pending import word_of
from surefoot.scheduler.slurm.states import ACTIVE, FINAL, QueueRow, Witnesses, reconcile

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "squeue.json").exists())
LATER = 2_000_000_000.0


@dataclass(frozen=True)
class Answer(CommandResult):
    """How a command ended that was recorded, and which it was."""

    argv: tuple[str, ...]


Said = Callable[[str], Answer]


@pytest.fixture(params=VERSIONS)
def said(request: pytest.FixtureRequest) -> Said:
    """What a command answered, by the name of its file."""

    def answer(case: str) -> Answer:
        document: dict[str, Any] = json.loads((GOLDEN / request.param / f"{case}.json").read_text())
        out, err = ("".join(f"{line}\n" for line in document[stream]).encode() for stream in ("stdout", "stderr"))
        return Answer(document["exit_code"], None, out, err, 0.0, 0.0, tuple(document["argv"]))

    return answer


def text(result: CommandResult) -> str:
    return result.stdout.decode()


def queue(said: Said, case: str = "squeue") -> dict[str, QueueRow]:
    """Rows by the job's name, those of arrays with their element."""
    rows = parse.queue(text(said(case)))
    return {row.name + (f"_{row.id.split('_')[1]}" if "_" in row.id else ""): row for row in rows}


def test_the_versions_that_are_said_to_be_recorded_are() -> None:
    assert [version.rsplit(".", 1)[0] for version in VERSIONS] == ["20.11", "22.05", "24.11", "26.05"]


def test_what_was_asked_is_what_is_asked_today(said: Said) -> None:
    """Otherwise this proves nothing about what today's Surefoot would read."""
    assert list(said("sinfo").argv) == commands.sinfo()
    assert list(said("partitions").argv) == commands.show_partitions()
    assert list(said("squeue-holders").argv) == commands.squeue_of_holders()
    assert list(said("squeue-user").argv) == commands.squeue_of_user("2001")
    for case, asks in {"squeue": commands.squeue, "sacct": commands.sacct, "scancel-unknown": commands.scancel}.items():
        ids = said(case).argv[-1].removeprefix("--jobs=").split(",")
        assert list(said(case).argv) == asks(ids)


def test_every_state_and_reason_of_the_queue_is_known(said: Said) -> None:
    rows = queue(said)
    assert {row.state for row in rows.values()} <= ACTIVE.keys() | FINAL.keys()
    assert all(row.submitted_at is not None and row.tag.startswith("surefoot:run-1:abc:") for row in rows.values())
    running = rows["limit"]
    assert (running.state, running.nodes, running.limit_s, running.reason) == ("RUNNING", "n[1-2]", 60, "None")
    assert running.elapsed_s is not None
    assert 0 < running.elapsed_s < 60
    ended = ("ok", "seven", "segv", "bloat", "array_1", "array_2", "cancelled")
    assert [rows[name].state for name in ended] == [
        "COMPLETED", "FAILED", "FAILED", "FAILED", "COMPLETED", "FAILED", "CANCELLED",
    ]  # fmt: skip
    waiting = ("waits", "after", "never", "held", "begin", "elements_9")
    assert [(rows[name].state, word_of(rows[name].reason)) for name in waiting] == [
        ("PENDING", "Resources"), ("PENDING", "Dependency"), ("PENDING", "DependencyNeverSatisfied"),
        ("PENDING", "JobHeldUser"), ("PENDING", "BeginTime"), ("PENDING", "JobHeldUser"),
    ]  # fmt: skip
    begin = rows["begin"]
    assert begin.started_at is not None
    assert begin.submitted_at is not None
    assert begin.started_at - begin.submitted_at == 3600
    assert (rows["held"].started_at, rows["held"].nodes) == (None, "")


def test_a_user_s_jobs_come_with_their_folder_and_holders_with_their_owner(said: Said) -> None:
    rows = parse.queue_of_user(text(said("squeue-user")))
    assert {folder for _, folder in rows} == {"/tmp"}  # noqa: S108 - where they were submitted
    assert len(rows) == 17
    (holder,) = parse.holders(text(said("squeue-holders")))
    assert (holder.user, holder.name, holder.nodes) == ("climber", "limit", "n[1-2]")
    assert holder.left_s is not None
    assert 0 < holder.left_s < 60


def test_accounting_tells_every_life_and_how_it_ended(said: Said) -> None:
    ids = {row.name: row.id.split("_")[0] for row in queue(said).values()}
    rows = parse.accounting(text(said("sacct")))
    lives = {name: [(row.state, row.exit_code, row.signal) for row in rows if row.id == ids[name]] for name in ids}
    assert lives["ok"] == [("COMPLETED", 0, 0)]
    assert lives["seven"] == [("FAILED", 7, 0)]
    assert lives["segv"] == [("FAILED", 0, 11)]
    assert lives["limit"] == [("TIMEOUT", 0, 0)]
    assert lives["low"] == [("PREEMPTED", 0, 0), ("CANCELLED", 0, 0)]
    assert lives["requeued"] == [("REQUEUED", 0, 0), ("CANCELLED", 0, 0)]
    assert [row.state for row in rows if row.id.startswith(f"{ids['array']}_")] == ["COMPLETED", "FAILED", "COMPLETED"]
    never = next(row for row in rows if row.id == ids["never"])
    assert (never.started_at is None or never.started_at == never.ended_at, never.nodes) == (True, "")
    assert all(row.submitted_at is not None for row in rows)


def test_how_jobs_ended_follows_from_the_queue_and_accounting(said: Said) -> None:
    accounts = parse.accounting(text(said("sacct")))
    queued, over = queue(said), queue(said, "squeue-over")
    found = {}
    for name, row in {**queued, **over, **queue(said, "squeue-node-fail")}.items():
        mine = accounts if name in queued or name in over else parse.accounting(text(said("sacct-node-fail")))
        status = reconcile(
            Witnesses(
                job_id=row.id, submitted_at=row.submitted_at or 0, now=LATER, answered=True, queue=row,
                accounting=mine, silent_since=0.0,
            )
        )  # fmt: skip
        found[name] = (status.state, status.cause)
    wanted = {
        "ok": (JobState.LOST, EndCause.LOST),  # COMPLETED, and no done.json: that proves nothing
        "seven": (JobState.FAILED, EndCause.EXIT),
        "segv": (JobState.FAILED, EndCause.EXIT),
        "limit": (JobState.TIMEOUT, EndCause.TIME),
        "cancelled": (JobState.CANCELLED, EndCause.CANCELLED),
        "lost": (JobState.FAILED, EndCause.NODE),
        "put-back": (JobState.PENDING, None),
        "waits": (JobState.PENDING, None),
        "requeued": (JobState.PENDING, None),
    }
    assert {name: found[name] for name in wanted} == wanted


def test_without_accounting_a_signal_is_still_told_from_a_failure(said: Said) -> None:
    row = queue(said)["segv"]
    status = reconcile(
        Witnesses(
            job_id=row.id, submitted_at=row.submitted_at or 0, now=LATER, answered=True, queue=row, silent_since=0.0
        )
    )
    assert status.state is JobState.FAILED
    assert "signal" in status.reason


def test_a_preempted_job_waits_again_and_its_first_life_is_accounted(said: Said) -> None:
    rows = queue(said, "squeue-preempted")
    assert (rows["low"].state, rows["high"].state) == ("PENDING", "RUNNING")
    lives = [row.state for row in parse.accounting(text(said("sacct-preempted"))) if row.id == rows["low"].id]
    assert lives[0] == "PREEMPTED"


def test_nodes_partitions_and_what_is_wrong_with_them(said: Said) -> None:
    assert {(n.name, n.partition, n.default, n.state, n.gpus, n.cpus) for n in parse.nodes(text(said("sinfo")))} == {
        (f"n{number}", name, name == "gpu", "idle", 8, 96) for number in (1, 2) for name in ("gpu", "low")
    }
    down = {n.name: n for n in parse.nodes(text(said("sinfo-down")))}
    assert (down["n1"].usable, down["n1"].reason) == (False, "bad rail, row 3")
    assert (down["n2"].usable, down["n2"].state, down["n2"].reason) == (False, "down", "Not responding")
    partitions = parse.partitions(text(said("partitions")))
    assert [(p.name, p.state, p.max_time_s) for p in partitions] == [("gpu", "UP", 86_400), ("low", "UP", 86_400)]


def test_hostlists_mean_what_this_version_says_they_mean(said: Said) -> None:
    listed = said("hostnames")
    assert expand(listed.argv[-1]) == text(listed).split()


def test_a_job_id_and_kill_wait_are_found(said: Said) -> None:
    assert parse.job_id(text(said("sbatch"))).isdigit()
    assert kill_wait_s(text(said("config"))) == 5


@pytest.mark.parametrize("case", ["queue-away", "config-away", "sinfo-away", "sbatch-away", "scancel-away"])
def test_a_controller_that_is_away_is_asked_again(said: Said, case: str) -> None:
    assert said(case).exit_code != 0
    assert is_busy(said(case))


REFUSED = ("partition", "gres", "account", "qos", "constraint", "nodelist", "reservation", "memory", "option")


@pytest.mark.parametrize("case", REFUSED)
def test_what_slurm_refuses_is_not_asked_again(said: Said, case: str) -> None:
    refused = said(f"sbatch-bad-{case}")
    assert refused.exit_code != 0
    assert not is_busy(refused)


def test_an_unknown_job_is_no_row_and_ending_it_no_error(said: Said) -> None:
    assert b"Invalid job id specified" in said("squeue-unknown").stderr
    assert [row.name for row in parse.queue(text(said("squeue-one-unknown")))] == ["known"]
    assert parse.accounting(text(said("sacct-unknown"))) == []
    assert said("scancel-unknown").exit_code == said("scancel-over").exit_code == 0
