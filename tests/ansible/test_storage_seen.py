"""Whose folder is another, from what each host saw of what others wrote: the others are not blamed for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from loaded import loaded

ANSIBLE = Path(__file__).parents[2] / "ansible"
filters = loaded("plugins/filter/storage_seen.py")


def blamed(seen: dict[str, list[str]], witnesses: list[str]) -> list[str]:
    common = filters.seen_by_most(seen)
    return [host for host, saw in seen.items() if filters.storage_complaint(host, witnesses, saw, common)]


def test_where_all_see_the_same_nobody_is_blamed() -> None:
    assert blamed({host: ["a", "b", "c"] for host in "abcd"}, ["a", "b", "c"]) == []


def test_the_first_host_with_a_folder_of_its_own_is_blamed_alone() -> None:
    assert blamed({"a": ["a"], "b": ["b", "c"], "c": ["b", "c"]}, ["a", "b", "c"]) == ["a"]


def test_one_whose_file_nobody_else_sees_is_blamed_though_it_sees_the_others() -> None:
    assert blamed({"a": ["a", "b", "c"], "b": ["b", "c"], "c": ["b", "c"]}, ["a", "b", "c"]) == ["a"]


def test_of_two_hosts_that_see_only_themselves_neither_is_right() -> None:
    assert blamed({"a": ["a"], "b": ["b"]}, ["a", "b"]) == ["a", "b"]
    told = filters.storage_complaint("a", ["a", "b"], ["a"], [])
    assert told == "of a, b, none wrote what more than half of the hosts see; this one sees a"


def test_nobody_who_saw_anything_is_no_pass() -> None:
    assert blamed({"a": [], "b": []}, ["a", "b"]) == ["a", "b"]


def test_most_witnesses_with_folders_of_their_own_are_outvoted_by_all_hosts() -> None:
    good = {host: ["d", "e"] for host in "defghij"}
    assert blamed({"a": ["a"], "b": ["b"], "c": ["c"], **good}, list("abcde")) == ["a", "b", "c"]


@given(st.sets(st.integers(0, 8), max_size=4))
def test_fewer_than_half_of_nine_with_folders_of_their_own_are_blamed_and_no_other(odd: set[int]) -> None:
    hosts = [f"n{number}" for number in range(9)]
    odd_ones = {hosts[number] for number in odd}
    witnesses = hosts[:5]
    seen = {h: [w for w in witnesses if (w == h if h in odd_ones else w not in odd_ones)] for h in hosts}
    assert blamed(seen, witnesses) == [host for host in hosts if host in odd_ones]


def test_a_file_counts_where_its_word_is_in_it(tmp_path: Path) -> None:
    for name, text in {"gpu-1-aa": "aa", "gpu-2-bb": "other", "gpu-3-cc": ""}.items():
        (tmp_path / f"check-{name}").write_text(text)
    script = (ANSIBLE / "roles/storage/files/seen.sh").read_text()
    done = subprocess.run(
        ["bash", "--norc", "-uc", script, "seen", f"{tmp_path}/check", "gpu-1-aa", "gpu-2-bb", "gpu-3-cc", "gpu-4-dd"],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["gpu-1"]
