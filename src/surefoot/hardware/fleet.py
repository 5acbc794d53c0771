"""The drift matrix: each fact across the nodes of a fleet, and which nodes differ in it. Pure.

`compare` takes the facts of each node by name, and gives a row for each fact, or for several that are alike.
It gives no verdict: a row says what was seen on how many nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from surefoot.hardware.fleet_fold import fold
from surefoot.hardware.fleet_rows import Agreement, Row, Share, shares_of
from surefoot.hardware.fleet_values import Presence, Unknown, Value
from surefoot.hostlist import folded, natural

__all__ = ["Agreement", "Fleet", "Presence", "Row", "Share", "Unknown", "Value", "compare"]

Told = Mapping[str, "str | Unknown"]
"""A node's facts: name → value. What is Unknown under a name that ends with ``*`` covers every fact that
begins so and is not told: a node that can't list its GPUs (``gpu*``) does not lack those that others have.
"""


@dataclass(frozen=True)
class Fleet:
    """All rows, those to look at first in front."""

    hosts: tuple[str, ...]
    """Nodes that told their facts, in natural order."""
    silent: tuple[tuple[str, str], ...]
    """(node, reason) of those that told nothing: they are in no row, and the fleet is not known to agree."""
    rows: tuple[Row, ...]

    @cached_property
    def agreement(self) -> Agreement:
        """The heaviest of all rows; AGREES only where every row does and no node is silent."""
        seen = {row.agreement for row in self.rows} | ({Agreement.UNKNOWN} if self.silent else set())
        return next((one for one in Agreement if one in seen), Agreement.NOTHING)

    def that(self, agreement: Agreement) -> tuple[Row, ...]:
        """Rows that show this."""
        return tuple(row for row in self.rows if row.agreement is agreement)

    @cached_property
    def odd(self) -> tuple[tuple[str, int], ...]:
        """(node, number of facts in which it differs from a majority), most first."""
        facts: Counter[str] = Counter()
        for row in self.rows:
            for share in row.minority:
                facts.update(dict.fromkeys(share.hosts, len(row.keys)))
        return tuple(sorted(facts.items(), key=lambda item: (-item[1], natural(item[0]))))

    def cells(self) -> dict[str, Any]:
        """JSON data that a report draws the matrix from (`surefoot.reports.fleet`)."""
        return {
            "hosts": folded(self.hosts),
            "count": len(self.hosts),
            "silent": [{"host": host, "reason": reason} for host, reason in self.silent],
            "odd": [{"host": host, "facts": facts} for host, facts in self.odd],
            "rows": [row.cells() for row in self.rows],
        }


def compare(
    told: Mapping[str, Told | Unknown],
    *,
    group_of: Mapping[str, str] | None = None,
    everywhere: Callable[[str], bool] = frozenset().__contains__,
) -> Fleet:
    """Compare the facts of each node with those of the others.

    `group_of`: node → its group; nodes of one group are compared with each other alone, but for facts that
    `everywhere` is true of: those are compared over all groups in which a node has them. A node without a
    group is compared with the others without one. A node that is Unknown, or has no facts, is silent.
    """
    hosts = sorted((host for host, facts in told.items() if facts and not isinstance(facts, Unknown)), key=natural)
    silent = sorted(set(told) - set(hosts), key=natural)
    groups = {host: group_of.get(host, "") if group_of else "" for host in told}
    scopes = _scopes(_Table(told, hosts, groups), everywhere)
    rows = [row for part, splits in scopes.items() for row in fold(splits, part)]
    return Fleet(
        hosts=tuple(hosts),
        silent=tuple((host, _reason(told[host])) for host in silent),
        rows=tuple(sorted(rows, key=lambda row: row.rank)),
    )


def _reason(facts: Told | Unknown) -> str:
    return facts.reason if isinstance(facts, Unknown) else "it told no facts"


_Columns = dict[str, dict[str, dict[Value, list[str]]]]
"""Fact → group → value → nodes."""


class _Table:
    """What was told, fact by fact."""

    def __init__(self, told: Mapping[str, Any], hosts: list[str], groups: Mapping[str, str]) -> None:
        self.place = {host: number for number, host in enumerate(hosts)}
        self.members: dict[str, list[str]] = {}
        self.columns: _Columns = {}
        self.covers: dict[str, list[tuple[str, Unknown]]] = {}  # node → (what facts begin with, why they are unknown)
        for host in hosts:
            group = groups[host]
            self.members.setdefault(group, []).append(host)
            for key, value in told[host].items():
                if key.endswith("*") and isinstance(value, Unknown):
                    self.covers.setdefault(host, []).append((key[:-1], value))
                else:
                    self.columns.setdefault(key, {}).setdefault(group, {}).setdefault(value, []).append(host)
        self._keep_what_covers_nothing(groups)

    def _keep_what_covers_nothing(self, groups: Mapping[str, str]) -> None:
        """Something is unknown of which no other node tells a fact: that is a row of its own."""
        for host, covers in self.covers.items():
            for beginning, why in covers:
                told = (key for key, column in self.columns.items() if groups[host] in column)
                if not any(key.startswith(beginning) and not key.endswith("*") for key in told):
                    column = self.columns.setdefault(f"{beginning}*", {})
                    column.setdefault(groups[host], {}).setdefault(why, []).append(host)

    def split(self, key: str, part: Sequence[str]) -> dict[Value, list[str]]:
        """Value → nodes of these groups; each of their nodes stands once, those of a value in order."""
        merged: dict[Value, list[str]] = {}
        for group in part:
            for value, hosts in self.columns[key][group].items():
                merged[value] = [*merged.get(value, ()), *hosts]
        members = [host for group in part for host in self.members[group]]
        whole = sum(map(len, merged.values())) == len(members)
        if not whole:
            told = {host for hosts in merged.values() for host in hosts}
            for host in members:
                if host not in told:
                    merged.setdefault(self._instead(key, host), []).append(host)
        if whole and len(part) == 1:
            return merged  # as it was told: in order
        ordered = {value: sorted(hosts, key=self.place.__getitem__) for value, hosts in merged.items()}
        return dict(sorted(ordered.items(), key=lambda item: self.place[item[1][0]]))

    def _instead(self, key: str, host: str) -> Value:
        covers = self.covers.get(host, ())
        return next((why for beginning, why in covers if key.startswith(beginning)), Presence.MISSING)


def _scopes(table: _Table, everywhere: Callable[[str], bool]) -> dict[tuple[str, ...], dict[str, tuple[Share, ...]]]:
    """Groups that are compared with each other → fact → its shares. All groups are named ()."""
    scopes: dict[tuple[str, ...], dict[str, tuple[Share, ...]]] = {}
    for key, by_group in table.columns.items():
        for part in [tuple(sorted(by_group))] if everywhere(key) else [(group,) for group in by_group]:
            scope = scopes.setdefault(part if len(part) < len(table.members) else (), {})
            scope[key] = shares_of(table.split(key, part))
    return scopes
