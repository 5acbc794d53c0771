"""Versions compare as numbers, and what has none is never new enough."""

from __future__ import annotations

import pytest

from surefoot.versions import at_least, same


@pytest.mark.parametrize(
    ("found", "oldest"), [("3.11.7", "3.11"), ("3.11", "3.11.0"), ("2.13.0+cpu", "2.10"), ("10", "9.9")]
)
def test_new_enough(found: str, oldest: str) -> None:
    assert at_least(found, oldest)


@pytest.mark.parametrize(("found", "oldest"), [("3.9.1", "3.11"), ("2.9", "2.10"), ("", "3"), ("none", "3"), ("3", "")])
def test_not_new_enough(found: str, oldest: str) -> None:
    assert not at_least(found, oldest)


def test_a_patch_level_is_the_same_version_and_a_longer_number_is_not() -> None:
    assert same("13.0.1", "13.0")
    assert not same("13.01", "13.0")
