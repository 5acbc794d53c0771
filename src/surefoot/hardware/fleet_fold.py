"""Facts that are split between the same nodes alike, as one row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from surefoot.hardware.fleet_rows import Row, Share, shares_of
from surefoot.hardware.fleet_values import Presence
from surefoot.hostlist import folded_names, natural, pattern, speakable

Splits = Mapping[str, tuple[Share, ...]]
"""Fact → the shares of all nodes that are compared in it."""


def fold(splits: Splits, groups: tuple[str, ...] = ()) -> list[Row]:
    """Rows in which each fact of `splits` stands once. Folded are

    - facts whose names differ in numbers alone and whose shares are equal: ``gpu[0-7].vbios``;
    - the facts of a thing that some nodes lack, or do not tell, with all of its facts: ``gpu7.*``.
    """
    rows = list(_whole_things(splits, groups))
    done = {key for row in rows for key in row.keys}
    alike: dict[tuple[Share, ...], list[str]] = {}
    for key, shares in splits.items():
        if key not in done:
            alike.setdefault(shares, []).append(key)
    for shares, keys in alike.items():
        rows += [Row(name, tuple(these), shares, groups) for name, these in _named(keys)]
    return rows


def _named(names: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """(one name for all, those) of names that differ in numbers alone."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(names, key=natural):
        alike.setdefault(pattern(name) if speakable(name) else (name,), []).append(name)
    for these in alike.values():
        yield (folded_names(these) if len(these) > 1 else these[0]), these


def _whole_things(splits: Splits, groups: tuple[str, ...]) -> Iterator[Row]:
    """Rows of things that a node has, or lacks, with all their facts."""
    facts_of: dict[
        str, list[str]
    ] = {}  # thing → its facts; of gpu7.nvlink3.state both gpu7 and gpu7.nvlink3 are things
    for key in splits:
        for thing in _things(key):
            facts_of.setdefault(thing, []).append(key)
    without = {key: share for key, shares in splits.items() if (share := _without(shares))}
    done: set[str] = set()
    found: dict[tuple[tuple[Share, ...], tuple[str, ...]], dict[str, list[str]]] = {}
    for thing in sorted(facts_of, key=len):
        alike: dict[Share, list[str]] = {}
        for key in facts_of[thing]:
            if key in without and key not in done:
                alike.setdefault(without[key], []).append(key)
        for share, keys in alike.items():
            if len(keys) > 1 and all(_lack_it(share, splits[key]) for key in facts_of[thing]):
                facts = tuple(sorted(key[len(thing) :] for key in keys))
                found.setdefault((_as_presence(splits[keys[0]]), facts), {})[thing] = keys
                done.update(keys)
    for (shares, _), things in found.items():
        for name, these in _named(things):
            yield Row(f"{name}.*", tuple(key for thing in these for key in things[thing]), shares, groups)


def _things(key: str) -> Iterator[str]:
    at = key.find(".")
    while at > 0:
        yield key[:at]
        at = key.find(".", at + 1)


def _without(shares: tuple[Share, ...]) -> Share | None:
    """The nodes that lack, or do not tell, what all others have one value of; None where that is not all of it."""
    if len(shares) != 2:
        return None
    values = [share for share in shares if isinstance(share.value, str)]
    others = [share for share in shares if not isinstance(share.value, str)]
    return others[0] if len(values) == 1 else None


def _lack_it(share: Share, shares: Iterable[Share]) -> bool:
    """Whether all nodes of `share` are without this fact as well, for the same reason."""
    return any(set(share.hosts) <= set(other.hosts) for other in shares if other.value == share.value)


def _as_presence(shares: Iterable[Share]) -> tuple[Share, ...]:
    missing = any(share.value is Presence.MISSING for share in shares)
    there = Presence.THERE if missing else Presence.KNOWN
    return shares_of({there if isinstance(share.value, str) else share.value: share.hosts for share in shares})
