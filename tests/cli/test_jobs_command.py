"""`surefoot jobs`: what is listed, what is ended, and with which exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.engine.claims import Owner
from surefoot.engine.orphans import Jobs
from surefoot.engine.store import write_record
from surefoot.errors import SchedulerError
from surefoot.model.listed import TaggedJob
from surefoot.paths import RootPaths
from toy_cli import ToyCli

GONE, OTHER = "run-gone", "run-elsewhere"


def job(identifier: str, run: str, **changes: object) -> TaggedJob:
    folder = f"/shared/runs/{run}/rungs/ddp/attempt-001/raw/step"
    fields = {"id": identifier, "name": "step", "state": "RUNNING", "run": run, "nonce": "n" * 16, "folder": folder}
    return TaggedJob.model_validate({**fields, "nodes": "n[1-2]", "elapsed_s": 65, "limit_s": 600, **changes})


class Cluster:
    """A scheduler with one orphan and one job of a run that nobody here knows."""

    stubborn = False

    def __init__(self) -> None:
        self.jobs = [job("7", GONE), job("8", OTHER, state="PENDING", nodes="", elapsed_s=None, reason="it is next")]
        self.silent = False

    def tagged(self, runs: Path) -> list[TaggedJob]:  # noqa: ARG002 - the interface's
        if self.silent:
            raise SchedulerError("squeue failed for 120 s: Socket timed out", next_action="check slurmctld")
        return self.jobs

    def end(self, jobs: Sequence[TaggedJob]) -> list[TaggedJob]:
        left = list(jobs) if self.stubborn else []
        self.jobs = [one for one in self.jobs if one not in jobs or one in left]
        return left


@pytest.fixture
def cluster(toy: ToyCli, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """In place of the cluster that options name."""
    made = Cluster()
    attempt = RootPaths(toy.root).run(GONE).rung("ddp").attempt(1)
    attempt.folder.mkdir(parents=True)
    write_record(attempt.owner, Owner.this_process().model_copy(update={"start_ticks": 1}))
    (toy.root / "runs" / GONE / "run.json").write_text("{}")

    def jobs(*_: object, take_over: bool) -> Jobs:
        return Jobs(LocalConnection(), made, RootPaths(toy.root), take_over=take_over)  # type: ignore[arg-type]

    monkeypatch.setattr("surefoot.cli.jobs.jobs_of", jobs)
    monkeypatch.setattr("surefoot.cli.jobs.jobs_of_run", jobs)
    return made


@pytest.mark.usefixtures("cluster")
def test_jobs_are_listed_with_what_is_known_of_their_climb(toy: ToyCli) -> None:
    said = toy("jobs")
    assert said.code == 0
    first, second = said.out.splitlines()[1:3]
    assert first.split() == ["7", "RUNNING", GONE, "ddp/step", "n[1-2]", "1:05/10:00", "gone"]
    assert second.split() == ["8", "PENDING", OTHER, "ddp/step", "-", "10:00", "unknown", "here"]
    assert "8: it is next; no run 'run-elsewhere' below" in said.out
    assert "To end: surefoot jobs --reap" in said.out
    assert "--take-over" in said.out


def test_orphans_alone_are_told_by_the_exit_code(toy: ToyCli, cluster: Cluster) -> None:
    said = toy("jobs", "--orphans", "--json")
    assert said.code == said.json["exit_code"] == 1
    assert [(one["id"], one["rung"], one["climb"]) for one in said.json["jobs"]] == [("7", "ddp", "gone")]
    cluster.jobs = cluster.jobs[1:]
    said = toy("jobs", "--orphans")
    assert said.code == 0
    assert said.out.startswith("no orphans")


def test_reaping_ends_orphans_and_nothing_else(toy: ToyCli, cluster: Cluster) -> None:
    said = toy("jobs", "--reap")
    assert (said.code, [one.id for one in cluster.jobs]) == (0, ["8"])
    assert "cancelled and gone: 7" in said.out
    assert toy("jobs", "--reap").code == 0  # nothing is left to do


def test_a_job_that_does_not_end_is_told_with_exit_4(toy: ToyCli, cluster: Cluster) -> None:
    cluster.stubborn = True
    said = toy("jobs", "--reap")
    assert said.code == 4
    assert "still there: job 7" in said.err
    json = toy("jobs", "--reap", "--json").json
    assert (json["left"], json["reaped"], json["exit_code"]) == (["7"], [], 4)


def test_a_scheduler_that_does_not_answer_is_exit_4(toy: ToyCli, cluster: Cluster) -> None:
    cluster.silent = True
    said = toy("jobs", "--orphans")
    assert (said.code, "Socket timed out" in said.err) == (4, True)


def test_jobs_of_unknown_runs_are_ended_only_where_the_run_is_named(toy: ToyCli, cluster: Cluster) -> None:
    assert toy("jobs", "--reap", "--take-over").code == 3
    assert len(cluster.jobs) == 2
    said = toy("jobs", "--reap", "--take-over", "--run", OTHER, "--cluster", "local")
    assert (said.code, [one.id for one in cluster.jobs]) == (0, ["7"])


def test_on_this_machine_there_is_nothing_to_reap_and_it_says_why(toy: ToyCli) -> None:
    said = toy("jobs")
    assert said.code == 0
    assert "jobs end by themselves when their climb is killed" in said.out
