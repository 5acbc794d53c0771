"""The drift matrix as rungs record it (`surefoot.hardware.fleet.Fleet.cells`), read for drawing, and in the terminal.

Nothing here decides or counts anything; what is of another shape is not drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from surefoot.errors import RequestError
from surefoot.hostlist import expand
from surefoot.reports.live import never_fail_to_print
from surefoot.reports.text import shorten, terminal_safe

WIDTH = 100
SIDE_BY_SIDE = 2
"""Up to so many nodes each has a column of its own."""
MOST_ROWS = 24
"""Rows in the terminal; the report has all."""
MOST_HOSTS = 400
"""Characters of a list of nodes in the terminal; the report has all."""
_HOSTS_WIDTH = 32
THE_REST = "all others"


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class ShareView(_Shape):
    """A value, and the nodes that have it."""

    value: str
    count: int
    hosts: str | None
    """In hostlist notation. None: all that no other share of the row names."""


class RowView(_Shape):
    """One fact, or several alike."""

    fact: str
    facts: int
    agreement: str
    majority: bool
    shares: list[ShareView]

    @property
    def tie(self) -> bool:
        """Differs, and no value is that of most nodes."""
        return self.agreement == "differs" and not self.majority

    def where(self, share: ShareView) -> str:
        """The nodes of one of its shares, in words."""
        if share.hosts is not None:
            return share.hosts
        return "all nodes" if len(self.shares) == 1 else THE_REST

    def on(self, host: str) -> list[ShareView]:
        """What this node has, as a share that says so; empty where none does. For a few nodes."""
        return [share for share in self.shares if share.hosts is None or host in _expanded(share.hosts)]


class SilentView(_Shape):
    """A node that told nothing."""

    host: str
    reason: str


class OddView(_Shape):
    """A node, and in how many facts it differs from the majority."""

    host: str
    facts: int


class FleetView(_Shape):
    """The matrix."""

    hosts: str
    count: int
    silent: list[SilentView]
    odd: list[OddView]
    rows: list[RowView]

    @property
    def unlike(self) -> list[RowView]:
        """Rows in which nodes differ, or that are not known to agree."""
        return [row for row in self.rows if row.agreement != "agrees"]

    @property
    def alike(self) -> list[RowView]:
        """Rows in which all nodes agree."""
        return [row for row in self.rows if row.agreement == "agrees"]

    @property
    def names(self) -> list[str]:
        """The nodes, where they are few enough for a column each; else none."""
        return _expanded(self.hosts) if self.count <= SIDE_BY_SIDE else []


def _expanded(hosts: str) -> list[str]:
    try:
        return expand(hosts)
    except RequestError:
        return []


def view(details: Mapping[str, Any]) -> FleetView | None:
    """The matrix in `Judgement.details`; None where there is none that can be drawn."""
    try:
        return FleetView.model_validate(details.get("fleet"))
    except ValidationError:
        return None


def show_fleet(console: Console, fleet: FleetView) -> None:
    """Print what differs, or is not known, and how much agrees; in 100 columns."""
    never_fail_to_print(console)
    console.print(drawn(fleet), width=min(WIDTH, console.width))


def drawn(fleet: FleetView) -> RenderableType:
    """The matrix as tables and lines."""
    parts: list[RenderableType] = []
    if fleet.unlike:
        rows = fleet.unlike[:MOST_ROWS]
        parts.append(_side_by_side(fleet.names, rows) if fleet.names else _by_value(rows))
    if len(fleet.unlike) > MOST_ROWS:
        parts.append(Text(f"… and {len(fleet.unlike) - MOST_ROWS} more rows: see the report"))
    if fleet.odd and not fleet.names:
        most = ", ".join(f"{one.host} in {_facts(one.facts)}" for one in fleet.odd[:6])
        more = f" and {len(fleet.odd) - 6} more nodes" if len(fleet.odd) > 6 else ""
        parts.append(Text(terminal_safe(f"Differ from the majority: {most}{more}")))
    parts += [
        Text(terminal_safe(f"{one.host} told nothing: {shorten(one.reason, 200)}")) for one in fleet.silent[:MOST_ROWS]
    ]
    if len(fleet.silent) > MOST_ROWS:
        parts.append(Text(f"… and {len(fleet.silent) - MOST_ROWS} more nodes that told nothing: see the report"))
    nodes = "1 node" if fleet.count == 1 else f"{fleet.count:,} nodes"
    parts.append(Text(f"{nodes}: {_facts(sum(row.facts for row in fleet.alike))} alike on all that are compared."))
    return Group(*parts)


def _facts(count: int) -> str:
    return "1 fact" if count == 1 else f"{count:,} facts"


def _by_value(rows: list[RowView]) -> Table:
    table = _table()
    table.add_column("fact", overflow="fold", max_width=26)
    table.add_column("value", overflow="fold", max_width=28)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("which", overflow="fold", max_width=_HOSTS_WIDTH)
    for row in rows:
        for number, share in enumerate(row.shares):
            name = _tie(row, number) if number else Text(terminal_safe(row.fact))
            which = _wrapped(terminal_safe(row.where(share)))
            table.add_row(name, Text(terminal_safe(share.value)), Text(f"{share.count:,}"), Text(which))
    return table


def _tie(row: RowView, number: int) -> Text:
    return Text("  no majority", style="dim") if row.tie and number == 1 else Text()


def _side_by_side(names: list[str], rows: list[RowView]) -> Table:
    table = _table()
    table.add_column("fact", overflow="fold", max_width=30)
    for name in names:
        table.add_column(Text(terminal_safe(name)), overflow="fold")
    for row in rows:
        values = (Text(terminal_safe(", ".join(share.value for share in row.on(name)) or "-")) for name in names)
        table.add_row(Text(terminal_safe(row.fact)), *values)
    return table


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)


def _wrapped(hosts: str) -> str:
    """In lines that end at a comma, so that no name is torn."""
    cut = hosts if len(hosts) <= MOST_HOSTS else f"{hosts[:MOST_HOSTS].rpartition(',')[0]}, … (see the report)"
    lines = textwrap.wrap(cut.replace(",", ", "), _HOSTS_WIDTH, break_on_hyphens=False)
    return "\n".join(line.replace(", ", ",") for line in lines)
