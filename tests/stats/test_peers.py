"""Peers: who lags behind the fleet's median is named, and too few to compare is no verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.stats.peers import FEWEST, compare


def test_a_node_below_its_share_of_the_median_is_named_with_median_and_limit() -> None:
    found = compare({"n1": 100.0, "n2": 110.0, "n3": 20.0}, 0.5)
    assert found is not None
    assert (found.slow, found.median, found.limit) == (("n3",), 100.0, 50.0)


def test_of_seconds_the_one_that_takes_longer_is_slow() -> None:
    found = compare({"n1": 2.0, "n2": 2.0, "n3": 9.0, "n4": 1.0}, 0.25, less_is_better=True)
    assert found is not None
    assert (found.slow, found.limit) == (("n3",), 8.0)


def test_a_node_exactly_at_the_limit_keeps_to_it() -> None:
    found = compare({"n1": 100.0, "n2": 100.0, "n3": 50.0}, 0.5)
    assert found is not None
    assert found.slow == ()


@pytest.mark.parametrize("count", range(FEWEST))
def test_too_few_nodes_are_not_compared(count: int) -> None:
    assert compare({f"n{n}": 1.0 + 99 * n for n in range(count)}, 0.5) is None


@pytest.mark.parametrize("share", [0, 1, -0.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        compare({"a": 1.0, "b": 1.0, "c": 1.0}, share)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_figure_that_was_not_measured_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="figure"):
        compare({"a": 1.0, "b": 1.0, "c": value}, 0.5)


@given(st.integers(3, 40), st.data())
def test_slow_nodes_are_all_named_and_nobody_else_as_long_as_they_are_fewer_than_half(
    nodes: int, data: st.DataObject
) -> None:
    bad = data.draw(st.sets(st.integers(0, nodes - 1), max_size=(nodes - 1) // 2))
    rates = {f"n{n}": data.draw(st.floats(1, 10) if n in bad else st.floats(90, 110)) for n in range(nodes)}
    found = compare(rates, 0.5)
    times = compare({name: 1 / rate for name, rate in rates.items()}, 0.5, less_is_better=True)
    assert found is not None
    assert times is not None
    assert set(found.slow) == set(times.slow) == {f"n{n}" for n in bad}
