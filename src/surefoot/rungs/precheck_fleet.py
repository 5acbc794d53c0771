"""Pre-check: nodes of one group are alike in all that should be, and are what the cluster file expects of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from surefoot.hardware.fleet import Agreement, Fleet, Row, Told, Unknown, compare
from surefoot.hostlist import folded
from surefoot.model.check import Check, Evidence
from surefoot.rungs.judging import decide, shorten, unproved

MOST_REFERENCES = 16
"""Files that a check about all nodes names; which nodes differ is said in full."""


@dataclass(frozen=True)
class Facts:
    """Comparable facts of every node, and how to refer to its file."""

    told: Mapping[str, Told]
    group_of: Mapping[str, str]
    reference: Callable[[str, str], Evidence]
    """(host, text) → a reference to that host's file."""
    name_of: Mapping[str, str] = field(default_factory=dict)
    """Host → what the scheduler calls it, where that is another name."""

    def called(self, hosts: Iterable[str]) -> list[str]:
        """These hosts, as the scheduler calls them."""
        return [self.name_of.get(host, host) for host in hosts]


def fleet(facts: Facts, may_differ: Sequence[str]) -> Fleet:
    """The drift matrix, without the facts that may differ (patterns as in a shell)."""
    told = {
        host: {key: value for key, value in texts.items() if not any(fnmatchcase(key, p) for p in may_differ)}
        for host, texts in facts.told.items()
    }
    return compare(told, group_of=facts.group_of if len(set(facts.group_of.values())) > 1 else None)


def alike(matrix: Fleet, facts: Facts) -> list[Check]:
    """One check for each row in which nodes differ, one for what some don't tell, one for all that agrees.

    No claim where there is one node, or one a group: it has no other to be like.
    """
    checks = [_differs(row, facts) for row in matrix.that(Agreement.DIFFERS)]
    partly = [row for row in matrix.that(Agreement.UNKNOWN) if row.known]
    if partly:
        checks.append(_untold(partly, facts))
    same = matrix.that(Agreement.AGREES)
    if same:
        number = sum(len(row.keys) for row in same)
        hosts = sorted({host for row in same for share in row.shares for host in share.hosts})
        checks.append(
            decide(
                "precheck.alike",
                f"nodes of one group agree in {number} facts",
                True,
                actual=f"{number} facts on {folded(hosts)}",
                evidence=_references(hosts, facts),
                derivation="the drift matrix of the details: every fact of the nodes that should not differ",
            )
        )
    return checks


def _differs(row: Row, facts: Facts) -> Check:
    odd = row.minority or row.shares
    hosts = [host for share in odd for host in share.hosts]
    majority = row.majority
    beside = [majority.hosts[0], *hosts] if majority else hosts
    return decide(
        f"precheck.alike.{row.name}",
        f"nodes of one group have the same {row.title}",
        False,
        expected=str(majority.value) if majority else "one value",
        actual=row.sentence,
        evidence=_references(beside, facts),
        derivation="each fact across the nodes; the majority is what more than half of them have",
        next_action=f"bring {folded(hosts)} to what the others have, or say that it may differ: may_differ: "
        f"[{_pattern(row)}] of this rung in the ladder",
        # Without a majority nobody is shown to be the odd one.
        nodes=facts.called(host for share in row.minority for host in share.hosts),
    )


def _pattern(row: Row) -> str:
    return f"'{row.keys[0]}'" if len(row.keys) == 1 else ", ".join(f"'{key}'" for key in row.keys[:3])


def _untold(rows: Sequence[Row], facts: Facts) -> Check:
    hosts = sorted({h for row in rows for share in row.shares if isinstance(share.value, Unknown) for h in share.hosts})
    return unproved(
        "precheck.alike.untold",
        "every node tells what its neighbours tell",
        actual=shorten([row.sentence for row in rows]),
        evidence=_references(hosts, facts),
        next_action=f"find out on {folded(hosts)} why these facts cannot be read there",
    )


def expected(facts: Facts, expects: Mapping[str, Mapping[str, str]]) -> list[Check]:
    """One check for each fact that a group's `expect` names. `expects`: group → fact → text."""
    checks = []
    for group, wanted in expects.items():
        hosts = sorted(host for host, of in facts.group_of.items() if of == group)
        checks += [_expected(group, key, text, hosts, facts) for key, text in wanted.items() if hosts]
    return checks


def _expected(group: str, key: str, wanted: str, hosts: Sequence[str], facts: Facts) -> Check:
    """`key` may be a pattern (``gpu*.vbios``): all facts that it fits, and one at least."""
    others: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    for host in hosts:
        fitting = {name: value for name, value in facts.told[host].items() if fnmatchcase(name, key)}
        if not fitting:
            unknown.setdefault("no such fact there", []).append(host)
        for value in dict.fromkeys(fitting.values()):
            if isinstance(value, Unknown):
                unknown.setdefault(value.reason, []).append(host)
            elif value != wanted:
                others.setdefault(value, []).append(host)
    identifier, claim = f"precheck.expect.{group}.{key}", f"every node of group {group} has {key} = {wanted}"
    derivation = f"node_groups.{group}.expect of the cluster file"
    if unknown and not others:
        silent = sorted({host for found in unknown.values() for host in found})
        return unproved(
            identifier, claim, expected=wanted, evidence=_references(silent, facts), derivation=derivation,
            actual=shorten([f"{reason} on {folded(found)}" for reason, found in unknown.items()]),
            next_action="see the details for the facts that nodes tell, or find out there why it cannot be read",
        )  # fmt: skip
    odd = sorted({host for found in others.values() for host in found})
    return decide(
        identifier,
        claim,
        not others,
        expected=wanted,
        actual=shorten([f"{value} on {folded(found)}" for value, found in others.items()]) or wanted,
        evidence=_references(odd or hosts, facts),
        derivation=derivation,
        next_action=f"bring {folded(odd)} there, or accept the change in node_groups.{group}.expect",
        nodes=facts.called(odd),
    )


def _references(hosts: Sequence[str], facts: Facts) -> tuple[Evidence, ...]:
    return tuple(facts.reference(host, host) for host in list(dict.fromkeys(hosts))[:MOST_REFERENCES])
