"""Pre-check: required against found, unknown is never a default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, status_of
from surefoot.model.cluster import Cluster
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.precheck import RUNG, fingerprint_of

RANK = "raw/precheck/rank-0.json"
pytestmark = pytest.mark.slow  # the probe imports torch


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    software = {"python": "3.11", "torch": "2.10"}
    return collected(RUNG, {}, tmp_path_factory.mktemp("precheck"), software=software)


def declared(view: View, group: dict[str, Any] | None = None, **software: str) -> View:
    """The same evidence under another cluster file."""
    data = view.inputs.cluster.canonical()
    data["software"].update(software)
    data["node_groups"][0].update(group or {})
    return replace(view, inputs=view.inputs.model_copy(update={"cluster": Cluster.model_validate(data)}))


def fact(view: View, name: str, value: Any, unknown: str | None = None) -> View:
    """The evidence with another value of one fact."""

    def change(report: dict[str, Any]) -> None:
        report["data"]["facts"][name] = {"value": value} if unknown is None else {"value": value, "unknown": unknown}

    return edited(view, RANK, change)


def test_this_machine_has_what_the_tests_ask_of_it(good: View) -> None:
    judgement = judged(RUNG, good)
    assert status_of(RUNG, good) is Status.PASSED
    assert judgement.fingerprint == fingerprint_of(good.evidence)
    assert judgement.fingerprint is not None
    assert judgement.fingerprint.facts["torch"].startswith("2.")


@pytest.mark.parametrize(
    ("group", "check"),
    [
        ({"min_cpus": 4096}, "precheck.node0.cpus"),
        ({"min_memory_gib": 1e6}, "precheck.node0.memory"),
        ({"min_free_disk_gib": 1e6}, "precheck.node0.disk"),
    ],
)
def test_too_little_of_something_fails(good: View, group: dict[str, Any], check: str) -> None:
    assert failed(RUNG, declared(good, group)) == {check}


def test_a_missing_gpu_and_driver_fail(good: View) -> None:
    view = fact(fact(good, "driver", None), "torch_gpus", [])
    missing = {"precheck.node0.gpus", "precheck.node0.driver_loaded", "precheck.node0.gpu_model"}
    assert failed(RUNG, declared(view, {"gpus_per_node": 1, "gpu_model": "GB10"})) == missing


def test_seven_of_eight_gpus_fail_and_eight_pass(good: View) -> None:
    gpus = [{"name": "NVIDIA H200", "uuid": str(i), "memory_bytes": 1} for i in range(8)]
    asked = {"gpus_per_node": 8, "gpu_model": "H200"}
    view = fact(good, "driver", "580.95.05")
    assert failed(RUNG, declared(fact(view, "torch_gpus", gpus), asked)) == set()
    assert failed(RUNG, declared(fact(view, "torch_gpus", gpus[:7]), asked)) == {"precheck.node0.gpus"}
    twice = [*gpus[:7], gpus[0]]
    assert failed(RUNG, declared(fact(view, "torch_gpus", twice), asked)) == {"precheck.node0.gpus"}


@pytest.mark.parametrize(
    ("software", "check"),
    [
        ({"python": "4.0"}, "precheck.node0.python"),
        ({"torch": "99"}, "precheck.node0.torch"),
        ({"cuda": "13.0"}, "precheck.node0.cuda"),
        ({"driver": "580"}, "precheck.node0.driver"),
        ({"nccl": "2.31.2"}, "precheck.node0.nccl"),
    ],
)
def test_a_version_that_is_not_there_fails(good: View, software: dict[str, str], check: str) -> None:
    view = fact(fact(fact(good, "cuda", None), "driver", None), "nccl", None)
    assert failed(RUNG, declared(view, **software)) == {check}


@pytest.mark.parametrize(("name", "check"), [("torch", "torch"), ("cpus", "cpus"), ("memory_total", "memory")])
def test_an_unknown_fact_is_inconclusive_and_says_why(good: View, name: str, check: str) -> None:
    view = fact(good, name, None, "ImportError: no torch here")
    bad = [c for c in judged(RUNG, view).checks if c.status is not Status.PASSED]
    assert [(c.id, c.status) for c in bad] == [(f"precheck.node0.{check}", Status.INCONCLUSIVE)]
    assert "no torch here" in str(bad[0].actual)


def test_memory_is_the_limit_where_that_is_less_than_what_the_node_has(good: View) -> None:
    assert failed(RUNG, fact(good, "memory_limit", 1)) == {"precheck.node0.memory"}


@pytest.mark.parametrize(("name", "value"), [("cpus", 0), ("memory_total", 0), ("cpus", 10**6), ("kernel", "")])
def test_a_value_that_cannot_be_proves_nothing(good: View, name: str, value: Any) -> None:
    assert status_of(RUNG, fact(good, name, value)) is Status.INCONCLUSIVE


def test_a_node_is_compared_with_the_group_that_it_fits(good: View) -> None:
    data = good.inputs.cluster.canonical()
    data["node_groups"].insert(0, {**data["node_groups"][0], "name": "giants", "min_cpus": 4096})
    inputs = good.inputs.model_copy(update={"cluster": Cluster.model_validate(data)})
    judgement = judged(RUNG, replace(good, inputs=inputs))
    assert all(check.status is Status.PASSED for check in judgement.checks)
    assert judgement.details["nodes"][0]["group"] == "here"
