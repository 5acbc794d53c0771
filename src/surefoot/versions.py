"""Versions as numbers: enough to say which of two is older, without a package for it."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, ...]:
    """Leading dotted numbers: ``2.13.0+cpu`` → (2, 13, 0). Empty where it does not begin with one."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def at_least(found: str, oldest: str) -> bool:
    """True when `found` is `oldest` or newer. What has no number is never new enough."""
    have, want = numbers(found), numbers(oldest)
    width = max(len(have), len(want))
    return bool(have and want) and have + (0,) * (width - len(have)) >= want + (0,) * (width - len(want))


def same(found: str, wanted: str) -> bool:
    """True when `found` is `wanted` or a patch level of it: ``13.0.1`` is a ``13.0``, ``13.01`` is not."""
    return found == wanted or found.startswith(wanted + ".")
