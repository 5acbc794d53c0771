"""A figure against its history: shifted, as it was, or not to be said with so few repeats."""

from __future__ import annotations

import math

import pytest

from surefoot.stats.shift import ENOUGH, FEWEST, Allowance, Verdict, shift

STEADY = Allowance(effect=0.03, gross=0.15)
TWO_VALUED = Allowance(effect=0.2, between=0.4, gross=0.9)
LOW, HIGH = math.log(18.5 / 22), math.log(26.5 / 22)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.0, Verdict.SAME),
        (0.039, Verdict.SAME),
        (0.041, Verdict.SLOWER),
        (-0.039, Verdict.SAME),
        (-0.041, Verdict.FASTER),
    ],
)
def test_beyond_the_worst_healthy_one_by_more_than_the_effect(value: float, verdict: Verdict) -> None:
    assert shift(value, [0.01, -0.01, 0.0], STEADY).verdict is verdict


def test_what_a_few_repeats_may_not_have_shown_is_unsure_until_there_are_enough() -> None:
    seen = [shift(HIGH, [LOW] * count, TWO_VALUED) for count in range(1, ENOUGH + 1)]
    assert [one.verdict for one in seen[:-1]] == [Verdict.UNSURE] * (ENOUGH - 1)
    assert seen[-1].verdict is Verdict.SLOWER
    assert [one.more for one in seen[:3]] == [2, 1, ENOUGH - FEWEST]
    limits = [one.slower_from for one in seen[FEWEST - 1 :]]
    assert limits == sorted(limits, reverse=True)


def test_both_values_seen_leave_nothing_to_be_unsure_of() -> None:
    both = [LOW, HIGH, LOW]
    assert shift(HIGH, both, TWO_VALUED).verdict is Verdict.SAME
    assert shift(HIGH + 0.19, both, TWO_VALUED).verdict is Verdict.SAME
    assert shift(HIGH + math.log(1.5), both, TWO_VALUED).verdict is Verdict.SLOWER


def test_a_gross_shift_needs_no_history_and_anything_else_does() -> None:
    for count in (1, 2):
        assert shift(0.16, [0.0] * count, STEADY).verdict is Verdict.SLOWER
        small = shift(0.14, [0.0] * count, STEADY)
        assert (small.verdict, small.more) == (Verdict.UNSURE, FEWEST - count)
        assert shift(0.0, [0.0] * count, STEADY).verdict is Verdict.UNSURE  # one measurement is no baseline


@pytest.mark.parametrize(("value", "healthy"), [(0.0, []), (math.nan, [0.0]), (0.0, [math.inf])])
def test_what_was_not_measured_is_refused(value: float, healthy: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        shift(value, healthy, STEADY)
