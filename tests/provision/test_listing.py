"""What Ansible lists: hosts, groups and plays, complete or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_views import document
from surefoot.errors import EvidenceError
from surefoot.provision.listing import inventory_of, plays_of

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
