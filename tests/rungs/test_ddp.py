"""DDP: loss, gradient and parameters are those of plain arithmetic, on every rank, for this attempt."""

from __future__ import annotations

from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, status_of
from surefoot.model.status import Status
from surefoot.node.ddp import SUCCESS
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

    own = _local(good.expect["seed"], 1)
    damaged = edited(good, SECOND, lambda r: r["data"].update(weight_gradient=own[1], bias_gradient=own[2]))
    assert failed(RUNG, damaged) == {"ddp.rank1.gradient"}


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
