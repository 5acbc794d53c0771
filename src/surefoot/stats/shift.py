"""Has a figure shifted against its history? Yes, no, or not to be said yet. Pure.

Figures are logarithms of time / expected time (0.1: 10 % slower), of which a small sample of healthy ones is
known. Small samples of benchmarks are not normal: NCCL's latency has two values on one and the same machine, 45 %
apart, and a process has the one or the other from begin to end (docs/log.md). So the limit is the worst healthy one
seen and an allowance for what a few repeats may not have shown, which ends once there are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Allowance:
    """What is known of a kind of figure before any history. All as logarithms of time."""

    effect: float
    """A shift that is smaller, beyond the worst healthy one, is none."""
    between: float = 0.0
    """How far apart healthy repeats may lie that run as separate processes."""
    gross: float = 1.0
    """A shift that no history is needed for."""


FEWEST = 3
"""Healthy repeats below which only a gross shift is told."""
ENOUGH = 9
"""Repeats after which one that has not been seen is not expected: of two equally frequent values all are the same
one in 2 of 2⁹ samples."""


class Verdict(StrEnum):
    """Of a figure against its history."""

    SAME = "same"
    SLOWER = "slower"
    FASTER = "faster"
    UNSURE = "unsure"


@dataclass(frozen=True)
class Shift:
    """What was found, and by what limits."""

    verdict: Verdict
    value: float
    unsure_from: float
    slower_from: float
    more: int
    """Healthy repeats that are still needed to say more; 0 where it is said."""


def shift(value: float, healthy: Sequence[float], allowance: Allowance) -> Shift:
    """Judge `value` (or the median of a candidate's repeats) against healthy ones. Raises ValueError without any, or for NaN."""
    if not healthy or not all(map(math.isfinite, (value, *healthy))):
        raise ValueError("figures must be finite, and at least one healthy one is needed")
    worst, best, count = max(healthy), min(healthy), len(healthy)
    unseen = max(0.0, allowance.between - (worst - best)) if count < ENOUGH else 0.0
    unsure_from = worst + allowance.effect
    slower_from = unsure_from + unseen
    if count < FEWEST:
        slower_from = max(slower_from, worst + allowance.gross)
        verdict = Verdict.SLOWER if value > slower_from else Verdict.UNSURE
        return Shift(verdict, value, unsure_from, slower_from, 0 if verdict is Verdict.SLOWER else FEWEST - count)
    if value > slower_from:
        verdict = Verdict.SLOWER
    elif value > unsure_from:
        verdict = Verdict.UNSURE
    else:
        verdict = Verdict.FASTER if value < best - allowance.effect - unseen else Verdict.SAME
    return Shift(verdict, value, unsure_from, slower_from, ENOUGH - count if verdict is Verdict.UNSURE else 0)
