"""Compute: right, repeatable, alike, and as fast as its times say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, planned, status_of
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.compute import RUNG, _spreads

SECOND = "raw/compute/rank-1.json"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    asked = {"matrix_size": 256, "seconds": 0.2, "max_spread": 0.95}
    return collected(RUNG, asked, tmp_path_factory.mktemp("compute"))


def product(view: View, **change: Any) -> View:
    return edited(view, SECOND, lambda report: report["data"]["products"][0].update(change))


def test_this_cpu_passes_in_float32_only(good: View) -> None:
    judgement = judged(RUNG, good)
    assert status_of(RUNG, good) is Status.PASSED
    assert [m.metric for m in judgement.measurements] == ["tflops", "copy_bandwidth"] * 2
    assert all(m.value is not None and m.value > 0 for m in judgement.measurements)


def test_a_wrong_entry_fails_although_the_program_said_nothing(good: View) -> None:
    def change(report: dict[str, Any]) -> None:
        report["data"]["products"][0]["samples"][3]["value"] += 1.0

    assert failed(RUNG, edited(good, SECOND, change)) == {"compute.rank1.float32.samples"}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"exact_rows_wrong": 1}, "compute.rank1.float32.exact"),
        ({"digest_after": "0" * 64}, "compute.rank1.float32.repeatable"),
    ],
)
def test_wrong_rows_and_drifting_results_fail(good: View, change: dict[str, Any], check: str) -> None:
    assert failed(RUNG, product(good, **change)) == {check}


def test_a_lost_copy_fails(good: View) -> None:
    damaged = edited(good, SECOND, lambda report: report["data"]["copy"].update(equal=False))
    assert failed(RUNG, damaged) == {"compute.rank1.copy"}


@pytest.mark.parametrize(
    "change", [{"times_s": [0.0]}, {"times_s": []}, {"size": 0}, {"dtype": "bf16"}, {"wall_s": 0.01}]
)
def test_figures_that_cannot_be_prove_nothing(good: View, change: dict[str, Any]) -> None:
    assert status_of(RUNG, product(good, **change)) is Status.INCONCLUSIVE


def slowed(view: View, rank: int = 1, by: float = 100.0) -> View:
    def slower(report: dict[str, Any]) -> None:
        row = report["data"]["products"][0]
        row.update(times_s=[time * by for time in row["times_s"]], wall_s=row["wall_s"] * by)

    return edited(view, f"raw/compute/rank-{rank}.json", slower)


def test_one_slow_device_among_like_ones_fails(good: View) -> None:
    # The same figures as two GPUs would have told them: only what the spread is taken over is looked at here.
    facts = RUNG.read(slowed(good))
    gpus = tuple(
        replace(
            r,
            data=r.data.model_copy(
                update={"device": r.data.device.model_copy(update={"kind": "cuda", "name": "H200"})}
            ),
        )
        for r in facts
    )
    (check,) = _spreads("float32", gpus, good)
    assert (check.id, check.status) == ("compute.float32.spread.H200", Status.FAILED)
    assert _spreads("float32", gpus[:1], good) == []


def test_ranks_that_share_a_cpu_are_not_compared(good: View) -> None:
    assert failed(RUNG, slowed(good)) == set()


def test_gpus_are_asked_for_tf32_and_bf16_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    group = {"name": "g", "count": 1, "gpus_per_node": 2, "min_cpus": 16}
    job = planned(RUNG, {}, tmp_path_factory.mktemp("gpu"), node_groups=[group]).plan.jobs[0]
    assert job.request["dtypes"] == ["float32", "tf32", "bf16"]
    assert (job.request["matrix_size"], job.cpus_per_rank, job.gpus_per_node) == (8192, 8, 2)
