"""Nodes that a run shows to be at fault, and the commands by which Slurm starts nothing there any more. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from surefoot.errors import SchedulerError
from surefoot.hostlist import folded, natural, speakable
from surefoot.model.check import Check
from surefoot.model.run import RungResult
from surefoot.model.status import Status
from surefoot.scheduler.slurm import commands
from surefoot.scheduler.slurm.parse import NodeRow

SHARE = 0.1
"""Of a partition's nodes, at most so many may be out: the prolog's own default (`surefoot.node.prolog`)."""
OURS = "surefoot: "
"""How each of our reasons begins. Any other is somebody's, and is not overwritten."""
LONGEST = 250
"""Characters of a reason, all ASCII: accounting keeps 255 bytes (TINYTEXT in slurmdbd's event table)."""
_LEAST_WORDS = 20
_SHORT = 40
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:;/_+@%*()\[\]<>-]+")
"""Quotes are stripped by scontrol at the ends, ``=`` and ``|`` separate for programs that read its output."""


@dataclass(frozen=True)
class Fault:
    """A node that checks which FAILED show to be at fault."""

    node: str
    checks: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Proposal:
    """Nodes to be drained for one reason."""

    nodes: tuple[str, ...]
    reason: str
    checks: tuple[str, ...]

    @property
    def argv(self) -> list[str]:
        """For `scontrol`; no shell sees it."""
        return commands.drain(folded(self.nodes), self.reason)

    @property
    def shell(self) -> str:
        """The command, to be pasted into a shell."""
        return shlex.join(self.argv)


@dataclass(frozen=True)
class Proposals:
    """What is to be drained, and what is not."""

    partition: str
    count: int
    """Nodes of the partition."""
    most: int
    """So many of them may be out."""
    out: tuple[str, ...]
    """Those where Slurm starts nothing already, whatever the reason."""
    wanted: tuple[Proposal, ...]
    """What should be drained; nothing of it is where `withheld`."""
    left_alone: Mapping[str, str]
    """Nodes at fault that are not drained → why."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of all that is wanted."""
        return tuple(node for proposal in self.wanted for node in proposal.nodes)

    @property
    def would_be_out(self) -> int:
        return len({*self.out, *self.nodes})

    @property
    def withheld(self) -> bool:
        """More would be out than may be, so nothing at all is drained."""
        return bool(self.wanted) and self.would_be_out > self.most

    @property
    def commands(self) -> tuple[Proposal, ...]:
        """What may be drained now."""
        return () if self.withheld else self.wanted

    @property
    def share_needed(self) -> float:
        """The share, in hundredths, that would allow what is withheld."""
        return ceil(100 * self.would_be_out / self.count) / 100


def faults(results: Iterable[RungResult], run_id: str) -> list[Fault]:
    """Each node that a FAILED check of a FAILED rung names, once. Nothing else blames a node."""
    blaming: dict[str, list[Check]] = {}
    for result in results:
        for check in result.judgement.checks:
            if result.status is Status.FAILED and check.status is Status.FAILED:
                for node in dict.fromkeys(check.nodes):
                    blaming.setdefault(node, []).append(check)
    return [Fault(node, tuple(c.id for c in found), reason_of(found, run_id)) for node, found in blaming.items()]


def reason_of(checks: Sequence[Check], run_id: str) -> str:
    """``surefoot: CHECK: WORDS RUN/FILE`` of the first check, with how many others there are; printable ASCII.

    FILE is the check's evidence, so that the whole leads there below the root's ``runs``.
    """
    first = checks[0]
    head = f"{OURS}{_plain(first.id)[:80]}: "
    more = f" (and {len(checks) - 1} more)" if len(checks) > 1 else ""
    where = _plain("/".join([run_id, *(each.file for each in first.evidence[:1])]))
    room = LONGEST - len(head) - len(more) - 1 - len(where)
    if room < _LEAST_WORDS:
        where = _plain(run_id)
        room = LONGEST - len(head) - len(more) - 1 - len(where)
    words = _words(first)
    shown = words if len(words) <= room else f"{words[: room - 3]}..."
    return " ".join(f"{head}{shown}{more} {where}".split())


def _words(check: Check) -> str:
    """What was found, and what should have been where that is short."""
    if check.actual is None:
        return _plain(check.claim)
    wanted = "" if check.expected in (None, "") else _plain(f"{check.expected} {check.unit}")
    return f"{_plain(str(check.actual))}{f', expected {wanted}' if 0 < len(wanted) <= _SHORT else ''}"


def _plain(text: str) -> str:
    return " ".join(_UNSAFE.sub(" ", text.replace("→", "->")).split())


def proposals(found: Sequence[Fault], rows: Sequence[NodeRow], partition: str, share: float) -> Proposals:
    """What to drain of `found`, by what Slurm tells of its nodes now.

    `partition`: as in the cluster file, also several with commas between; empty: Slurm's default. `share` (0 to 1): of its
    nodes, ``floor(share × nodes)`` may be out, but always one; those that are out already count.
    Raises SchedulerError where sinfo shows no such partition.
    """
    asked = set(filter(None, partition.split(",")))
    inside = {row.name: row for row in rows if (row.partition in asked if asked else row.default)}
    if not inside:
        known = ", ".join(sorted({row.partition for row in rows})) or "none"
        raise SchedulerError(
            f"sinfo shows no node in {f'partition {partition!r}' if partition else 'a default partition'}; it shows: {known}",
            next_action="correct `partition` in the cluster file",
        )
    known_names = {row.name for row in rows}
    left_alone = {
        fault.node: why for fault in found if (why := _why_not(fault.node, inside.get(fault.node), known_names))
    }
    wanted = [fault for fault in found if fault.node not in left_alone]
    return Proposals(
        partition=partition or next(iter(inside.values())).partition,
        count=len(inside),
        most=max(1, floor(share * len(inside) + 1e-9)),
        out=tuple(name for name, row in inside.items() if not row.usable),
        wanted=by_reason(wanted),
        left_alone=left_alone,
    )


def _why_not(node: str, row: NodeRow | None, known: Container[str]) -> str:
    """Why this node is left as it is; empty: it may be drained. A name gets no further that sinfo did not print itself."""
    if row is None:
        return "it is in another partition" if node in known else "sinfo shows no such node"
    if not speakable(node) or node.upper() == "ALL":
        return "a node of that name cannot be named to scontrol"
    if row.out:
        return f"out of service already: {row.told}"
    if row.reason and not row.reason.startswith(OURS):
        return f"somebody gave it a reason: {row.told}"
    return ""


def by_reason(wanted: Iterable[Fault]) -> tuple[Proposal, ...]:
    """One proposal for all nodes of one reason."""
    alike: dict[str, list[Fault]] = {}
    for fault in wanted:
        alike.setdefault(fault.reason, []).append(fault)
    return tuple(
        Proposal(
            nodes=tuple(sorted((fault.node for fault in group), key=natural)),
            reason=reason,
            checks=tuple(dict.fromkeys(check for fault in group for check in fault.checks)),
        )
        for reason, group in alike.items()
    )
