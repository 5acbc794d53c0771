"""Sizes and factors agree with nccl-tests' definitions, and sweeps lose no size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.benchmarks.collective_sizes import (
    ELEMENT_BYTES,
    SPLIT,
    algbw_gb_s,
    busbw_factor,
    message_bytes,
    part_count,
    result_count,
    sweep,
)

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")


@pytest.mark.parametrize(
    ("collective", "world_size", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 2, 0.5),
        ("alltoall", 4, 0.75),
        ("broadcast", 8, 1.0),
    ],
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(collective: str, world_size: int, factor: float) -> None:
    assert busbw_factor(collective, world_size) == factor


def test_a_collective_that_nobody_knows_has_no_factor() -> None:
    with pytest.raises(KeyError):
        busbw_factor("gossip", 2)


def test_algbw_of_the_reference_system_comes_out_as_nccl_tests_printed_it() -> None:
    assert algbw_gb_s(32 * 1024**2, 1587.0) == pytest.approx(21.14, abs=0.01)


@given(st.sampled_from(NAMES), st.integers(8, 2**40), st.integers(2, 1024))
def test_a_message_is_whole_parts_and_never_larger_than_asked_but_for_one_element_each(
    name: str, size: int, world: int
) -> None:
    parts = world if name in SPLIT else 1
    actual = message_bytes(name, size, world)
    assert actual == part_count(name, size, world) * parts * ELEMENT_BYTES
    assert actual <= max(size, parts * ELEMENT_BYTES)
    assert message_bytes(name, actual, world) == actual
    assert result_count(name, actual, world) >= 1


@given(st.sampled_from(NAMES), st.integers(8, 4096), st.integers(0, 2**30), st.integers(2, 16), st.integers(2, 64))
def test_a_sweep_ascends_without_repeats_and_ends_at_its_maximum(
    name: str, minimum: int, more: int, factor: int, world: int
) -> None:
    sizes = sweep(name, minimum, minimum + more, factor, world)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == message_bytes(name, minimum + more, world)
