"""Drifts as people read them: what a host has, what its role makes of it, and who changed it last. Pure."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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


def blind_spots(run: Playbook) -> list[Told]:
    """What a check run could not look into: tasks that it skipped as such, and that failed and were let pass.

    The module raw is skipped without a word, also where its own condition would have skipped it.
    """
    skipped = [
        told
        for told in run.of("skipped")
        if "check mode" in told.result.message.lower() or told.result.module.rpartition(".")[2] == "raw"
    ]
    rescued = {host for host, total in run.totals.items() if total.rescued}
    passed_over = [t for t in run.of("failed") if t.result.ignored or t.result.host in rescued]
    return [*skipped, *passed_over]


@dataclass(frozen=True)
class Versions:
    """Versions of one package on the hosts where a role names it."""

    role: str
    package: str
    distribution: str
    by_host: Mapping[str, str]
    """Host → version; ``not installed`` where it is not."""

    @property
    def unlike(self) -> str:
        """``munge: n2 has 0.5.16-1, others 0.5.15-2``; empty where all are the same."""
        counted = Counter(self.by_host.values())
        if len(counted) <= 1:
            return ""
        most = counted.most_common()
        if most[0][1] > most[1][1]:
            odd = [f"{host} has {version}" for host, version in sorted(self.by_host.items()) if version != most[0][0]]
            return f"{self.package}: {', '.join(odd)}; others {most[0][0]}"
        return f"{self.package}: " + ", ".join(
            f"{host} has {version}" for host, version in sorted(self.by_host.items())
        )


Named = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Host → role → packages that the role's variables name there."""


def packages_named(run: Playbook, named: Named) -> dict[tuple[str, str], set[str]]:
    """(role, package) → hosts that it is named for: by the role's variables, or by a task of it that ran."""
    found: dict[tuple[str, str], set[str]] = {}
    for told in run.results:
        for package in told.result.packages:
            found.setdefault((told.result.role, package), set()).add(told.result.host)
    ran = {(told.result.host, told.result.role) for told in run.results}
    for host, roles in named.items():
        for role, packages in roles.items():
            for package in packages if (host, role) in ran else ():
                found.setdefault((role, package), set()).add(host)
    return found


def versions_of(run: Playbook, named: Named, said: Mapping[str, HostSaid]) -> Iterator[Versions]:
    """Each package that a role names, on the hosts that it names it for; hosts of one release are compared."""
    alike: dict[tuple[str, str, str], set[str]] = {}
    for (role, package), hosts in packages_named(run, named).items():
        for host in hosts & said.keys():
            alike.setdefault((role, package, said[host].distribution), set()).add(host)
    for (role, package, distribution), hosts in sorted(alike.items()):
        found = {host: said[host].versions.get(package, "not installed") for host in sorted(hosts)}
        if set(found.values()) != {"not installed"}:  # a name that stands for another package
            yield Versions(role, package, distribution, found)


def silent_hosts(run: Playbook, said: Mapping[str, HostSaid]) -> list[str]:
    """Hosts that were looked at and whose packages are not known."""
    away = {host for host, total in run.totals.items() if total.unreachable}
    return sorted(run.totals.keys() - away - said.keys() - {"localhost"})


def listed_plays(names: Sequence[str]) -> str:
    """``Slurm, Shared storage``: shortened."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
