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


_PEP440 = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_n>\d+)?)?"
    r"(?P<post>-(?P<post_n1>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_n2>\d+)?)?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d+)?)?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE | re.ASCII,
)
_LONGEST = 200
"""Of a version; what is longer is none."""
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def _canonical(version: str) -> tuple[object, str] | None:
    """(public version as it is compared, local part) by PEP 440; None for what is no such version."""
    match = _PEP440.fullmatch(version) if len(version) <= _LONGEST else None
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    pre = match["pre"] and (_PRE.get(match["pre"].lower(), match["pre"].lower()), int(match["pre_n"] or 0))
    post = match["post"] and int(match["post_n1"] or match["post_n2"] or 0)
    dev = match["dev"] and int(match["dev_n"] or 0)
    local = [part.lstrip("0") or "0" if part.isdigit() else part for part in re.split(r"[-_.]", match["local"] or "")]
    return (int(match["epoch"] or 0), release, pre, post, dev), ".".join(local).lower()


def pinned(version: str) -> bool:
    """True for one version as Python distributions have them (PEP 440): no range, no wildcard."""
    return _canonical(version) is not None


def meets_pin(found: str, wanted: str) -> bool:
    """True when a distribution of version `found` is what ``==wanted`` asks for, as pip understands it.

    ``2.10.0`` is a ``2.10``, and ``2.10.0+cpu`` is a ``2.10.0``; ``2.10.0`` is no ``2.10.0+cpu``.
    """
    have, want = _canonical(found), _canonical(wanted)
    return have is not None and want is not None and have[0] == want[0] and want[1] in ("", have[1])
