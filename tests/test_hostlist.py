"""Slurm's hostlists, there and back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import RequestError
from surefoot.hostlist import compress, expand, folded, folded_names, natural

NAMES = st.lists(st.from_regex(r"[a-z]{1,3}(-[a-z]{1,2})?([0-9]{1,4}(-ib)?)?", fullmatch=True), max_size=12)
RACKED = st.lists(
    st.tuples(st.sampled_from("ra"), st.integers(0, 12), st.integers(1, 3), st.integers(0, 12), st.integers(1, 3)).map(
        lambda t: f"{t[0]}{t[1]:0{t[2]}d}n{t[3]:0{t[4]}d}"
    ),
    max_size=40,
)
"""Names with two numbers, filled with zeros or not, many of them alike."""
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


@given(st.one_of(NAMES, RACKED))
def test_folding_keeps_every_host_and_names_each_once(names: list[str]) -> None:
    assert sorted(expand(folded(names))) == sorted(set(names))


@given(st.one_of(NAMES, RACKED), st.randoms(use_true_random=False))
def test_folding_does_not_depend_on_the_order_that_hosts_come_in(names: list[str], random: Random) -> None:
    shuffled = [*names, *names[:3]]
    random.shuffle(shuffled)
    assert folded(shuffled) == folded(names)


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 3))
def test_names_with_one_number_are_folded_into_one_item_in_order(numbers: set[int], width: int) -> None:
    hosts = [f"gpu{number:0{width}d}" for number in sorted(numbers)]
    assert "," not in folded(hosts).partition("[")[0]
    assert expand(folded(hosts)) == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ("", ""),
        ("n3,n1,n2,n1", "n[1-3]"),
        ("n10,n9,b,a", "a,b,n[9-10]"),
        ("n10,n9,n011,n09", "n[9,09-10,011]"),
        ("r[01-32]n[1-4]", "r[01-32]n[1-4]"),
        ("r1n[1-2],r2n1", "r1n[1-2],r2n1"),
        ("r[1-3]n4", "r[1-3]n[4]"),  # Slurm refuses r[1-3]n4
        ("a[1-2]b[1-2]c[1-2]", "a[1-2]b[1-2]c[1-2]"),
        ("gpu1-ib,gpu2-ib", "gpu1-ib,gpu2-ib"),  # Slurm refuses gpu[1-2]-ib
        ("n18446744073709551615,n18446744073709551616", "n18446744073709551615,n18446744073709551616"),
    ],
)
def test_hosts_are_folded_as_people_count(hosts: str, text: str) -> None:
    assert folded(expand(hosts)) == text


@given(st.one_of(NAMES, RACKED))
def test_names_of_other_things_are_folded_wherever_their_number_stands(names: list[str]) -> None:
    keys = [f"{name}.vbios" for name in names]
    assert sorted(expand(folded_names(keys))) == sorted(set(keys))


def test_one_fact_of_eight_gpus_is_one_name() -> None:
    assert folded_names(f"gpu{n}.vbios" for n in range(8)) == "gpu[0-7].vbios"
    assert folded_names(f"gpu{g}.nvlink{n}" for g in range(8) for n in range(18)) == "gpu[0-7].nvlink[0-17]"


def test_names_sort_as_people_count() -> None:
    assert sorted(["n10", "n2", "a", "n010", "n2x1"], key=natural) == ["a", "n2", "n2x1", "n10", "n010"]


def test_a_thousand_hosts_in_racks_are_one_short_item() -> None:
    assert folded(f"r{r:02d}n{n:02d}" for r in range(1, 33) for n in range(1, 33)) == "r[01-32]n[01-32]"


Scontrol = Callable[..., list[str]]


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> Scontrol:
    """What this machine's ``scontrol show`` says of a list. Needs a slurm.conf and no controller."""
    if not shutil.which("scontrol"):
        pytest.fail("not installed: scontrol (scripts/setup.sh lab installs it)", pytrace=False)
    conf: Path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\n")
    env = {**os.environ, "SLURM_CONF": str(conf)}

    def show(what: str, text: str) -> list[str]:
        argv = ["scontrol", "show", what, text]
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=30).stdout.split()

    return show


@pytest.mark.lab
@settings(max_examples=150, deadline=None)
@given(names=st.one_of(NAMES, RACKED).filter(bool))
def test_slurm_reads_what_was_compressed_and_folded_as_the_same_hosts(scontrol: Scontrol, names: list[str]) -> None:
    assert scontrol("hostnames", compress(names)) == names
    assert sorted(scontrol("hostnames", folded(names))) == sorted(set(names))


@pytest.mark.lab
@settings(max_examples=150, deadline=None)
@given(names=st.one_of(NAMES, RACKED).filter(bool))
def test_what_slurm_compresses_is_read_as_slurm_reads_it(scontrol: Scontrol, names: list[str]) -> None:
    for what in ("hostlist", "hostlistsorted"):
        (theirs,) = scontrol(what, ",".join(names))
        assert expand(theirs) == scontrol("hostnames", theirs)
        assert sorted(expand(theirs)) == sorted(names)


@pytest.mark.lab
@settings(max_examples=150, deadline=None)
@given(hosts=st.sets(st.integers(0, 1200), min_size=1), width=st.integers(1, 5))
def test_folding_names_of_one_number_is_what_slurm_sorts_and_writes(
    scontrol: Scontrol, hosts: set[int], width: int
) -> None:
    names = [f"gpu{number:0{width}d}" for number in hosts]
    assert [folded(names)] == scontrol("hostlistsorted", ",".join(names))


@pytest.mark.lab
@settings(max_examples=60, deadline=None)
@given(dimensions=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=4))
def test_lists_with_several_brackets_are_read_in_slurm_s_order(
    scontrol: Scontrol, dimensions: list[tuple[int, int, int]]
) -> None:
    ranges = [f"[{first:0{width}d}-{first + more:0{width}d},77]" for first, more, width in dimensions]
    text = "r" + "n".join(ranges)
    assert expand(text) == scontrol("hostnames", text)


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]1[", "n[[1]]", "n[a]", "n[2-1]", "a,,b", ",a", "a,", "n[1-999999]", "a b", "n[]", "n[0-9999]m[0-99]"],
)
def test_a_list_that_is_none_is_refused_and_says_why(text: str) -> None:
    with pytest.raises(RequestError, match="hostlist"):
        expand(text)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "n[1]"])
def test_a_name_that_a_list_could_not_hold_is_refused(name: str) -> None:
    for write in (compress, folded):
        with pytest.raises(RequestError, match="cannot be the name of a host"):
            write([name])
