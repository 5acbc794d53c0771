"""The DDP step whose every value follows from arithmetic. Standard library only: the ranks make
their tensors from these lists, and the judge works the same step out in plain Python.

A model y = W x + b (10 → 10), mean squared error over a batch of 4 rows on each rank, gradients
averaged over ranks (DDP), one SGD step. All inputs are multiples of 1/8 made from a seed of the
attempt, so figures of another attempt do not fit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

WIDTH = 10
ROWS = 4
LEARNING_RATE = 0.125
SUCCESS = "SUCCESS: DDP Multi-Node AllReduce Ring Complete!"
"""Kept word for word: others' automation looks for it. Surefoot's own judge does not."""
Matrix = list[list[float]]


def seed_of(nonce: str) -> int:
    """A seed below 2³² from an attempt's nonce."""
    return int(hashlib.sha256(nonce.encode()).hexdigest()[:8], 16)


def _value(seed: int, kind: str, row: int, column: int) -> float:
    """A multiple of 1/8 in [−2, 2], fixed by where it stands."""
    text = f"{seed}:{kind}:{row}:{column}".encode()
    return (int(hashlib.sha256(text).hexdigest()[:4], 16) % 33 - 16) / 8


def weights(seed: int) -> tuple[Matrix, list[float]]:
    """W [10][10] and b [10], the same on all ranks."""
    matrix = [[_value(seed, "weight", i, j) for j in range(WIDTH)] for i in range(WIDTH)]
    return matrix, [_value(seed, "bias", 0, i) for i in range(WIDTH)]


def batch(seed: int, rank: int) -> tuple[Matrix, Matrix]:
    """Inputs [4][10] and targets [4][10] of one rank."""
    inputs = [[_value(seed, f"input{rank}", k, j) for j in range(WIDTH)] for k in range(ROWS)]
    targets = [[_value(seed, f"target{rank}", k, i) for i in range(WIDTH)] for k in range(ROWS)]
    return inputs, targets


@dataclass(frozen=True)
class Step:
    """What the step must give."""

    losses: tuple[float, ...]
    """Local loss of each rank."""
    loss_sum: float
    """What the all-reduce of the losses gives on every rank."""
    weight_gradient: Matrix
    """Averaged over ranks."""
    bias_gradient: tuple[float, ...]
    weight_after: Matrix
    bias_after: tuple[float, ...]


def _local(matrix: Matrix, bias: list[float], inputs: Matrix, targets: Matrix) -> tuple[float, Matrix, list[float]]:
    """Loss and gradients of one rank. d loss / d y = 2 (y − target) / (rows × width)."""
    loss = 0.0
    weight_gradient = [[0.0] * WIDTH for _ in range(WIDTH)]
    bias_gradient = [0.0] * WIDTH
    for x, target in zip(inputs, targets, strict=True):
        for i in range(WIDTH):
            error = sum(matrix[i][j] * x[j] for j in range(WIDTH)) + bias[i] - target[i]
            loss += error * error / (ROWS * WIDTH)
            slope = 2 * error / (ROWS * WIDTH)
            bias_gradient[i] += slope
            for j in range(WIDTH):
                weight_gradient[i][j] += slope * x[j]
    return loss, weight_gradient, bias_gradient


def expected_step(seed: int, world_size: int) -> Step:
    """The whole step over `world_size` ranks, in float64."""
    matrix, bias = weights(seed)
    parts = [_local(matrix, bias, *batch(seed, rank)) for rank in range(world_size)]
    weight_gradient = [[sum(part[1][i][j] for part in parts) / world_size for j in range(WIDTH)] for i in range(WIDTH)]
    bias_gradient = [sum(part[2][i] for part in parts) / world_size for i in range(WIDTH)]
    return Step(
        losses=tuple(part[0] for part in parts),
        loss_sum=sum(part[0] for part in parts),
        weight_gradient=weight_gradient,
        bias_gradient=tuple(bias_gradient),
        weight_after=[
            [matrix[i][j] - LEARNING_RATE * weight_gradient[i][j] for j in range(WIDTH)] for i in range(WIDTH)
        ],
        bias_after=tuple(bias[i] - LEARNING_RATE * bias_gradient[i] for i in range(WIDTH)),
    )
