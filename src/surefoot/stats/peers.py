"""Which node of a fleet lags behind the others: one rule for every figure that like nodes should share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

FEWEST = 3
"""Of two that differ nobody knows which one is wrong."""


@dataclass(frozen=True)
class Compared:
    """Nodes against their median."""

    median: float
    limit: float
    """What a node must reach (a rate) or stay below (a time). Same unit as the figures."""
    slow: tuple[str, ...]
    """Names of the nodes beyond it, the worst first."""


def compare(figures: Mapping[str, float], share: float, *, less_is_better: bool = False) -> Compared | None:
    """Nodes below `share` (0 to 1) of the median; where `less_is_better`, as of seconds, above median / share.

    The median, because a few bad nodes do not move it: they are named as long as they are fewer than half.
    None where fewer than `FEWEST` nodes are there: too few to compare is no verdict.

    Raises ValueError for a share that is no share, or a figure that was not measured.
    """
    if not 0 < share < 1:
        raise ValueError(f"share {share} is not between 0 and 1")
    if not all(0 < value < float("inf") for value in figures.values()):
        raise ValueError("a figure is not positive and finite")
    if len(figures) < FEWEST:
        return None
    median = statistics.median(figures.values())
    if less_is_better:
        limit = median / share
        slow = sorted((n for n, value in figures.items() if value > limit), key=lambda n: -figures[n])
    else:
        limit = median * share
        slow = sorted((n for n, value in figures.items() if value < limit), key=lambda n: figures[n])
    return Compared(median, limit, tuple(slow))
