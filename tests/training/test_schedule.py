"""The learning rate: warms up to its peak, then falls as declared, and never reaches 0 while training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.training.schedule import learning_rate


def rates(steps: int, warmup_ratio: float, schedule: str) -> list[float]:
    return [
        learning_rate(n, steps=steps, peak=2.0, warmup_ratio=warmup_ratio, schedule=schedule)
        for n in range(1, steps + 1)
    ]


def test_linear_with_a_tenth_of_warm_up() -> None:
    assert rates(10, 0.2, "linear") == pytest.approx([1, 2, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    assert rates(10, 0.0, "cosine")[5] == pytest.approx(1.0)
    assert rates(10, 0.0, "cosine")[0] == 2.0


def test_constant_stays_at_its_peak_after_warm_up() -> None:
    assert rates(5, 0.4, "constant") == pytest.approx([1, 2, 2, 2, 2])


@given(steps=st.integers(1, 400), warmup=st.floats(0, 1), schedule=st.sampled_from(["linear", "cosine", "constant"]))
def test_the_rate_is_positive_rises_then_never_rises_again(steps: int, warmup: float, schedule: str) -> None:
    found = rates(steps, warmup, schedule)
    assert all(0 < rate <= 2.0 for rate in found)
    top = found.index(max(found))
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_an_unknown_schedule_is_an_error() -> None:
    with pytest.raises(ValueError, match="wavy"):
        learning_rate(9, steps=10, peak=1, warmup_ratio=0, schedule="wavy")
