"""Drifts as people read them: what a host has, what its role makes of it, and who changed it last. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from surefoot.provision.events import Difference, Playbook, ResultEvent, Told
from surefoot.provision.masks import masked
from surefoot.rungs.ansible_view import HostSaid

MOST_LINES = 400
"""Lines of a difference that are kept for the report; all of it stands in the evidence."""
_SHOWN = 8


def difference(one: Difference) -> list[str]:
    """Lines as ``-before`` and ``+after``; of a command that was only prepared, its own words."""
    if one.prepared:
        return masked(one.prepared).splitlines()
    before, after = masked(one.before).splitlines(), masked(one.after).splitlines()
    rows = difflib.unified_diff(before, after, lineterm="", n=0)
    return [row for row in rows if not row.startswith(("---", "+++", "@@"))]


@dataclass(frozen=True)
class Drift:
    """One thing on one host that the site's roles would change."""

    told: Told
    lines: tuple[str, ...]
    who: str
    """Who changed it last, in words; empty where that is not known."""

    @property
    def result(self) -> ResultEvent:
        return self.told.result

    @property
    def what(self) -> str:
        """The file, or else what the task is about."""
        one = self.result
        return one.path or ", ".join(one.packages[:6]) or one.item or one.module.rsplit(".", 1)[-1]

    @property
    def words(self) -> str:
        """In one line, shortened."""
        shown = [row.strip()[:160] for row in self.lines if row.strip()][:_SHOWN]
        more = f" / … {len(self.lines) - len(shown)} more" if len(self.lines) > len(shown) else ""
        text = f"{self.what}: {' / '.join(shown) or 'the task does not say how'}{more}"
        return f"{text}; {self.who}" if self.who else text

    @property
    def cells(self) -> dict[str, object]:
        """For tables and the report."""
        one = self.result
        return {
            "host": one.host, "role": one.role, "task": one.task, "item": one.item or "", "what": self.what,
            "at": one.at, "diff": list(self.lines[:MOST_LINES]), "who": self.who,
        }  # fmt: skip


def drifts_of(run: Playbook, said: Mapping[str, HostSaid]) -> list[Drift]:
    """Everything that would change, by host."""
    found = []
    for told in sorted(run.of("changed"), key=lambda told: (told.result.host, told.line)):
        lines = tuple(row for one in told.result.diff for row in difference(one))
        found.append(Drift(told, lines, _who(told.result, said.get(told.result.host))))
    return found


def _who(result: ResultEvent, said: HostSaid | None) -> str:
    if said is None:
        return ""
    facts = said.paths.get(result.path)
    if facts is not None:
        if not facts.there:
            return "it is not there"
        return f"last changed {_when(facts.changed_at)}; owner {facts.owner}, mode {facts.mode}"
    lines = [said.history[name] for name in result.packages if name in said.history]
    return f"packages: {max(lines)}" if lines else ""


def _when(moment: float | None) -> str:
    if moment is None:
        return "at a time not known"
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
