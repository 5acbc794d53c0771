"""Rows of the drift matrix: a fact, its values, and the nodes that have each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from surefoot.hardware.fleet_values import Presence, Unknown, Value, shown
from surefoot.hostlist import folded, natural

MOST_NAMED = 4
"""Values that a sentence names; the nodes of all others are named together."""
MOST_CELLS = 40
"""Values that a table has of one row; the nodes of all others are named together."""


class Agreement(StrEnum):
    """What a row, or a fleet, shows. The first outweighs the next."""

    DIFFERS = "differs"
    """Two nodes have two values, or one lacks what another has."""
    UNKNOWN = "unknown"
    """No difference is known, but some node does not tell."""
    ALONE = "alone"
    """One node has no other to be compared with: it proves no agreement."""
    AGREES = "agrees"
    """Two nodes or more, all with one value."""
    NOTHING = "nothing"
    """There was nothing to compare."""


class Share(NamedTuple):
    """The nodes that have one value."""

    value: Value
    hosts: tuple[str, ...]
    """In natural order."""


@dataclass(frozen=True)
class Row:
    """One fact, or several that are split between the same nodes alike. Each node is in one share."""

    name: str
    """``driver``, ``gpu[0-7].vbios``, or ``gpu7.*`` for a thing that some nodes lack with all its facts."""
    keys: tuple[str, ...]
    """The facts that it stands for."""
    shares: tuple[Share, ...]
    """Known values first, those of most nodes first."""
    groups: tuple[str, ...] = ()
    """Groups of nodes that are compared here; empty where there are none, or it is all of them."""

    @cached_property
    def count(self) -> int:
        """Nodes compared."""
        return sum(len(share.hosts) for share in self.shares)

    @cached_property
    def known(self) -> tuple[Share, ...]:
        """Shares without the nodes that do not tell."""
        return tuple(share for share in self.shares if not isinstance(share.value, Unknown))

    @cached_property
    def agreement(self) -> Agreement:
        """Never AGREES by a node alone, or with one that does not tell."""
        if len(self.known) > 1:
            return Agreement.DIFFERS
        if len(self.known) < len(self.shares):
            return Agreement.UNKNOWN
        return Agreement.AGREES if self.count > 1 else Agreement.ALONE

    @cached_property
    def majority(self) -> Share | None:
        """The value of more than half of all nodes: whatever those that do not tell have, it stays the majority.
        None where no value has that: a tie, say.
        """
        return next((share for share in self.known if 2 * len(share.hosts) > self.count), None)

    @cached_property
    def minority(self) -> tuple[Share, ...]:
        """Known values that are not the majority's; none where there is no majority."""
        return tuple(share for share in self.known if self.majority and share is not self.majority)

    @property
    def title(self) -> str:
        """The name, with how many facts it stands for and the groups where that is not plain."""
        several = f" ({len(self.keys)} facts)" if self.name.endswith(".*") else ""
        groups = " and ".join(group or "no group" for group in self.groups)
        return f"{f'{groups}: ' if groups else ''}{self.name}{several}"

    @property
    def sentence(self) -> str:
        """``driver 580.159.03 on 62 nodes, 580.142 on gpu[17,41]``. Nodes outside the majority are all named."""
        if self.agreement is Agreement.ALONE:
            (share,) = self.shares
            return f"{self.title} {shown([share.value])[0]} on {share.hosts[0]} alone: one node proves no agreement"
        named, rest = self.shares[:MOST_NAMED], self.shares[MOST_NAMED:]
        parts = [f"{value} on {self._where(share)}" for value, share in zip(self._words(named), named, strict=True)]
        if rest:
            parts.append(f"{len(rest)} more values on {folded(_hosts(rest))}")
        tie = ": no majority" if self.agreement is Agreement.DIFFERS and self.majority is None else ""
        return f"{self.title} {', '.join(parts)}{tie}"

    def _where(self, share: Share) -> str:
        if len(share.hosts) == self.count:
            return {1: share.hosts[0], 2: "both nodes"}.get(self.count, f"all {self.count} nodes")
        return f"{len(share.hosts)} nodes" if share is self.majority else folded(share.hosts)

    def _words(self, shares: Sequence[Share]) -> list[str]:
        return shown([share.value for share in shares])

    def cells(self) -> dict[str, Any]:
        """JSON data for a table; `hosts` of a share is None where they are the rest: the majority, or all."""
        named, rest = self.shares[:MOST_CELLS], self.shares[MOST_CELLS:]
        shares = [
            {"value": value, "count": len(share.hosts), "hosts": self._cell(share)}
            for value, share in zip(self._words(named), named, strict=True)
        ]
        if rest:
            hosts = _hosts(rest)
            shares.append({"value": f"{len(rest)} more values", "count": len(hosts), "hosts": folded(hosts)})
        return {
            "fact": self.title,
            "facts": len(self.keys),
            "agreement": self.agreement.value,
            "majority": self.majority is not None,
            "shares": shares,
        }

    def _cell(self, share: Share) -> str | None:
        rest = share is self.majority or (len(share.hosts) == self.count and self.count > 1)
        return None if rest else folded(share.hosts)

    @cached_property
    def rank(self) -> tuple[Any, ...]:
        """Sorts what to look at first: rows that name odd nodes, the fewest odd ones first; a value before a lack;
        then differences without a majority, facts that are not known, and what agrees.
        """
        lacks = any(isinstance(share.value, Presence) for share in self.shares)
        odd = self.count - len(self.majority.hosts) if self.majority else self.count
        order = list(Agreement).index(self.agreement)
        return (
            order,
            self.majority is None,
            odd,
            lacks,
            len(self.shares),
            -len(self.keys),
            natural(self.name),
            self.groups,
        )


def shares_of(split: Mapping[Value, Iterable[str]]) -> tuple[Share, ...]:
    """Shares in the order that rows have them in; those of equally many nodes as `split` has them."""
    shares = (Share(value, tuple(hosts)) for value, hosts in split.items())
    return tuple(sorted(shares, key=lambda share: (isinstance(share.value, Unknown), -len(share.hosts))))


def _hosts(shares: Iterable[Share]) -> list[str]:
    return [host for share in shares for host in share.hosts]
