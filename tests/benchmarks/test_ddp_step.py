"""The hand-worked DDP step is right: checked against finite differences, not against itself."""

from __future__ import annotations

import pytest

from surefoot.benchmarks.ddp_step import LEARNING_RATE, ROWS, WIDTH, batch, expected_step, seed_of, weights


def mean_loss(matrix: list[list[float]], bias: list[float], seed: int, world: int) -> float:
    total = 0.0
    for rank in range(world):
        inputs, targets = batch(seed, rank)
        for x, target in zip(inputs, targets, strict=True):
            for i in range(WIDTH):
                y = sum(matrix[i][j] * x[j] for j in range(WIDTH)) + bias[i]
                total += (y - target[i]) ** 2
    return total / (ROWS * WIDTH * world)


@pytest.mark.parametrize("world", [1, 2, 5])
def test_gradients_are_the_slopes_of_the_loss(world: int) -> None:
    seed = seed_of("abc")
    step = expected_step(seed, world)
    matrix, bias = weights(seed)
    assert step.loss_sum / world == pytest.approx(mean_loss(matrix, bias, seed, world))
    small = 1e-4
    for i, j in ((0, 0), (3, 7), (9, 9)):
        up, down = [row[:] for row in matrix], [row[:] for row in matrix]
        up[i][j] += small
        down[i][j] -= small
        slope = (mean_loss(up, bias, seed, world) - mean_loss(down, bias, seed, world)) / (2 * small)
        assert step.weight_gradient[i][j] == pytest.approx(slope, abs=1e-6)
        assert step.weight_after[i][j] == matrix[i][j] - LEARNING_RATE * step.weight_gradient[i][j]


def test_ranks_have_different_data_and_attempts_have_different_figures() -> None:
    one = expected_step(seed_of("one"), 2)
    assert one.losses[0] != one.losses[1]
    assert one.loss_sum != expected_step(seed_of("two"), 2).loss_sum
