"""What nodes record, compared: planted drifts are found and nothing else, and the lack of a list is not the lack of what it lists."""

from __future__ import annotations

from typing import Any

import pytest

from node_views import known, unknown
from recorded_fleet import PLANTS, UNREADABLE, nodes, planted
from surefoot.hardware.comparable import comparable
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.fleet import Agreement, Fleet, compare


def compared(fleet: dict[str, dict[str, Any]]) -> Fleet:
    return compare({host: comparable(NodeFacts.model_validate(facts)) for host, facts in fleet.items()})


def differing(fleet: Fleet) -> set[tuple[str, str]]:
    return {(host, key) for row in fleet.rows for share in row.minority for host in share.hosts for key in row.keys}


def test_nodes_that_are_alike_agree() -> None:
    assert compared(nodes(4)).agreement is Agreement.AGREES


@pytest.mark.parametrize("drifts", [1, len(PLANTS), 2 * len(PLANTS)])
def test_planted_drifts_are_found_and_nothing_else(drifts: int) -> None:
    fleet = nodes(24)
    hidden = planted(fleet, drifts, unreadable=2)
    found = compared(fleet)
    assert differing(found) == hidden
    (unread,) = found.that(Agreement.UNKNOWN)
    assert unread.sentence == f"gpu1.fabric completed on 22 nodes, unknown ({UNREADABLE}) on gpu[04,09]"


@pytest.mark.parametrize("fact", ["gpus", "mounts", "variables"])
def test_what_a_node_cannot_list_is_unknown_and_not_missing(fact: str) -> None:
    fleet = nodes(4)
    fleet["gpu03"][fact] = unknown("no permission")
    found = compared(fleet)
    assert found.agreement is Agreement.UNKNOWN
    assert all("not there" not in row.sentence for row in found.rows)
    (first, *_) = found.that(Agreement.UNKNOWN)
    assert "unknown (no permission) on gpu03" in first.sentence


def test_a_gpu_that_fell_off_the_bus_is_told_once() -> None:
    fleet = nodes(4)
    fleet["gpu02"]["gpus"]["value"].pop()
    sentences = [row.sentence for row in compared(fleet).that(Agreement.DIFFERS)]
    assert sentences == [
        "gpus 8 on 3 nodes, 7 on gpu02",
        "gpu7.* (15 facts) there on 3 nodes, not there on gpu02",
    ]


@pytest.mark.parametrize("limit", ["memlock", "nofile", "processes", "stack"])
@pytest.mark.parametrize("recorded", [None, 2**64 - 1])
def test_no_limit_is_called_unlimited(limit: str, recorded: int | None) -> None:
    (facts,) = nodes(1).values()
    facts[limit] = known(recorded)
    assert comparable(NodeFacts.model_validate(facts))[limit] == "unlimited"


def test_a_limit_is_its_figure() -> None:
    (facts,) = nodes(1).values()
    facts["memlock"] = known(65536)
    assert comparable(NodeFacts.model_validate(facts))["memlock"] == "65536"
