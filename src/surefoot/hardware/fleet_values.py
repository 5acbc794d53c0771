"""Values of facts as the drift matrix compares and names them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that a node could not tell, and why. Neither a value nor the absence of one."""

    reason: str


class Presence(Enum):
    """Whether a thing is there at all. The first two stand in rows for several facts: each of these facts has one
    value on all these nodes, though not the same one for each fact.
    """

    THERE = "there"
    """Other nodes lack the thing."""
    KNOWN = "known and alike"
    """Other nodes do not tell."""
    MISSING = "not there"
    """The node told its facts, and this is not among them."""


Value = str | Unknown | Presence

_LONG = 60
_BEFORE = 12
"""Characters shown before the place where long values begin to differ."""


def shown(values: Sequence[Value]) -> list[str]:
    """Each value as a sentence names it, on one line. Unlike values never look alike, however long they are."""
    texts = [value for value in values if isinstance(value, str)]
    short = dict(zip(texts, _shortened(texts), strict=True))
    return [short[value] if isinstance(value, str) else _other(value) for value in values]


def _other(value: Unknown | Presence) -> str:
    return value.value if isinstance(value, Presence) else f"unknown ({value.reason})"


def _shortened(texts: Sequence[str]) -> list[str]:
    plain = [_plain(text) for text in texts]
    if max(map(len, plain), default=0) <= _LONG:
        return plain
    alike = len(_common_start(plain)) if len(plain) > 1 else 0
    start = max(0, alike - _BEFORE) if alike > 2 * _BEFORE else 0
    cut = [_cut(text, start) for text in plain]
    return cut if len(set(cut)) == len(set(plain)) else plain


def _common_start(texts: Sequence[str]) -> str:
    """What all of them begin with. What the first and the last in order share, all between them do."""
    first, last = min(texts), max(texts)
    return "".join(
        char for char, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    )


def _cut(text: str, start: int) -> str:
    end = start + _LONG
    return f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}"


def _plain(text: str) -> str:
    """Quoted where it would read as something else: empty, with blanks at its ends, or not printable."""
    words = {presence.value for presence in Presence}
    if text and text.isprintable() and text == text.strip() and text not in words and not text.startswith("unknown"):
        return text
    return repr(text)
