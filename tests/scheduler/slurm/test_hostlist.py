"""Slurm's hostlists, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import RequestError
from surefoot.scheduler.slurm.hostlist import compress, expand

NAMES = st.lists(st.from_regex(r"[a-z]{1,3}(-[a-z]{1,2})?([0-9]{1,4}(-ib)?)?", fullmatch=True), max_size=12)
RANGES = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 12), st.integers(1, 4)).map(
        lambda t: f"{t[0]:0{t[2]}d}-{t[0] + t[1]:0{t[2]}d}" if t[1] else f"{t[0]:0{t[2]}d}"
    ),
    min_size=1,
    max_size=3,
)


@given(NAMES)
def test_what_was_compressed_expands_to_the_same_hosts_in_the_same_order(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.lists(RANGES, min_size=1, max_size=2))
def test_expanding_and_compressing_again_keeps_every_host(dimensions: list[list[str]]) -> None:
    hosts = expand("r" + "n".join(f"[{','.join(ranges)}]" for ranges in dimensions))
    assert expand(compress(hosts)) == hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("a", ["a"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[1,3-4],b", ["n1", "n3", "n4", "b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ],
)
def test_a_list_means_these_hosts(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n09", "n10"], "n[09-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n3", "b"], "n[1,3],b"),
        (["n1"], "n1"),
        (["n2", "n1"], "n[2,1]"),
    ],
)
def test_hosts_are_written_short(hosts: list[str], text: str) -> None:
    assert compress(hosts) == text


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1[", "n[[1]]", "n[a]", "n[2-1]", "a,,b", ",a", "a,", "n[1-999999]", "a b", "n[]", "n[0-9999]m[0-99]"],
)
def test_a_list_that_is_none_is_refused_and_says_why(text: str) -> None:
    with pytest.raises(RequestError, match="hostlist"):
        expand(text)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "n[1]"])
def test_a_name_that_a_list_could_not_hold_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="cannot be the name of a host"):
        compress([name])
