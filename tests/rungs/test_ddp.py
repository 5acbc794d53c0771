"""DDP: loss, gradient and parameters are those of plain arithmetic, on every rank, for this attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collect, collected, edited, failed, judged, planned, status_of, with_files
from surefoot.benchmarks.ddp_step import SUCCESS, batch, weights
from surefoot.model.run import JobsStep
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.ddp import RUNG

SECOND = "raw/ddp/rank-1.json"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {}, tmp_path_factory.mktemp("ddp"))


def test_two_ranks_pass_and_print_the_stable_line_once(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED
    log = next(b.text() for b in good.evidence.under("raw/ddp") if b.name.endswith(".out"))
    assert log.count(SUCCESS) == 1


@pytest.mark.parametrize(
    ("key", "check"),
    [
        ("loss", "ddp.rank1.loss"),
        ("loss_sum", "ddp.rank1.loss"),
        ("weight_gradient", "ddp.rank1.gradient"),
        ("bias_gradient", "ddp.rank1.gradient"),
        ("weight_after", "ddp.rank1.parameters"),
        ("bias_after", "ddp.rank1.parameters"),
    ],
)
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.001])
def test_a_value_that_arithmetic_does_not_give_fails(good: View, key: str, check: str, scale: float) -> None:
    def scaled(value: Any) -> Any:
        return [scaled(part) for part in value] if isinstance(value, list) else value * scale

    damaged = edited(good, SECOND, lambda report: report["data"].update({key: scaled(report["data"][key])}))
    assert check in failed(RUNG, damaged)


def test_gradients_that_were_not_averaged_fail(good: View) -> None:
    from surefoot.benchmarks.ddp_step import _local

    seed = good.expect["seed"]
    own = _local(*weights(seed), *batch(seed, 1))
    damaged = edited(good, SECOND, lambda r: r["data"].update(weight_gradient=own[1], bias_gradient=own[2]))
    assert failed(RUNG, damaged) == {"ddp.rank1.gradient"}


def test_the_summary_claims_nothing_that_the_checks_do_not(good: View) -> None:
    assert "as computed by hand; parameters identical" in judged(RUNG, good).summary
    damaged = edited(good, SECOND, lambda report: report["data"].update(parameter_digest="0" * 64))
    assert judged(RUNG, damaged).summary.endswith("over 2 ranks; not so: ddp.identical")


ONE_GPU = {"name": "g", "count": 1, "gpus_per_node": 1}
GPU = "raw/ddp_gpu/rank-0.json"


def test_a_site_with_one_gpu_trains_on_it_too(tmp_path: Path) -> None:
    jobs = planned(RUNG, {}, tmp_path, node_groups=[ONE_GPU]).plan.jobs
    assert [(j.name, j.world_size, j.gpus_per_node, j.request["backend"]) for j in jobs] == [
        ("ddp", 2, 0, "gloo"),
        ("ddp_gpu", 1, 1, "nccl"),
    ]
    two = planned(RUNG, {}, tmp_path, node_groups=[{**ONE_GPU, "gpus_per_node": 2}]).plan.jobs
    assert [(j.name, j.world_size, j.gpus_per_node) for j in two] == [("ddp", 2, 2)]


@pytest.fixture(scope="module")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> View:
    """A site with one GPU, whose GPU rank really ran on the CPU: what a GPU's report would say is written over it."""
    root = tmp_path_factory.mktemp("one")
    view = planned(RUNG, {}, root, node_groups=[ONE_GPU])
    (step,) = view.plan.steps
    assert isinstance(step, JobsStep)
    gpu = step.jobs[1]
    cpu = gpu.model_copy(update={"gpus_per_node": 0, "request": {**gpu.request, "device": "cpu", "backend": "gloo"}})
    view = collect(view, (JobsStep(jobs=(step.jobs[0], cpu)),), root)
    device = {"kind": "cuda", "index": 0, "name": "NVIDIA H200", "uuid": "u", "pci_bus_id": "b", "memory_bytes": 1}
    view = edited(view, "raw/ddp_gpu/job.json", lambda d: d.update(spec=gpu.canonical()))
    view = edited(view, "raw/ddp_gpu/request.json", lambda d: d.update(gpu.request))

    def on_gpu(report: dict[str, Any]) -> None:
        report["data"].update(backend="nccl", parameter_device="cuda:0")
        report["data"]["device"].update(device, cuda="13.0", nccl="2.28.9")

    return edited(view, GPU, on_gpu)


def test_one_gpu_passes_and_says_that_it_trained_alone(one_gpu: View) -> None:
    judgement = judged(RUNG, one_gpu)
    assert status_of(RUNG, one_gpu) is Status.PASSED
    (check,) = (c for c in judgement.checks if c.id == "ddp_gpu.world")
    assert "a single GPU has no other to train with" in check.claim
    assert "over 1 rank on the one GPU" in judgement.summary


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"backend": "gloo"}, "ddp_gpu.world"),
        ({"parameter_device": "cpu"}, "ddp_gpu.devices"),
        ({"loss": 0.0}, "ddp_gpu.rank0.loss"),
    ],
)
def test_one_gpu_that_did_not_do_the_step_fails(one_gpu: View, change: dict[str, Any], check: str) -> None:
    assert failed(RUNG, edited(one_gpu, GPU, lambda report: report["data"].update(change))) == {check}


def test_one_gpu_that_does_not_answer_proves_nothing(one_gpu: View) -> None:
    assert status_of(RUNG, with_files(one_gpu, {GPU: None})) is Status.INCONCLUSIVE


def test_parameters_that_differ_in_one_bit_fail(good: View) -> None:
    damaged = edited(good, SECOND, lambda report: report["data"].update(parameter_digest="0" * 64))
    assert failed(RUNG, damaged) == {"ddp.identical"}


@pytest.mark.parametrize("change", [{"world_size": 1}, {"loss": None}, {"bias_after": [1.0]}, {"rank": 0}])
def test_a_report_that_is_not_what_was_asked_proves_nothing(good: View, change: dict[str, Any]) -> None:
    assert status_of(RUNG, edited(good, SECOND, lambda report: report["data"].update(change))) is Status.INCONCLUSIVE


def test_a_step_on_another_device_fails(good: View) -> None:
    damaged = edited(good, SECOND, lambda report: report["data"].update(parameter_device="cuda:0"))
    assert failed(RUNG, damaged) == {"ddp.devices"}


def test_the_log_line_alone_proves_nothing(good: View) -> None:
    damaged = edited(good, SECOND, lambda report: report["data"].update(loss_sum=1.0))
    assert judged(RUNG, good).checks != judged(RUNG, damaged).checks
    assert status_of(RUNG, damaged) is Status.FAILED
