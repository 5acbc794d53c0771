"""Health of GPUs: each fault is named with its GPU, and what the driver does not say is no pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_views import gpu, unknown
from surefoot.hardware.comparable import comparable
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.gpu_facts import Gpu
from surefoot.model.check import Check, Evidence
from surefoot.model.status import Status
from surefoot.rungs.precheck_gpus import TOPICS, Where, gpu_health

WHERE = Where(3, "gpu07", lambda text: Evidence(file="raw/precheck/rank-3.json", text=text))
RECORDED = Path(__file__).parents[1] / "golden" / "node_facts" / "h200-x2.json"
NOT_SUPPORTED = unknown("NvmlError: nvmlDeviceGetRemappedRows: Not Supported")


def judged(*gpus: dict[str, Any], xids: dict[str, Any] | None = None) -> dict[str, Check]:
    facts = NodeFacts.model_construct(
        gpus=NodeFacts.model_fields["gpus"].annotation.model_validate({"value": gpus}),  # type: ignore[union-attr]
        xids=NodeFacts.model_fields["xids"].annotation.model_validate(xids or unknown("may not be read")),  # type: ignore[union-attr]
    )
    return {check.id.removeprefix("precheck.node3."): check for check in gpu_health(WHERE, facts)}


def test_eight_healthy_gpus_pass_every_topic() -> None:
    checks = judged(*(gpu(i) for i in range(8)), xids={"value": {}})
    assert set(checks) == {topic.name for topic in TOPICS} | {"gpu_xids"}
    assert {check.status for check in checks.values()} == {Status.PASSED}
    assert all(check.evidence for check in checks.values())


@pytest.mark.parametrize(
    ("damage", "topic", "word"),
    [
        ({"remapped_rows": {"correctable": 0, "uncorrectable": 1, "pending": 1, "failed": 0}}, "gpu_memory", "waits for a reset"),
        ({"remapped_rows": {"correctable": 0, "uncorrectable": 9, "pending": 0, "failed": 1}}, "gpu_memory", "replace it"),
        ({"ecc_uncorrected_volatile": 2}, "gpu_memory", "2 uncorrected"),
        ({"clock_reasons": ["hardware thermal slowdown"], "temperature_c": 92}, "gpu_clocks", "92 °C"),
        ({"clock_reasons": ["software power cap", "hardware power brake"]}, "gpu_clocks", "power brake"),
        ({"pcie_width": 8}, "gpu_pcie", "×8 of ×16"),
        ({"nvlinks": [True] * 17 + [False]}, "gpu_links", "NVLink 17 of 18 down"),
        ({"fabric": "in progress"}, "gpu_links", "fabric: in progress"),
        ({"fabric": "completed, status 999"}, "gpu_links", "status 999"),
        ({"mig": {"current": True, "pending": True}}, "gpu_whole", "divided by MIG"),
        ({"mig": {"current": False, "pending": True}}, "gpu_whole", "at the next reset"),
        ({"ecc": {"current": True, "pending": False}}, "gpu_whole", "ECC changes"),
        ({"compute_mode": "prohibited"}, "gpu_whole", "prohibited"),
        ({"processes": [4711]}, "gpu_idle", "4711"),
    ],
)  # fmt: skip
def test_a_fault_of_one_gpu_of_eight_fails_its_topic_and_names_it(
    damage: dict[str, Any], topic: str, word: str
) -> None:
    checks = judged(*(gpu(i, **(damage if i == 5 else {})) for i in range(8)))
    assert [name for name, check in checks.items() if check.status is not Status.PASSED] == [topic]
    assert checks[topic].status is Status.FAILED
    assert "GPU 5 (0000:15:00.0)" in str(checks[topic].actual)
    assert word in str(checks[topic].actual)
    assert "gpu07" in checks[topic].claim
    assert checks[topic].next_action


def test_what_the_driver_really_said_of_two_gpus_passes() -> None:
    """Recorded by the probe on a host with two H200 and driver 580.159.04."""
    facts = NodeFacts.model_validate(json.loads(RECORDED.read_text())["data"]["facts"])
    checks = gpu_health(WHERE, facts)
    assert {check.id.removeprefix("precheck.node3.") for check in checks} == {t.name for t in TOPICS} | {"gpu_xids"}
    assert {check.status for check in checks} == {Status.PASSED}
    assert comparable(facts)["gpu1.nvlinks"] == "18 of 18 up"
    assert comparable(facts)["nccl.library"] == "2.28.9"


def test_a_power_cap_and_an_idle_clock_are_no_fault() -> None:
    assert judged(gpu(0, clock_reasons=["software power cap", "idle"]))["gpu_clocks"].status is Status.PASSED


def test_what_no_gpu_of_this_kind_has_is_no_claim() -> None:
    both = {"remapped_rows": NOT_SUPPORTED, "ecc_uncorrected_volatile": NOT_SUPPORTED}
    assert "gpu_memory" not in judged(gpu(0, **both), gpu(1, **both))


def test_one_gpu_that_does_not_say_what_its_neighbours_do_is_not_proved() -> None:
    both = {"remapped_rows": NOT_SUPPORTED, "ecc_uncorrected_volatile": NOT_SUPPORTED}
    check = judged(gpu(0), gpu(1, **both))["gpu_memory"]
    assert check.status is Status.INCONCLUSIVE
    assert "GPU 1" in str(check.actual)


def test_a_driver_that_fails_to_answer_is_not_taken_for_one_that_has_no_such_thing() -> None:
    lost = unknown("NvmlError: nvmlDeviceGetCurrPcieLinkWidth: GPU is lost")
    assert judged(gpu(0, pcie_width=lost))["gpu_pcie"].status is Status.INCONCLUSIVE


def test_faults_in_the_kernels_log_fail_and_a_programs_own_do_not() -> None:
    address = "0000:15:00"
    assert judged(gpu(0), xids={"value": {address: [31, 13]}})["gpu_xids"].status is Status.PASSED
    check = judged(gpu(0), xids={"value": {address: [31, 79, 79]}})["gpu_xids"]
    assert check.status is Status.FAILED
    assert check.actual == f"{address}: Xid 79, the GPU fell off the bus"


def test_a_node_without_gpus_makes_no_claim_about_them() -> None:
    assert judged() == {}


def test_a_fact_that_the_record_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        Gpu.model_validate({**gpu(0), "colour": {"value": "green"}})
