"""A slow link between nodes is found among its peers, and named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.benchmarks.links import ITERATIONS, LinkFigure, LinkTimes, figures, shifts, slow
from surefoot.errors import EvidenceError

SIZE = 1_000_000


def times(source: int, gb_s: float = 1.0, **changes: object) -> LinkTimes:
    best = SIZE / gb_s / 1e3
    fields = {"source": source, "size_bytes": SIZE, "times_us": (best * 3, best, *[best * 2] * (ITERATIONS - 2))}
    return LinkTimes.model_validate({**fields, **changes})


def fleet(nodes: int, per_node: int = 2) -> tuple[dict[int, list[LinkTimes]], dict[int, str]]:
    """Every rank's report on a fleet whose links are all alike."""
    world = nodes * per_node
    reports = {
        rank: [times((rank - shift * per_node) % world) for shift in shifts(nodes)] if rank % per_node == 0 else []
        for rank in range(world)
    }
    return reports, {rank: f"n{rank // per_node + 1}" for rank in range(world)}


def links(slow_node: str = "", nodes: int = 4, slow_link: tuple[str, str] = ("", "")) -> list[LinkFigure]:
    reports, hosts = fleet(nodes)
    found = figures(reports, hosts, 2, SIZE, "rank-{rank}.json")
    return [
        LinkFigure(
            f.source,
            f.target,
            f.gb_s * (0.1 if slow_node in (f.source, f.target) or slow_link == (f.source, f.target) else 1),
        )
        for f in found
    ]


def test_every_node_sends_to_its_neighbour_and_large_fleets_also_half_way_round() -> None:
    assert [shifts(nodes) for nodes in (1, 2, 4, 5, 1000)] == [[], [1], [1], [1, 2], [1, 500]]
    assert [str(link) for link in links(nodes=2)] == ["n2 → n1 1 GB/s", "n1 → n2 1 GB/s"]


@pytest.mark.parametrize("nodes", [3, 4, 5, 16])
@pytest.mark.parametrize("node", ["n1", "n3"])
def test_a_slow_node_is_named_by_all_of_its_links(nodes: int, node: str) -> None:
    bad, named = slow(links(node, nodes), 0.5)
    assert named == node
    assert {node in (link.source, link.target) for link in bad} == {True}


def test_one_slow_direction_is_that_link_and_no_node() -> None:
    bad, named = slow(links(slow_link=("n2", "n3")), 0.5)
    assert [(link.source, link.target) for link in bad] == [("n2", "n3")]
    assert named == ""


def test_alike_links_and_pairs_without_peers_are_not_slow() -> None:
    assert slow(links(), 0.5) == ([], "")
    assert slow(links("n1", nodes=2), 0.5) == ([], "")


@given(st.integers(2, 12), st.data())
def test_a_report_that_is_not_what_was_asked_proves_nothing(nodes: int, data: st.DataObject) -> None:
    reports, hosts = fleet(nodes)
    rank = 2 * data.draw(st.integers(0, nodes - 1))
    damage = data.draw(st.sampled_from(["missing", "doubled", "other", "short", "size", "zero"]))
    first = reports[rank][0]
    changed = {
        "missing": reports[rank][1:],
        "doubled": [first, *reports[rank]],
        "other": [times((first.source + 1) % (2 * nodes)), *reports[rank][1:]],
        "short": [times(first.source, times_us=(1e3,)), *reports[rank][1:]],
        "size": [times(first.source, size_bytes=SIZE * 2), *reports[rank][1:]],
        "zero": [times(first.source, times_us=(0.0,) * ITERATIONS), *reports[rank][1:]],
    }[damage]
    with pytest.raises(EvidenceError, match=r"link") as refused:
        figures({**reports, rank: changed}, hosts, 2, SIZE, "rank-{rank}.json")
    assert refused.value.file == f"rank-{rank}.json"
