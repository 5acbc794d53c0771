"""Storage with all nodes at once: a slow node is named, and nothing is said of nodes that were not at it together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rungs_harness import collect, collected, edited, failed, judged, planned, status_of
from surefoot.evidence import EvidenceSet
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.storage import RUNG

ASKED = {"file_size": "64KiB", "stream_size": "1MiB", "imports": ["json"], "min_write_mb_s": 0, "min_read_mb_s": 0}
FILES = tuple(f"raw/storage/rank-{rank}.json" for rank in range(3))


def with_expect(view: View, **changed: Any) -> View:
    plan = view.plan.model_copy(update={"expect": {**view.expect, **changed}})
    return replace(view, evidence=EvidenceSet(plan=plan, files=view.evidence.files))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Three ranks of this machine that each speak for a node of their own; the share is one that noise does not reach."""
    root = tmp_path_factory.mktemp("herd")
    view = planned(RUNG, {**ASKED, "ranks_per_node": 3, "min_peer_share": 0.02}, root)
    step = view.plan.steps[0]
    job = step.jobs[0]  # type: ignore[union-attr]
    nodes = {"nodes": 3, "ranks_per_node": 1}
    job = job.model_copy(update={"request": {**job.request, **nodes}})
    steps = (step.model_copy(update={"jobs": (job,)}),)
    plan = view.plan.model_copy(update={"steps": steps, "expect": {**view.expect, **nodes}})
    return collect(replace(view, evidence=EvidenceSet(plan=plan, files={})), steps, root)


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, ASKED, tmp_path_factory.mktemp("lone"))


def check_of(view: View, identifier: str) -> Check:
    return next(check for check in judged(RUNG, view).checks if check.id == identifier)


def herd(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """A change of a report's herd; its rank ran long enough for whatever times that names."""

    def whole(report: dict[str, Any]) -> None:
        report["started_at"] -= 30
        change(report["data"]["herd"])

    return whole


def test_three_nodes_pass_with_every_figure_and_its_share_of_one_alone(fleet: View) -> None:
    assert status_of(RUNG, fleet) is Status.PASSED
    told = judged(RUNG, fleet).details["herd"]
    figures = {"write", "read", "create", "stat", "unlink", "import"}
    assert set(told["alone"]) == set(told["share_of_alone"]) == figures
    assert [set(row) - {"host", "rank"} for row in told["nodes"]] == [figures] * 3
    assert told["note"] == ""
    assert {c.id for c in judged(RUNG, fleet).checks} >= {f"storage.herd.{figure}" for figure in figures}


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("write", lambda told: [r["write"].update(seconds=9.0, bytes=1024**2) for r in told["rounds"]]),
        ("read", lambda told: [r["read"].update(seconds=9.0, bytes=1024**2) for r in told["rounds"]]),
        ("create", lambda told: [r["files"].update(create_s=9.0, files=20) for r in told["rounds"]]),
        ("import", lambda told: told["imports"].update(seconds=25.0)),
    ],
)
def test_one_slow_node_is_named_with_its_figure_and_the_median(
    fleet: View, what: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    slow = with_expect(edited(fleet, FILES[2], herd(change)), min_peer_share=0.1)
    check = check_of(slow, f"storage.herd.{what}")
    assert check.status is Status.FAILED
    assert str(check.actual).startswith("rank 2 on ")
    assert "rank 1" not in str(check.actual)
    assert "median" in str(check.expected)
    assert [e.file for e in check.evidence] == [FILES[2]]
    assert "min_peer_share" in check.derivation


def test_a_slow_node_is_named_as_the_scheduler_calls_it_and_no_other(
    fleet: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = edited(fleet, FILES[2], lambda report: report["data"]["herd"]["imports"].update(seconds=25.0))
    slow = edited(slow, FILES[2], lambda report: report.update(started_at=report["started_at"] - 30))
    slow = with_expect(slow, min_peer_share=0.1)
    assert check_of(slow, "storage.herd.import").nodes == ()  # without a pre-check below nobody knows its name
    host = fleet.evidence.json(FILES[2])["host"]
    monkeypatch.setattr("surefoot.rungs.storage.names_below", lambda _: {host: "slurm-n3", "other": "slurm-n1"})
    assert check_of(slow, "storage.herd.import").nodes == ("slurm-n3",)
    assert check_of(fleet, "storage.herd.import").nodes == ()


def test_one_disturbed_round_of_two_is_no_slow_node(fleet: View) -> None:
    once = edited(fleet, FILES[2], herd(lambda told: told["rounds"][0]["write"].update(seconds=9.0, bytes=1024**2)))
    assert check_of(with_expect(once, min_peer_share=0.1), "storage.herd.write").status is Status.PASSED


def test_a_client_that_answers_from_its_cache_is_named(fleet: View) -> None:
    stale = edited(fleet, FILES[1], herd(lambda told: told["pages"]["new"].__setitem__(0, told["pages"]["old"][0])))
    assert failed(RUNG, stale) == {"storage.close_to_open"}
    assert "rank 1 on" in str(check_of(stale, "storage.close_to_open").actual)
    assert "read the old page of" in str(check_of(stale, "storage.close_to_open").actual)


@pytest.mark.parametrize("pages", [["0" * 16] * 3, [None] * 3, []])
@pytest.mark.parametrize("key", ["old", "new"])
def test_pages_that_are_not_what_was_written_or_not_there_fail(fleet: View, key: str, pages: list[str | None]) -> None:
    other = edited(fleet, FILES[0], herd(lambda told: told["pages"].update({key: pages})))
    assert failed(RUNG, other) == {"storage.close_to_open"}


@pytest.mark.parametrize("step", ["write", "read", "files"])
def test_nodes_that_were_not_at_work_together_prove_nothing(fleet: View, step: str) -> None:
    apart = edited(fleet, FILES[0], herd(lambda told: told["rounds"][1][step].update(began=2)))
    check = check_of(apart, "storage.herd")
    assert check.status is Status.INCONCLUSIVE
    assert "2 of 3 nodes had begun" in str(check.actual)
    assert check_of(edited(fleet, FILES[0], herd(lambda t: t["imports"].update(began=1))), "storage.herd").status is (
        Status.INCONCLUSIVE
    )


def test_a_node_that_stopped_says_why_and_no_figure_is_judged(fleet: View) -> None:
    def stop(report: dict[str, Any]) -> None:
        report["data"]["herd"] = {"node": 1, "stopped": "node 2 of 3 did not come to 0-write (here) in 100 s"}

    stopped = edited(fleet, FILES[1], stop)
    assert failed(RUNG, stopped) == {"storage.herd"}
    assert "did not come to 0-write" in str(check_of(stopped, "storage.herd").actual)
    assert not [m for m in judged(RUNG, stopped).measurements if m.metric.startswith("herd")]


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(node=1),
        lambda told: told.update(stopped=""),
        lambda told: told.update(rounds=told["rounds"][:1]),
        lambda told: told.update(rounds=[]),
        lambda told: told.update(pages=None),
        lambda told: told.update(imports=None),
        lambda told: told.update(alone=None),
        lambda told: told.update(stream_bytes=2 * 1024**2),
        lambda told: told.update(free_bytes=0),
        lambda told: told["rounds"][0]["read"].update(owner=0),
        lambda told: told["rounds"][0]["read"].update(head="0" * 16),
        lambda told: told["rounds"][0]["read"].update(how="mmap"),
        lambda told: told["rounds"][0]["write"].update(began=None),
        lambda told: told["alone"]["write"].update(began=3),
        lambda told: told["imports"].update(found=[]),
        lambda told: told["imports"].update(alone_s=None),
        lambda told: told["rounds"][0]["write"].update(seconds=900.0),
        lambda told: told["rounds"][0]["files"].update(stat_s=0),
        lambda told: told["imports"].update(seconds=float("nan")),
    ],
)
def test_a_report_that_is_not_what_was_asked_proves_nothing(fleet: View, change: Callable[[Any], Any]) -> None:
    assert status_of(RUNG, edited(fleet, FILES[0], herd(change))) is Status.INCONCLUSIVE


def test_nodes_that_import_different_things_are_named(fleet: View) -> None:
    other = edited(fleet, FILES[1], herd(lambda told: told["imports"].update(found=[], missing=["json"])))
    assert failed(RUNG, other) == {"storage.imports"}
    assert "nothing: rank 1 on" in str(check_of(other, "storage.imports").actual)


def test_one_node_is_not_compared_and_says_so(lone: View) -> None:
    assert status_of(RUNG, lone) is Status.PASSED
    told = judged(RUNG, lone).details["herd"]
    assert "1 node: too few to compare" in told["note"]
    assert "recorded, not judged" in told["note"]
    ids = {check.id for check in judged(RUNG, lone).checks}
    assert not [name for name in ids if name.startswith("storage.herd.")]
    assert "storage.close_to_open" not in ids


def test_a_declared_limit_is_held_also_of_one_node(lone: View) -> None:
    kept = with_expect(lone, min_herd={"create": 0.001, "write": 0.001}, max_import_s=999.0)
    assert status_of(RUNG, kept) is Status.PASSED
    missed = with_expect(lone, min_herd={"create": 1e9}, max_import_s=0.001)
    assert failed(RUNG, missed) == {"storage.rank0.herd_create", "storage.rank0.herd_import"}
    check = check_of(missed, "storage.rank0.herd_import")
    assert (check.unit, check.expected) == ("s", 0.001)
    assert "max_import_s of the ladder, at most" in check.derivation


def test_without_the_modules_no_import_time_is_claimed_and_a_limit_is_not_proved(lone: View) -> None:
    none = edited(lone, FILES[0], herd(lambda told: told["imports"].update(found=[], missing=["json"])))
    assert "no import time: json not there" in judged(RUNG, none).details["herd"]["note"]
    assert not {c.id for c in judged(RUNG, none).checks} & {"storage.imports", "storage.rank0.herd_import"}
    assert failed(RUNG, with_expect(none, max_import_s=5.0)) == {"storage.imports"}


def test_a_limit_is_claimed_of_the_modules_that_were_imported_and_of_no_other(lone: View) -> None:
    def more(told: dict[str, Any]) -> None:
        told["imports"].update(missing=["torch"])

    part = with_expect(edited(lone, FILES[0], herd(more)), imports=["json", "torch"], max_import_s=60.0)
    check = check_of(part, "storage.rank0.herd_import")
    assert check.status is Status.PASSED
    assert check.claim.startswith("while all nodes import json, ")


def test_a_disk_without_room_for_a_stream_proves_nothing(lone: View) -> None:
    full = edited(lone, FILES[0], herd(lambda told: told.update(free_bytes=4095, stream_bytes=0, rounds=[])))
    assert failed(RUNG, full) == {"storage.herd"}
    assert "no room" in str(check_of(full, "storage.herd").actual)


def test_only_the_first_rank_of_a_node_speaks_for_it(lone: View) -> None:
    first = json.loads(lone.evidence.blob(FILES[0]).read())["data"]["herd"]
    twice = edited(lone, FILES[1], lambda report: report["data"].update(herd=first))
    assert status_of(RUNG, twice) is Status.INCONCLUSIVE
    silent = edited(lone, FILES[0], lambda report: report["data"].update(herd=None))
    assert status_of(RUNG, silent) is Status.INCONCLUSIVE
