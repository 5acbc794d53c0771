"""Every row is learned from exactly once an epoch, whatever the split; impossible splits are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import RequestError
from surefoot.training.sharding import plan_batches, rank_rows, step_rows, steps_per_epoch


@given(rows=st.integers(1, 300), batch=st.integers(1, 40), world=st.integers(1, 9), seed=st.integers(), epoch=st.integers(0, 3))  # fmt: skip
def test_every_row_is_at_exactly_one_rank_in_exactly_one_step(
    rows: int, batch: int, world: int, seed: int, epoch: int
) -> None:
    steps = step_rows(rows, global_batch_size=batch, seed=seed, epoch=epoch)
    assert len(steps) == steps_per_epoch(rows, batch)
    dealt = [row for step in steps for rank in range(world) for row in rank_rows(step, rank, world)]
    assert sorted(dealt) == list(range(rows))
    assert all(len(step) == batch for step in steps[:-1])
    for step in steps:
        shares = [len(rank_rows(step, rank, world)) for rank in range(world)]
        assert max(shares) - min(shares) <= 1


def test_the_order_changes_with_seed_and_epoch() -> None:
    orders = {str(step_rows(50, global_batch_size=8, seed=s, epoch=e)) for s in range(3) for e in range(3)}
    assert len(orders) == 9


@given(world=st.integers(1, 8), micro=st.integers(1, 8), accumulation=st.integers(1, 8))
def test_a_split_that_multiplies_up_is_taken_as_asked(world: int, micro: int, accumulation: int) -> None:
    plan = plan_batches(world * micro * accumulation, world, micro)
    assert (plan.micro_batch_size, plan.accumulation) == (micro, accumulation)
    assert plan.global_batch_size == world * micro * accumulation


def test_without_a_micro_batch_there_is_no_accumulation() -> None:
    assert plan_batches(8, 2, None).micro_batch_size == 4
    assert plan_batches(8, 2, None).accumulation == 1


@pytest.mark.parametrize(
    ("batch", "world", "micro", "advice"),
    [
        (8, 3, None, "global_batch_size: 9"),
        (8, 2, 3, "micro_batch_size: 2"),
        (8, 2, 8, "micro_batch_size: 4"),
        (4, 8, 1, "global_batch_size: 8"),
    ],
)
def test_a_split_that_does_not_multiply_up_is_refused_with_one_that_does(
    batch: int, world: int, micro: int | None, advice: str
) -> None:
    with pytest.raises(RequestError) as caught:
        plan_batches(batch, world, micro)
    assert advice in caught.value.next_action
