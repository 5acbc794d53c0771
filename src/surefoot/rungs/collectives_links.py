"""Collectives: which link between nodes is slow, judged by the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surefoot.benchmarks.links import FEWEST_NODES, ITERATIONS, LinkFigure, LinkTimes, figures, shifts, slow
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.ladder import Collectives as CollectivesSpec
from surefoot.rungs.base import Layout, View
from surefoot.rungs.judging import decide, shorten, unproved
from surefoot.units import format_size

LARGEST = 32 * 1024**2
"""Bytes: long enough to fill a 200 Gb/s link for a millisecond."""


def plan_links(where: Layout, max_size: int) -> dict[str, Any] | None:
    """What the ranks are asked; None on one node."""
    if where.nodes < 2:
        return None
    size = max(4, min(max_size, LARGEST) // 4 * 4)
    return {"size_bytes": size, "shifts": shifts(where.nodes), "iterations": ITERATIONS}


def least_share(spec: CollectivesSpec, where: Layout) -> float:
    """Of what the quickest links carry. Over gloo, ranks share CPUs with all else that runs there."""
    if spec.min_link_share != "auto":
        return spec.min_link_share
    return 0.5 if where.device == "cuda" else 0.2


def read_links(
    reports: dict[int, Sequence[LinkTimes]], hosts: dict[int, str], cap_bytes: int, view: View
) -> tuple[LinkFigure, ...]:
    """Every link that was asked for; none where memory capped the size. Raises EvidenceError."""
    asked, per_node = view.expect["links"], view.expect["ranks_per_node"]
    if asked is None or asked["size_bytes"] > cap_bytes:
        if any(reports.values()):
            raise EvidenceError("tells of links that were not asked for", file="raw/collectives/rank-0.json")
        return ()
    return tuple(figures(reports, hosts, per_node, asked["size_bytes"], "raw/collectives/rank-{rank}.json"))


def judge_links(links: tuple[LinkFigure, ...], view: View) -> list[Check]:
    """One check where there are nodes to compare; none where there are not, or none is wanted (`min_link_share: 0`)."""
    asked, share = view.expect["links"], float(view.expect["min_link_share"])
    if asked is None or share == 0 or view.expect["world_size"] < FEWEST_NODES * view.expect["ranks_per_node"]:
        return []
    claim = (
        f"every link between nodes carries {share:.0%} of what the quickest do, at {format_size(asked['size_bytes'])}"
    )
    files = sorted(blob.name for blob in view.evidence.under("raw/collectives") if "/rank-" in blob.name)
    references = tuple(view.evidence.ref(name) for name in files)
    if not links:
        action = "memory did not suffice for the message: see the cap"
        not_measured = unproved(
            "collectives.links", claim, evidence=references, actual="not measured", next_action=action
        )
        return [not_measured]
    hosts = sorted({link.target for link in links})
    if len(hosts) < FEWEST_NODES:
        alike = unproved(
            "collectives.links", claim, evidence=references, expected=f"{FEWEST_NODES} hosts or more",
            actual=f"measured between hosts that call themselves {', '.join(hosts)}: too few to compare",
            next_action="give each node a name of its own (`hostname`)",
        )  # fmt: skip
        return [alike]
    bad, node = slow(links, share)
    words = shorten([str(link) for link in bad])
    return [
        decide(
            "collectives.links",
            claim,
            not bad,
            expected=f"≥ {share:.0%} of the upper quartile",
            actual=(f"all links of {node}: {words}" if node else words) or f"slowest: {slowest(links)}",
            evidence=references,
            derivation="first rank of a node to that of the next, the quickest time of each; peers of one fleet are alike",
            next_action=f"on {node or 'both ends'}: link rate (ethtool, ibstat), errors, cable, switch port, and what else uses it",
        )
    ]


def slowest(links: Sequence[LinkFigure]) -> LinkFigure:
    """The link to look at first."""
    return min(links, key=lambda link: link.gb_s)
