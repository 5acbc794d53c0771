"""What to try next, and why: a few plain rules over the loss curve and the category counts. Pure.

These are proposals to a person, each with the figures that led to it. No rule guesses: where no
figure calls for a change, that is what it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any

from surefoot.model.recipe import Recipe
from surefoot.model.verdict import CategoryCount

RESOLUTION = 0.02
"""Half-width of the interval of accuracy that makes two good adapters distinguishable."""
CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


NOTHING = "(none)"
"""Parameter of the one entry that says that nothing is proposed."""


@dataclass(frozen=True)
class Proposal:
    """One parameter to change."""

    parameter: str
    now: str
    proposed: str
    why: str


def proposals(recipe: Recipe, losses: Sequence[float], categories: Sequence[CategoryCount]) -> list[dict[str, Any]]:
    """Every rule that has something to say, in order of weight. Never empty."""
    found = [*_lost(recipe, categories), *_inert(recipe, losses, categories), *_loss(recipe, losses)]
    found += _resolution(categories)
    if not found:
        found = [Proposal(NOTHING, "-", "-", "no figure of this run calls for another value")]
    return [asdict(proposal) for proposal in found]


def _lost(recipe: Recipe, categories: Sequence[CategoryCount]) -> list[Proposal]:
    """A category that got worse: forgetting. More of it in the data, or smaller steps away from the base."""
    worse = [c for c in categories if c.adapter_correct < c.base_correct]
    found = [
        Proposal(
            f"training rows of {c.category}",
            "as in the recipe's data",
            "more of them",
            f"{c.category} fell from {c.base_correct} to {c.adapter_correct} of {c.items}: the data does not hold it in place",
        )
        for c in worse
    ]
    if worse:
        rate = recipe.learning_rate
        names = ", ".join(c.category for c in worse)
        why = f"smaller steps move the model less far from the base, which was better at {names}"
        found.append(Proposal("learning_rate", f"{rate:g}", f"{rate / 3:.2g}", why))
    return found


def _inert(recipe: Recipe, losses: Sequence[float], categories: Sequence[CategoryCount]) -> list[Proposal]:
    """Nothing gained and the loss hardly moved: the adapter was hardly trained."""
    ends = _ends(losses, 0.1)
    gain = sum(c.adapter_correct - c.base_correct for c in categories)
    if ends is None or gain > 0:
        return []
    first, last = fmean(losses[: len(ends[1])]), fmean(ends[1])
    if last < 0.9 * first:
        return []
    rate = recipe.learning_rate
    why = f"no net gain, and the loss went from {first:.3g} to {last:.3g} only: the adapter is nearly inert"
    return [Proposal("learning_rate", f"{rate:g}", f"{rate * 10:.2g}", why)]


def _ends(losses: Sequence[float], share: float) -> tuple[Sequence[float], Sequence[float]] | None:
    """The last part of the curve and the part of equal length before it; None for fewer than 5 steps each."""
    length = max(5, int(len(losses) * share))
    return (losses[-2 * length : -length], losses[-length:]) if len(losses) >= 2 * length else None


def _loss(recipe: Recipe, losses: Sequence[float]) -> list[Proposal]:
    """Was the loss still falling, or rising, when training stopped? Only where it exceeds the noise."""
    ends = _ends(losses, 0.2)
    if ends is None:
        return []
    before, after = fmean(ends[0]), fmean(ends[1])
    # Standard error of the difference of two means of batch losses (Welch).
    noise = math.sqrt(stdev(ends[0]) ** 2 / len(ends[0]) + stdev(ends[1]) ** 2 / len(ends[1]))
    if abs(after - before) <= 2 * noise or abs(after - before) < 0.05 * abs(before):
        return []
    figures = f"mean loss {before:.3g} → {after:.3g} over the last two fifths (noise ± {2 * noise:.2g})"
    if after < before:
        return [
            Proposal("epochs", str(recipe.epochs), str(recipe.epochs * 2), f"the loss was still falling: {figures}")
        ]
    rate = recipe.learning_rate
    return [Proposal("learning_rate", f"{rate:g}", f"{rate / 3:.2g}", f"the loss was rising at the end: {figures}")]


def _resolution(categories: Sequence[CategoryCount]) -> list[Proposal]:
    """Near the ceiling a better adapter cannot be told from this one with so few items."""
    items, correct = sum(c.items for c in categories), sum(c.adapter_correct for c in categories)
    if not items:
        return []
    half, needed = half_width(correct, items), items_needed(correct, items)
    if needed <= items or 1 - correct / items > 2 * half:
        return []
    why = (
        f"{correct} of {items} is known to ± {half:.2f} only ({CONFIDENCE:.0%}), and {items - correct} items are left "
        f"to win: {needed} items would resolve ± {RESOLUTION}"
    )
    return [Proposal("evaluation items", str(items), str(needed), why)]


def half_width(correct: int, items: int) -> float:
    """Half-width of the Agresti–Coull interval: z · √(p(1-p)/ñ), p = (x+z²/2)/ñ, ñ = n+z².

    Agresti and Coull (1998). Unlike Wald's, it is not zero when everything is right.
    """
    n = items + _Z**2
    p = (correct + _Z**2 / 2) / n
    return _Z * math.sqrt(p * (1 - p) / n)


def items_needed(correct: int, items: int, resolution: float = RESOLUTION) -> int:
    """Items that give an interval of ± `resolution` at this accuracy: z² p(1-p) / resolution²."""
    p = (correct + _Z**2 / 2) / (items + _Z**2)
    return math.ceil(_Z**2 * p * (1 - p) / resolution**2)
