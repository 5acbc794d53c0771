"""Lists of numbers are read and written alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.numbers import listed, parse


@given(st.sets(st.integers(0, 300)))
def test_lists_are_read_and_written_alike(numbers: set[int]) -> None:
    assert parse(listed(numbers)) == numbers


def test_neighbours_become_a_range() -> None:
    assert listed([8, 3, 1, 2, 0, 3]) == "0-3,8"


@pytest.mark.parametrize("text", ["1-", "a", "1,,2", "0-3x", "-1"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of numbers"):
        parse(text)
