"""Versions compare as numbers, and what has none is never new enough."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import Specifier
from packaging.version import Version

from surefoot.versions import at_least, meets_pin, pinned, same


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


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("2.10.0", "2.10"),
        ("2.10.0+cpu", "2.10.0"),
        ("2.10.0+cpu", "2.10.0+CPU"),
        ("1.0rc1", "1.0.c1"),
        ("1.0.post1", "1.0-1"),
        ("1!2", "1!2.0"),
    ],
)
def test_what_a_pin_means(found: str, wanted: str) -> None:
    assert meets_pin(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("2.10.0", "2.10.0+cpu"),
        ("2.10.1", "2.10"),
        ("2.10.0+cu130", "2.10.0+cpu"),
        ("1.0", "1.0.post0"),
        ("1.0", "1.0rc1"),
        ("", "1"),
        ("None", "1"),
        ("9" * 5000, "1"),
    ],
)
def test_what_a_pin_does_not_mean(found: str, wanted: str) -> None:
    assert not meets_pin(found, wanted)


PEP440 = st.from_regex(
    r"v?([0-9]!)?[0-9]{1,2}(\.[0-9]{1,2}){0,3}([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]?)?"
    r"(-[0-9]|[-_.]?(post|rev|r)[-_.]?[0-9]?)?([-_.]?dev[-_.]?[0-9]?)?(\+[a-z0-9]{1,3}([-_.][a-z0-9]{1,3})?)?",
    fullmatch=True,
).filter(str.isascii)


@settings(max_examples=300)
@given(PEP440, PEP440)
def test_pins_are_met_as_the_reference_implementation_says(found: str, wanted: str) -> None:
    for have in (found, wanted):
        assert pinned(have)
        assert meets_pin(have, wanted) == Specifier(f"=={wanted}").contains(Version(have), prereleases=True)
