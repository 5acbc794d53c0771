"""The training step of known data: what ranks report of it, held against what arithmetic says. Pure."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from surefoot.benchmarks.ddp_step import Step
from surefoot.benchmarks.device import Device
from surefoot.errors import EvidenceError
from surefoot.model.base import Record

TOLERANCE = 1e-5
"""Relative to the largest value: float32 has 6e-8 for each operation, and no value takes more than
some eighty of them (40 terms of the loss, 10 of a product, the sum over ranks)."""


class StepValues(Record):
    """What ``surefoot.node.ddp.step`` gives."""

    rank: int
    backend: str
    world_size: int
    device: Device
    parameter_device: str
    loss: float
    loss_sum: float
    weight_gradient: tuple[tuple[float, ...], ...]
    bias_gradient: tuple[float, ...]
    weight_after: tuple[tuple[float, ...], ...]
    bias_after: tuple[float, ...]
    parameter_digest: str = Field(pattern="^[0-9a-f]{64}$")


def refuse_misshapen(data: StepValues, world_size: int, file: str) -> None:
    """Raises EvidenceError where the step was not one of `world_size` ranks, or its values have other shapes."""
    if data.world_size != world_size:
        raise EvidenceError(f"its group had {data.world_size} ranks", file=file)
    rows = (*data.weight_gradient, *data.weight_after, data.bias_gradient, data.bias_after)
    if len(data.weight_gradient) != 10 or len(data.weight_after) != 10 or any(len(row) != 10 for row in rows):
        raise EvidenceError("a gradient or parameter is not of shape 10 × 10 and 10", file=file)


def loss_fits(data: StepValues, step: Step) -> bool:
    """Whether its own loss and the sum of all are the computed ones."""
    own, total = step.losses[data.rank], step.loss_sum
    return _close(data.loss, own, own) and _close(data.loss_sum, total, total)


def gradient_distance(data: StepValues, step: Step) -> tuple[bool, float]:
    """Whether the gradient is the average over all ranks' data, and the largest distance."""
    found = _flat(data.weight_gradient, data.bias_gradient)
    return _worst(found, _flat(step.weight_gradient, step.bias_gradient))


def parameter_distance(data: StepValues, step: Step) -> tuple[bool, float]:
    """Whether one step moved the parameters to where arithmetic says, and the largest distance."""
    return _worst(_flat(data.weight_after, data.bias_after), _flat(step.weight_after, step.bias_after))


def problems(data: StepValues, step: Step) -> list[str]:
    """Everything of one rank's step that is not as computed, in words."""
    found = []
    if not loss_fits(data, step):
        own, total = step.losses[data.rank], step.loss_sum
        found.append(f"loss {data.loss:.6f} (not {own:.6f}), sum {data.loss_sum:.6f} (not {total:.6f})")
    for name, (ok, worst) in (
        ("gradient", gradient_distance(data, step)),
        ("parameters", parameter_distance(data, step)),
    ):
        if not ok:
            found.append(f"{name} off by {worst:.3g}")
    return found


def _close(found: float, wanted: float, scale: float) -> bool:
    return math.isfinite(found) and abs(found - wanted) <= TOLERANCE * max(scale, 1e-3)


def _worst(found: list[float], wanted: list[float]) -> tuple[bool, float]:
    """Whether all are close, relative to the largest, and the largest distance."""
    scale = max(abs(value) for value in wanted)
    ok = len(found) == len(wanted) and all(_close(f, w, scale) for f, w in zip(found, wanted, strict=True))
    return ok, max(abs(f - w) for f, w in zip(found, wanted, strict=True))


def _flat(matrix: Any, vector: Any) -> list[float]:
    return [value for row in matrix for value in row] + list(vector)
