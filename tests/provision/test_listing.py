"""What Ansible lists: hosts, groups and plays, complete or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_views import document
from surefoot.errors import EvidenceError
from surefoot.provision.listing import inventory_of, kept, plays_of

INVENTORY = json.loads("\n".join(document("look-good")["inventory"]["stdout"]))
PLAYS = document("check-clean")["plays"]["stdout"]


def test_hosts_and_groups_with_those_below_them() -> None:
    listed = inventory_of(json.dumps(INVENTORY), file="f")
    assert listed.hosts == ["head", "n1", "n2"]
    assert listed.within("slurm_node") == ["n1", "n2"]
    assert listed.within("toy") == listed.within("all") == ["head", "n1", "n2"]
    assert listed.within("nowhere") == []
    assert listed.address("n1") == "n1"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"_meta": {}}, "no _meta.hostvars"),
        ({"all": None}, "group 'all' is none"),
        ({"slurm_node": {"hosts": ["n1"]}}, "n2 in no group"),
        ({"slurm_node": {"hosts": ["n1", "n1", "n2"]}}, "holds a name twice"),
        ({"slurm_node": {"hosts": ["n1", 2]}}, "holds what is no name"),
        ({"all": {"children": []}}, "not below the group all"),
    ],
)
def test_an_inventory_that_is_not_whole_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(EvidenceError, match=word):
        inventory_of(json.dumps({**INVENTORY, **change}), file="f")


def test_an_inventory_without_hosts_is_refused() -> None:
    empty = {"_meta": {"hostvars": {}}, "all": {"children": ["ungrouped"]}}
    with pytest.raises(EvidenceError, match="not one host"):
        inventory_of(json.dumps(empty), file="f")


def test_plays_with_their_hosts() -> None:
    first, second = plays_of(PLAYS, file="f")
    assert (first.name, first.hosts) == ("Files and packages", {"n1", "n2", "head"})
    assert (second.name, second.hosts) == ("Only where there are any", set())


@pytest.mark.parametrize(
    "lost", [row for row in PLAYS if row.startswith("      ") or "play #" in row or "hosts (" in row]
)
def test_a_play_or_a_host_that_is_missing_is_noticed(lost: str) -> None:
    if "play #2" in lost:
        with pytest.raises(EvidenceError):
            plays_of([row for row in PLAYS if row != lost], file="f")
        return
    with pytest.raises(EvidenceError):
        plays_of([row for row in PLAYS if row != lost], file="f")


# --- what is recorded of it -------------------------------------------------------------------------

WHOLE = {
    "_meta": {
        "hostvars": {"n1": {"ansible_host": "10.0.0.1", "x": {"url": "https://u:hunter22@h"}}, "n2": {"y": "hunter22"}}
    },
    "all": {"children": ["ungrouped", "nodes"], "vars": {"z": "hunter22"}},
    "nodes": {"hosts": ["n1", "n2", "n3"]},
}


def test_of_an_inventory_groups_hosts_and_addresses_are_kept_and_nothing_else() -> None:
    text = kept(json.dumps(WHOLE), file="f")
    assert "hunter22" not in text
    listed = inventory_of(text, file="f", recorded=True)
    assert listed.own == inventory_of(json.dumps(WHOLE), file="f").own
    assert listed.variables == {
        "n1": {"ansible_host": "10.0.0.1"}, "n2": {"ansible_host": None}, "n3": {"ansible_host": None},
    }  # fmt: skip


@pytest.mark.parametrize("cut", [1, 30, 60, 120, 200])
def test_an_inventory_that_was_cut_off_does_not_become_a_smaller_one(cut: int) -> None:
    with pytest.raises(EvidenceError):
        kept(json.dumps(WHOLE)[:-cut], file="f")


def test_of_what_was_recorded_not_even_an_empty_line_may_be_missing() -> None:
    rows = kept(json.dumps(WHOLE), file="f").splitlines()
    for number, row in enumerate(rows):
        lines = [*rows[:number], *rows[number + 1 :]]
        try:
            inventory_of("\n".join(lines), file="f", recorded=True)
        except EvidenceError:
            continue
        pytest.fail(f"not noticed: {row}")
