"""The sweep's own check finds wrong elements: each collective's expected result, and damage to it."""

from __future__ import annotations

import pytest
import torch

from surefoot.node.collectives import Operation, count_wrong, pattern

pytestmark = pytest.mark.slow  # imports torch
CPU = torch.device("cpu")
WORLD, SIZE = 4, 4 * 4 * 40


def by_hand(name: str, rank: int) -> torch.Tensor:
    """The result of a collective, from every rank's send buffer, written out."""
    operations = [Operation(name, SIZE, r, WORLD, CPU) for r in range(WORLD)]
    for operation in operations:
        operation.fresh()
    sent = [operation.send for operation in operations]
    part = operations[0].part
    if name == "all_reduce":
        return torch.stack(sent).sum(0)
    if name == "broadcast":
        return sent[0]
    if name == "sendrecv":
        return sent[(rank - 1) % WORLD]
    if name == "all_gather":
        return torch.cat(sent)
    if name == "reduce_scatter":
        return torch.stack(sent).sum(0)[rank * part : (rank + 1) * part]
    return torch.cat([s[rank * part : (rank + 1) * part] for s in sent])


NAMES = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", range(WORLD))
def test_the_expected_result_is_that_of_the_collective(name: str, rank: int) -> None:
    operation = Operation(name, SIZE, rank, WORLD, CPU)
    assert count_wrong(by_hand(name, rank), operation.expected) == 0


@pytest.mark.parametrize("name", NAMES)
def test_one_damaged_element_is_one_wrong_element(name: str) -> None:
    operation = Operation(name, SIZE, 1, WORLD, CPU)
    for value in (-1.0, float("nan")):
        result = by_hand(name, 1)
        result[7] = value
        assert count_wrong(result, operation.expected) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_collective_that_did_nothing_is_wrong(name: str) -> None:
    operation = Operation(name, SIZE, 1, WORLD, CPU)
    operation.fresh()
    assert count_wrong(operation.result, operation.expected) > 0


def test_sums_over_thousands_of_ranks_stay_exact() -> None:
    worst = sum(float(pattern(rank, 1020, 1021, CPU)) for rank in range(8000))
    assert worst < 2**24
