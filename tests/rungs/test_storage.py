"""Storage: what ranks wrote, read and saw of each other must fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, status_of
from surefoot.model.status import Status
from surefoot.node.storage import look, read_others, version_text, write_file
from surefoot.paths import RootPaths
from surefoot.rungs.base import View
from surefoot.rungs.storage import RUNG

FIRST, SECOND = "raw/storage/rank-0.json", "raw/storage/rank-1.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    root = tmp_path_factory.mktemp("storage")
    view = collected(RUNG, {"file_size": "3MiB", "stream_size": "1MiB", "imports": []}, root)
    assert not RootPaths(root).scratch(view.plan.run_id, view.plan.nonce).exists()
    return view


def test_this_disk_passes_with_a_rate_and_a_latency_for_each_rank(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED
    metrics = [(m.metric, m.labels.get("direction")) for m in judged(RUNG, good).measurements]
    herd = [(f"herd_{what}", None) for what in ("write", "read", "create", "stat", "unlink")]
    assert metrics == [("bandwidth", "write"), ("bandwidth", "read"), ("fsync", None)] * 2 + herd


def test_readers_saw_several_versions_while_they_were_renamed(good: View) -> None:
    rows = judged(RUNG, good).details["ranks"]
    assert rows[1]["reads_while_renamed"] > 1


@pytest.mark.parametrize(
    ("name", "path", "value", "check"),
    [
        (SECOND, ("read", "sha256"), "0" * 64, "storage.rank1.round_trip"),
        (SECOND, ("read", "bytes"), 5, "storage.rank1.round_trip"),
        (SECOND, ("read", "owner"), 1, "storage.rank1.round_trip"),
        (SECOND, ("read",), None, "storage.rank1.round_trip"),
        (FIRST, ("write", "sha256"), "0" * 64, "storage.rank1.round_trip"),
        (SECOND, ("stat_bytes",), 0, "storage.rank1.round_trip"),
        (SECOND, ("seen", "0"), None, "storage.rank1.sees_all"),
        (FIRST, ("seen", "1"), "of another run:1\n", "storage.rank0.sees_all"),
        (SECOND, ("watching", "last"), 5, "storage.rename"),
        (SECOND, ("watching", "backwards"), 1, "storage.rename"),
        (SECOND, ("watching", "versions_seen"), [], "storage.rename"),
        (FIRST, ("renaming", "renames"), 0, "storage.rename"),
        (FIRST, ("removed",), False, "storage.cleaned"),
        (FIRST, ("others_done",), False, "storage.cleaned"),
    ],
)
def test_each_contradiction_fails_its_check(
    good: View, name: str, path: tuple[str, ...], value: Any, check: str
) -> None:
    def change(report: dict[str, Any]) -> None:
        place = report["data"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    assert check in failed(RUNG, edited(good, name, change))


@pytest.mark.parametrize("kind", ["mixed", "partial", "missing"])
def test_one_bad_read_among_many_fails_the_rename_test(good: View, kind: str) -> None:
    def change(report: dict[str, Any]) -> None:
        report["data"]["watching"][kind] += 1
        report["data"]["watching"]["reads"] += 1

    assert failed(RUNG, edited(good, SECOND, change)) == {"storage.rename"}


def test_slow_storage_fails_by_the_computed_rate(good: View) -> None:
    def slow(report: dict[str, Any]) -> None:
        report["data"]["write"]["write_s"] = 30.0
        report["started_at"] -= 40

    assert failed(RUNG, edited(good, SECOND, slow)) == {"storage.rank1.write_rate"}


def test_a_slow_rank_shows_its_node_to_be_at_fault_and_ranks_that_are_all_slow_show_none(
    good: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(report: dict[str, Any]) -> None:
        report["data"]["write"]["write_s"] = 30.0
        report["started_at"] -= 40

    def at_fault(view: View) -> set[tuple[str, ...]]:
        return {check.nodes for check in judged(RUNG, view).checks if check.status is Status.FAILED}

    one = edited(good, SECOND, slow)
    assert at_fault(one) == {()}  # without a pre-check below nobody knows what the scheduler calls it
    host = good.evidence.json(SECOND)["host"]
    monkeypatch.setattr("surefoot.rungs.storage.names_below", lambda _: {host: "slurm-n1"})
    assert at_fault(one) == {("slurm-n1",)}
    assert at_fault(edited(one, FIRST, slow)) == {()}


def test_times_longer_than_the_rank_ran_prove_nothing(good: View) -> None:
    longer = edited(good, SECOND, lambda d: d["data"]["write"].update(write_s=30.0))
    assert status_of(RUNG, longer) is Status.INCONCLUSIVE


def test_a_rank_reads_what_its_neighbour_wrote(good: View) -> None:
    first, second = (json.loads(good.evidence.blob(name).read())["data"] for name in (FIRST, SECOND))
    assert first["write"]["sha256"] != second["write"]["sha256"]
    assert (first["read"]["owner"], first["read"]["sha256"]) == (1, second["write"]["sha256"])


def test_a_neighbours_file_that_never_comes_is_not_seen_and_has_no_rate(tmp_path: Path, good: View) -> None:
    assert read_others(tmp_path, 1, 0.1) is None
    (tmp_path / "wrote-1").write_text("")  # said to be there, and it is not
    assert read_others(tmp_path, 1, 0.1) is None
    unseen = edited(good, SECOND, lambda d: d["data"].update(read=None))
    assert failed(RUNG, unseen) == {"storage.rank1.round_trip", "storage.rank1.read_rate"}
    assert "read - MB/s" in judged(RUNG, unseen).summary


@pytest.mark.parametrize("value", [0, -1, None])
def test_a_time_that_was_not_measured_proves_nothing(good: View, value: float | None) -> None:
    damaged = edited(good, SECOND, lambda d: d["data"]["read"].update(read_s=value))
    assert status_of(RUNG, damaged) is Status.INCONCLUSIVE


def test_one_rank_alone_cannot_show_what_others_see(tmp_path: Path) -> None:
    floors = {"min_write_mb_s": 0, "min_read_mb_s": 0}  # a loaded disk may need long for 4 KiB
    view = collected(RUNG, {"file_size": 4096, "ranks_per_node": 1, "imports": [], **floors}, tmp_path)
    assert status_of(RUNG, view) is Status.INCONCLUSIVE


def test_a_look_tells_whole_mixed_partial_and_missing_apart(tmp_path: Path) -> None:
    file = tmp_path / "versions.txt"
    assert look(file) == ("missing", -1)
    file.write_text(version_text(7))
    assert look(file) == ("whole", 7)
    file.write_text(version_text(7)[:-100])
    assert look(file) == ("partial", -1)
    file.write_text("")
    assert look(file) == ("partial", -1)
    file.write_text(version_text(7)[:800] + version_text(8)[800:])
    assert look(file) == ("mixed", -1)


def test_a_file_is_there_under_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    def breaks() -> Any:
        yield b"half"
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_file(tmp_path / "big", breaks)
    assert not (tmp_path / "big").exists()
