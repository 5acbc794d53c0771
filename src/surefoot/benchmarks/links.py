"""Links between nodes: which pairs are measured, what each rank reports, and which node or link is slow. Pure.

A collective is as fast as its slowest link and does not say which that is. So the first rank of
every node also sends to that of the next node (`shifts`), all nodes at once, each transfer on its
own after a barrier; the receiver takes the time. Every node then has links in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from surefoot.benchmarks.collective_sizes import algbw_gb_s
from surefoot.errors import EvidenceError
from surefoot.model.base import Record

ITERATIONS = 20
"""Enough for one to be undisturbed: on hosts that share two cores the quickest of five still varied by two."""
FEWEST_NODES = 3
"""With two nodes there is one pair and nobody to compare it with."""


class LinkTimes(Record):
    """What one rank received from another: one time for each iteration."""

    source: int = Field(ge=0)
    """Rank that sent."""
    size_bytes: int = Field(ge=4)
    times_us: tuple[float, ...] = Field(min_length=1)


@dataclass(frozen=True)
class LinkFigure:
    """One direction between two nodes."""

    source: str
    target: str
    gb_s: float
    """Of its quickest iteration: what else the nodes do makes a transfer slower, never quicker."""

    def __str__(self) -> str:
        return f"{self.source} → {self.target} {self.gb_s:.3g} GB/s"


def shifts(nodes: int) -> list[int]:
    """How far each node sends: to its neighbour, and with five nodes or more also half way round."""
    if nodes < 2:
        return []
    return [1] if nodes < 5 else [1, nodes // 2]


def figures(
    reports: Mapping[int, Sequence[LinkTimes]], hosts: Mapping[int, str], per_node: int, size_bytes: int, file: str
) -> list[LinkFigure]:
    """Every link that was to be measured. `reports` and `hosts`: by rank.

    Raises EvidenceError where one is missing, doubled or not asked for, or a time cannot be.
    """
    nodes = len(reports) // per_node
    found = []
    for rank in sorted(reports):
        wanted = [(rank - shift * per_node) % len(reports) for shift in shifts(nodes)] if rank % per_node == 0 else []
        if [times.source for times in reports[rank]] != wanted:
            raise EvidenceError(
                f"tells of links from ranks {[times.source for times in reports[rank]]}, asked for were {wanted}",
                file=file.format(rank=rank),
            )
        for times in reports[rank]:
            if times.size_bytes != size_bytes or len(times.times_us) != ITERATIONS or not min(times.times_us) >= 1:
                raise EvidenceError(
                    f"the link from rank {times.source} was not measured as asked", file=file.format(rank=rank)
                )
            gb_s = algbw_gb_s(size_bytes, min(times.times_us))
            found.append(LinkFigure(hosts[times.source], hosts[rank], gb_s))
    return found


def slow(links: Sequence[LinkFigure], share: float) -> tuple[list[LinkFigure], str]:
    """Links below `share` of what the quickest quarter carries, and the node that they have in common, where all of its links are slow.

    Nothing where fewer than `FEWEST_NODES` were measured.
    """
    if len({link.target for link in links}) < FEWEST_NODES:
        return [], ""
    # Not the median: of three nodes, one bad one has two of the three links.
    floor = share * sorted(link.gb_s for link in links)[math.ceil(0.75 * len(links)) - 1]
    bad = [link for link in links if link.gb_s < floor]
    for node in sorted({link.target for link in bad} | {link.source for link in bad}):
        mine = [link for link in links if node in (link.source, link.target)]
        if all(link in bad for link in mine) and all(node in (link.source, link.target) for link in bad):
            return bad, node
    return bad, ""
