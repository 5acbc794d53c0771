"""Collectives: the check of links between nodes is seen to fail, and not to pass where nothing can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rungs_harness import planned, with_files
from surefoot.benchmarks.links import LinkFigure
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.collectives import RUNG
from surefoot.rungs.collectives_links import judge_links


def view(root: Path, nodes: int = 3, **asked: Any) -> View:
    group = {"name": "all", "count": nodes}
    slurm = {"kind": "slurm"}
    found = planned(RUNG, {"nodes": nodes, "ranks_per_node": 1, **asked}, root, node_groups=[group], scheduler=slurm)
    return with_files(found, {f"raw/collectives/rank-{rank}.json": b"{}" for rank in range(nodes)})


def ring(hosts: tuple[str, ...], slow: str = "") -> tuple[LinkFigure, ...]:
    pairs = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    return tuple(LinkFigure(a, b, 0.1 if slow in (a, b) else 10.0) for a, b in pairs)


def only(checks: list[Check]) -> Check:
    (check,) = checks
    return check


def test_links_that_are_alike_pass_and_name_every_rank_s_evidence(tmp_path: Path) -> None:
    check = only(judge_links(ring(("n1", "n2", "n3")), view(tmp_path)))
    assert check.status is Status.PASSED
    assert len(check.evidence) == 3


def test_a_node_whose_links_are_slow_fails_by_name(tmp_path: Path) -> None:
    check = only(judge_links(ring(("n1", "n2", "n3"), slow="n2"), view(tmp_path)))
    assert check.status is Status.FAILED
    assert str(check.actual).startswith("all links of n2: ")
    assert check.next_action.startswith("on n2: ")


@pytest.mark.parametrize("links", [(), ring(("localhost", "localhost", "localhost"), slow="localhost")])
def test_links_that_were_not_measured_or_cannot_be_told_apart_prove_nothing(
    tmp_path: Path, links: tuple[LinkFigure, ...]
) -> None:
    assert only(judge_links(links, view(tmp_path))).status is Status.INCONCLUSIVE


def test_two_nodes_have_nobody_to_be_compared_with_and_a_ladder_may_want_no_check(tmp_path: Path) -> None:
    assert judge_links(ring(("n1", "n2"), slow="n1"), view(tmp_path, nodes=2)) == []
    assert judge_links(ring(("n1", "n2", "n3"), slow="n1"), view(tmp_path, min_link_share=0)) == []
