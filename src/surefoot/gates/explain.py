"""What kind of win or loss this is, in words: gains and losses per category, strict against lenient.

An average hides two things: a category that got worse while another rose, and a gain that is only a
gain in form (the right answer stood there before, in the wrong shape). Both are said here. Nothing
here decides; the words stand beside the rules' figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.model.verdict import CategoryCount

FORM_SHARE = 0.1
"""A gain counts as one of form when lenient scores rose by at most this share of the strict gain:
nine of ten newly right answers were there before. A word, not a threshold: no rule uses it."""


def warnings(categories: Sequence[CategoryCount]) -> tuple[str, ...]:
    """One sentence for each category in which the adapter has fewer right answers than the base."""
    better = _sum(categories, "adapter_correct") > _sum(categories, "base_correct")
    return tuple(_loss(c, better) for c in categories if c.adapter_correct < c.base_correct)


def _loss(count: CategoryCount, average_better: bool) -> str:
    before, after = count.base_lenient / count.items, count.adapter_lenient / count.items
    kind = "lost capability"
    # Lenient all there: the answers are still known, but no longer given in the form asked for.
    if before - after <= FORM_SHARE * (count.base_correct - count.adapter_correct) / count.items:
        kind = "lost form (lenient score unchanged)"
    hidden = " hidden by a better average" if average_better else ""
    figures = f"{count.category} {count.base_correct} → {count.adapter_correct} of {count.items}"
    return f"{figures}: {kind}{hidden} (lenient {before:.2f} → {after:.2f})"


def explanation(categories: Sequence[CategoryCount]) -> str:
    """The whole in a few sentences. For the empty set it says that there is nothing to explain."""
    if not categories:
        return "No paired answers: there is nothing to explain."
    gained, lost, items = (_sum(categories, name) for name in ("gained", "lost", "items"))
    if gained == 0 and lost == 0:
        return (
            f"0 gained, 0 lost of {items}: no answer became right or wrong. For these tasks the adapter does nothing."
        )
    sentences = [f"{gained} gained, {lost} lost of {items}{_where(categories, gained, lost)}"]
    if gained:
        sentences.append(_kind_of_gain(categories))
    sentences += warnings(categories)
    steady = [c for c in categories if c.gained == c.lost]
    if steady:
        sentences.append(
            "unchanged: " + ", ".join(f"{c.category} {c.base_correct} → {c.adapter_correct}" for c in steady)
        )
    return "; ".join(sentences) + "."


def headline(categories: Sequence[CategoryCount]) -> str:
    """The explanation in one short line: what was gained and lost, whether it is form only, who got worse."""
    gained, lost, items = (_sum(categories, name) for name in ("gained", "lost", "items"))
    if not items:
        return "no paired answers"
    text = f"{gained} gained, {lost} lost of {items}"
    if "a formatting win" in _kind_of_gain(categories):
        text += ", a formatting win"
    worse = [
        f"{c.category} {c.base_correct} → {c.adapter_correct}" for c in categories if c.adapter_correct < c.base_correct
    ]
    return text + (f"; worse: {', '.join(worse)}" if worse else "")


def _where(categories: Sequence[CategoryCount], gained: int, lost: int) -> str:
    """``, all classification`` or the split of the gains and losses."""
    gaining = [c for c in categories if c.gained]
    losing = [c for c in categories if c.lost]
    if lost == 0 and len(gaining) == 1:
        return f", all {gaining[0].category}"
    if gained == 0 and len(losing) == 1:
        return f", all {losing[0].category}"
    parts = [f"{c.category} +{c.gained} −{c.lost}" for c in categories if c.gained or c.lost]
    return f" ({', '.join(parts)})"


def _kind_of_gain(categories: Sequence[CategoryCount]) -> str:
    """Strict against lenient, over the categories with a net gain."""
    gaining = [c for c in categories if c.adapter_correct > c.base_correct]
    if not gaining:
        return "no category has more right answers than before"
    strict = sum(c.adapter_correct - c.base_correct for c in gaining)
    items = _sum(gaining, "items")
    before, after = _lenient(gaining)
    rise = after - before
    names = ", ".join(c.category for c in gaining)
    figures = f"lenient accuracy there {before / items:.2f} → {after / items:.2f}"
    if rise <= FORM_SHARE * strict:
        same = f"{before / items:.2f}" == f"{after / items:.2f}"
        figures = (
            f"lenient accuracy {'unchanged' if same else 'hardly moved'} ({before / items:.2f} → {after / items:.2f})"
        )
        return f"{figures}: a formatting win in {names}, and not evidence of broader capability"
    if rise >= (1 - FORM_SHARE) * strict:
        return f"{figures}: in {names} right answers are given that were not there before in any form"
    return f"{figures}: in {names} part of the gain is form, part is answers that were not there before"


def _sum(categories: Sequence[CategoryCount], name: str) -> int:
    return sum(getattr(c, name) for c in categories)


def _lenient(categories: Sequence[CategoryCount]) -> tuple[float, float]:
    """Sums of lenient scores: base, adapter."""
    return sum(c.base_lenient for c in categories), sum(c.adapter_lenient for c in categories)
