"""Scheduler smoke: endings told apart, environments verbatim, output kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, status_of, with_files
from surefoot.evidence import Blob
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.scheduler_smoke import RUNG


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {}, tmp_path_factory.mktemp("scheduler"))


def test_the_local_scheduler_passes(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED
    assert judged(RUNG, good).summary == "2 ranks on 1 node; exit 0, 7 and signal 9 told apart"


def test_judging_looks_at_no_file(good: View) -> None:
    facts = RUNG.read(good)
    unread = {name: Blob(name=name, path=Path("/nonexistent")) for name in good.evidence.files}
    blind = replace(good, evidence=replace(good.evidence, files=unread))
    assert RUNG.judge(facts, blind).checks == RUNG.judge(facts, good).checks


@pytest.mark.parametrize(
    ("job", "exit_code", "signal"),
    [("exit0", 7, None), ("exit7", 0, None), ("killed", 137, None), ("killed", None, 15)],
)
def test_an_ending_that_comes_back_as_another_fails(
    good: View, job: str, exit_code: int | None, signal: int | None
) -> None:
    change = {"exit_code": exit_code, "signal": signal}
    damaged = edited(good, f"raw/{job}/done.json", lambda d: d["ranks"][0].update(change))
    assert failed(RUNG, damaged) == {f"scheduler.{job}"}
    assert "told apart" not in judged(RUNG, damaged).summary
    assert f"scheduler.{job}" in judged(RUNG, damaged).summary


@pytest.mark.parametrize(
    ("name", "value", "checks"),
    [
        ("RANK", "0", {"scheduler.rank1.environment"}),
        ("WORLD_SIZE", "1", {"scheduler.rank1.environment"}),
        ("LOCAL_WORLD_SIZE", None, {"scheduler.rank1.environment"}),
        ("SUREFOOT_ECHO", "a b", {"scheduler.rank1.environment"}),
        ("MASTER_PORT", "80", {"scheduler.rendezvous"}),
        ("MASTER_ADDR", "elsewhere", {"scheduler.rendezvous"}),
    ],
)
def test_a_variable_that_is_not_as_asked_fails(good: View, name: str, value: Any, checks: set[str]) -> None:
    damaged = edited(good, "raw/environment/rank-1.json", lambda d: d["data"]["environment"].update({name: value}))
    assert failed(RUNG, damaged) == checks


@pytest.mark.parametrize("port", ["80", "65536", "none", ""])
def test_a_port_that_no_rank_may_listen_on_fails(good: View, port: str) -> None:
    for rank in (0, 1):
        name = f"raw/environment/rank-{rank}.json"
        good = edited(good, name, lambda d: d["data"]["environment"].update(MASTER_PORT=port))
    assert failed(RUNG, good) == {"scheduler.rendezvous"}


def test_ranks_of_one_node_on_two_hosts_fail(good: View) -> None:
    def move(report: dict[str, Any]) -> None:
        report["host"] = report["data"]["host"] = "elsewhere"

    moved = edited(good, "raw/environment/rank-1.json", move)
    assert status_of(RUNG, moved) is Status.INCONCLUSIVE, "the job itself says that the rank ended here"
    moved = edited(moved, "raw/environment/done.json", lambda done: done["ranks"][1].update(host="elsewhere"))
    assert failed(RUNG, moved) == {"scheduler.nodes", "scheduler.environment.output"}


def test_one_process_that_reports_as_two_ranks_proves_nothing(good: View) -> None:
    import json

    first = json.loads(good.evidence.blob("raw/environment/rank-0.json").read())
    same = edited(good, "raw/environment/rank-1.json", lambda d: d.update(pid=first["pid"]))
    assert status_of(RUNG, same) is Status.INCONCLUSIVE


def log_of(view: View, job: str) -> str:
    return next(blob.name for blob in view.evidence.under(f"raw/{job}") if blob.name.endswith(".out"))


@pytest.mark.parametrize("job", ["exit0", "exit7", "killed", "environment"])
def test_lost_doubled_or_misnamed_output_fails(good: View, job: str) -> None:
    log = log_of(good, job)
    content = good.evidence.blob(log).read()
    for files in ({log: None}, {log: b""}, {log: content * 2}, {log: None, f"raw/{job}/slurm-1.out": content}):
        assert failed(RUNG, with_files(good, files)) == {f"scheduler.{job}.output"}


def test_a_scheduler_that_runs_one_rank_instead_of_two_proves_nothing(good: View) -> None:
    assert status_of(RUNG, with_files(good, {"raw/environment/rank-1.json": None})) is Status.INCONCLUSIVE
