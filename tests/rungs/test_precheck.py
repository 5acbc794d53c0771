"""Pre-check: required against found, unknown is never a default."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node_views import gpu
from rungs_harness import collected, edited, failed, judged, planned, status_of
from surefoot.hardware.facts import Addresses
from surefoot.model.check import Evidence
from surefoot.model.cluster import Cluster
from surefoot.model.run import JobsStep
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.precheck import RUNG, fingerprint_of
from surefoot.rungs.precheck_name import own_name

RANK = "raw/precheck/rank-0.json"
GROUPS = [{"name": "small", "count": 1, "min_cpus": 20}, {"name": "big", "count": 1, "min_cpus": 96}]
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
    view = declared(good, group)
    assert failed(RUNG, view) == {check}
    (found,) = (one for one in judged(RUNG, view).checks if one.id == check)
    assert found.nodes == (() if check.endswith(".disk") else (view.evidence.json(RANK)["data"]["node"],))


def test_a_check_names_the_node_as_the_scheduler_calls_it(good: View) -> None:
    view = fact(declared(good, {"min_cpus": 4096}), "reach", None, "one node")
    view = edited(view, RANK, lambda report: report["data"].update(node="slurm-n1"))
    assert {check.nodes for check in judged(RUNG, view).checks if check.status is Status.FAILED} == {("slurm-n1",)}


def test_the_probe_asks_for_the_cpus_that_it_is_to_find(tmp_path: Path) -> None:
    (step,) = planned(RUNG, {}, tmp_path, node_groups=GROUPS).plan.steps
    assert isinstance(step, JobsStep)
    assert [job.cpus_per_rank for job in step.jobs] == [20]  # bound to fewer, it would see fewer


@pytest.mark.parametrize(
    ("usable", "online", "bad"), [(20, 96, set()), (20, 64, {"precheck.node0.cpus"}), (8, 96, {"precheck.node0.cpus"})]
)
def test_a_node_of_a_bigger_group_is_judged_by_its_cpus_online(
    good: View, usable: int, online: int, bad: set[str]
) -> None:
    data = good.inputs.cluster.canonical()
    group = data["node_groups"][0]
    data["node_groups"] = [
        {**group, "min_cpus": 96},
        {**group, "name": "small", "min_cpus": 20, "gpus_per_node": 1, "gpu_model": "GB10"},
    ]
    view = replace(good, inputs=good.inputs.model_copy(update={"cluster": Cluster.model_validate(data)}))
    view = fact(fact(view, "cpus", usable), "cpus_online", online)
    assert {name for name in failed(RUNG, view) if name.startswith("precheck.node0")} == bad


def test_a_cluster_of_more_nodes_than_answered_is_not_proved(good: View) -> None:
    view = declared(good, {"count": 1000})
    assert failed(RUNG, view) == {"precheck.group.here"}
    assert status_of(RUNG, view) is Status.INCONCLUSIVE


def test_a_group_that_nobody_looked_at_is_not_proved(good: View) -> None:
    data = good.inputs.cluster.canonical()
    data["node_groups"].append({"name": "big", "count": 8, "gpus_per_node": 8, "min_cpus": 100})
    view = replace(good, inputs=good.inputs.model_copy(update={"cluster": Cluster.model_validate(data)}))
    assert "precheck.group.big" in failed(RUNG, view)


def test_a_rail_that_is_declared_and_not_there_fails_also_on_a_node_alone(good: View) -> None:
    view = declared(good, {"rails": ({"name": "rail0", "rate_gbit_s": 200, "hca": "no-such-hca"},)})
    assert failed(RUNG, view) == {"precheck.node0.rails"}
    unread = fact(view, "hcas", None, "PermissionError: /sys/class/infiniband")
    assert status_of(RUNG, unread) is Status.INCONCLUSIVE


def test_a_missing_gpu_and_driver_fail(good: View) -> None:
    view = fact(fact(good, "driver", None), "torch_gpus", [])
    missing = {
        "precheck.node0.gpus_agree",
        "precheck.node0.gpus",
        "precheck.node0.driver_loaded",
        "precheck.node0.gpu_model",
    }
    assert failed(RUNG, declared(view, {"gpus_per_node": 1, "gpu_model": "GB10"})) == missing


def test_seven_of_eight_gpus_fail_and_eight_pass(good: View) -> None:
    asked = {"gpus_per_node": 8, "gpu_model": "H200"}
    bad = {"precheck.node0.gpus", "precheck.node0.gpus_agree"}
    assert failed(RUNG, declared(with_gpus(good), asked)) == set()
    assert failed(RUNG, declared(with_gpus(good, torch=7), asked)) == bad
    twice = [*H200[:7], H200[0]]
    assert failed(RUNG, declared(fact(with_gpus(good), "torch_gpus", twice), asked)) == bad


H200 = [{"name": "NVIDIA H200", "uuid": str(i), "memory_bytes": 1} for i in range(8)]


def with_gpus(view: View, pci: int = 8, smi: int = 8, torch: int = 8) -> View:
    """The evidence of a node with GPUs: so many on the bus, with the driver, with PyTorch."""
    view = fact(fact(view, "driver", "580.95.05"), "pci_gpus", pci)
    return fact(fact(view, "gpus", [gpu(i) for i in range(smi)]), "torch_gpus", H200[:torch])


@pytest.mark.parametrize(
    ("seen", "declared_gpus"),
    [
        ({"smi": 0, "torch": 0}, 0),  # a dead driver, and a cluster file that says nothing of GPUs
        ({"pci": 8, "smi": 7, "torch": 7}, 7),  # one failed, and seven were declared or detected
        ({"pci": 8, "smi": 8, "torch": 7}, 7),
        ({"pci": 8, "smi": 8, "torch": 8}, 7),
        ({"pci": 0, "smi": 0, "torch": 0}, 8),
    ],
)
def test_a_gpu_that_only_one_witness_knows_fails(good: View, seen: dict[str, int], declared_gpus: int) -> None:
    view = declared(with_gpus(good, **seen), {"gpus_per_node": declared_gpus})
    assert "precheck.node0.gpus_agree" in failed(RUNG, view)


def test_a_part_of_the_gpus_passes_where_the_cluster_file_says_so(good: View) -> None:
    part = {"gpus_per_node": 2, "gpus_on_bus": 8}
    assert failed(RUNG, declared(with_gpus(good, smi=2, torch=2), part)) == set()
    assert failed(RUNG, declared(with_gpus(good, pci=7, smi=2, torch=2), part)) == {"precheck.node0.gpus_agree"}
    cpu = {"gpus_per_node": 0, "gpus_on_bus": 8}
    assert failed(RUNG, declared(with_gpus(good, smi=0, torch=0), cpu)) == set()


def test_witnesses_that_cannot_be_read_are_left_out_and_none_at_all_is_inconclusive(good: View) -> None:
    asked = {"gpus_per_node": 8}
    view = fact(fact(with_gpus(good), "pci_gpus", None, "no /sys"), "gpus", None, "no nvidia-smi")
    assert failed(RUNG, declared(view, asked)) == set()
    blind = fact(fact(fact(good, "torch_gpus", None, "no torch"), "pci_gpus", None, "no /sys"), "gpus", None, "none")
    (check,) = (c for c in judged(RUNG, blind).checks if c.id == "precheck.node0.gpus_agree")
    assert check.status is Status.INCONCLUSIVE


@pytest.mark.parametrize("name", ["pci_gpus", "gpus", "torch_gpus"])
def test_a_count_without_value_and_reason_proves_nothing(good: View, name: str) -> None:
    assert status_of(RUNG, fact(good, name, None)) is Status.INCONCLUSIVE


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
    not_passed = {check.id for check in judgement.checks if check.status is not Status.PASSED}
    assert not_passed == {"precheck.group.giants"}, "of the giants nobody answered"
    assert judgement.details["nodes"][0]["group"] == "here"


@pytest.mark.parametrize(("addresses", "loopback"), [(["127.0.1.1"], "127.0.1.1"), (["10.0.0.3", "::1"], "::1")])
def test_a_name_that_leads_back_to_its_own_host_fails_and_is_named(addresses: list[str], loopback: str) -> None:
    found = Addresses.model_validate_json(json.dumps({"value": addresses}))
    check = own_name(1, "gpu7", found, Evidence(file="raw/precheck/rank-1.json"))
    assert check.status is Status.FAILED
    assert check.actual == f"gpu7 → {loopback} on gpu7"


def test_a_name_that_leads_to_the_network_passes_and_one_that_leads_nowhere_is_not_proved() -> None:
    evidence = Evidence(file="raw/precheck/rank-1.json")
    reached = Addresses.model_validate_json('{"value": ["10.0.0.3"]}')
    assert own_name(1, "gpu7", reached, evidence).status is Status.PASSED
    nowhere = Addresses.model_validate_json('{"value": null, "unknown": "gaierror: unknown name"}')
    assert own_name(1, "gpu7", nowhere, evidence).status is Status.INCONCLUSIVE
    with pytest.raises(ValidationError):
        Addresses.model_validate_json('{"value": []}')


def test_a_node_that_a_group_names_is_held_to_it_whatever_it_lacks_and_another_group_takes_it_not(good: View) -> None:
    host = judged(RUNG, good).details["nodes"][0]["node"]
    data = good.inputs.cluster.canonical()
    group = data["node_groups"][0]
    data["node_groups"] = [group, {**group, "name": "giants", "min_cpus": 4096, "hosts": f"other,{host}"}]
    found = judged(RUNG, replace(good, inputs=good.inputs.model_copy(update={"cluster": Cluster.model_validate(data)})))
    assert found.details["nodes"][0]["group"] == "giants"
    assert {check.id for check in found.checks if check.status is Status.FAILED} == {"precheck.node0.cpus"}
    # Named by none, it is of those groups that name nobody.
    data["node_groups"] = [{**group, "hosts": "other"}, {**group, "name": "rest"}]
    found = judged(RUNG, replace(good, inputs=good.inputs.model_copy(update={"cluster": Cluster.model_validate(data)})))
    assert found.details["nodes"][0]["group"] == "rest"
