"""Drift: no host differs from what the site's roles make of it. A check run over the whole site, read as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot.errors import EvidenceError
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Drift as DriftSpec
from surefoot.model.run import Judgement
from surefoot.provision.events import Playbook, Told
from surefoot.provision.listing import Listed, Play, plays_of
from surefoot.rungs.ansible_view import (
    Document,
    HostSaid,
    document,
    event_line,
    hosts_said,
    listed,
    named,
    playbook,
    program_step,
    refuse_other_command,
    site_of,
)
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.drift_packages import Named, RolePackages, silent_hosts, unknown_roles, versions_of
from surefoot.rungs.drift_view import Drift, drifts_of
from surefoot.rungs.drift_whole import blind_spots, left_out, limit_problems, looks, run_problems, same_machine
from surefoot.rungs.judging import decide, shorten, unproved
from surefoot.rungs.slurm_view import Answer, line_of

CHECK = "raw/check.stdout"
MOST_DRIFTS = 300
"""Drifts with a check of their own; `drift.none` counts all, and the evidence has all."""
_MOST = 8


class Checked(Document):
    """What ``surefoot.provision.check`` printed."""

    inventory: Answer
    whole: Answer | None
    """The inventory without the limit, where there is one."""
    plays: Answer
    check: Answer
    packages: dict[str, RolePackages]
    """By role."""
    history: Answer | None


@dataclass(frozen=True)
class Facts:
    """The check run, what it was to be of, and what hosts know of what it found."""

    document: Checked
    listed: Listed
    whole: Listed | None
    """All hosts of the inventory, where a limit leaves some out."""
    plays: list[Play]
    run: Playbook
    roles: Mapping[str, RolePackages]
    asked: Playbook | None
    """The playbook that asked what hosts know of it."""
    said: Mapping[str, HostSaid]
    named: Named


class DriftRung(Rung[DriftSpec, Facts]):
    """``ansible-playbook --check --diff`` over the whole site."""

    name: ClassVar[str] = "drift"
    title: ClassVar[str] = "Drift"
    proves: ClassVar[str] = "No host differs from what the site's roles make of it: running them would change nothing."
    uses: ClassVar[tuple[str, ...]] = ("ansible", "package")

    def plan(self, context: PlanContext[DriftSpec]) -> Asked:
        site = site_of(context)
        step = program_step(context, "check", "surefoot.provision.check")
        return Asked(steps=(step,), expect={"playbook": site.playbook.rsplit("/", 1)[-1], "limit": site.limit})

    def read(self, view: View) -> Facts:
        found = document(Checked, view, "check")
        site = view.inputs.cluster.ansible
        assert site is not None, "the plan had one"
        inventory = listed(found.inventory, view, CHECK)
        if site.limit and found.whole is None:
            raise EvidenceError("the inventory without the limit is missing", file=CHECK)
        whole = listed(found.whole, view, CHECK, limit="") if found.whole is not None else None
        refuse_other_command(found.plays, view, CHECK, "--list-hosts", site.playbook)
        refuse_other_command(found.check, view, CHECK, "--check", "--diff", site.playbook)
        run = playbook(found.check, CHECK)
        plays = plays_of(found.plays.stdout, file=CHECK)
        asked: Playbook | None = None
        said: Mapping[str, HostSaid] = {}
        names: Named = {}
        if found.history is not None:
            refuse_other_command(found.history, view, CHECK, "--extra-vars", limit="@")
            asked = playbook(found.history, CHECK)
            said, names = hosts_said(asked, CHECK), named(asked, CHECK)
            if said.keys() - names.keys():
                raise EvidenceError("what the roles of a host name is missing", file=CHECK)
        return Facts(found, inventory, whole, plays, run, found.packages, asked, said, names)

    def judge(self, facts: Facts, view: View) -> Judgement:
        drifts = drifts_of(facts.run, facts.said)
        checks = [
            _whole(facts, view),
            *_limit(facts, view),
            *_hosts(facts, view),
            _blind(facts, view),
            _none(facts, drifts, view),
        ]
        checks += [_drift(number, drift, facts, view) for number, drift in enumerate(drifts[:MOST_DRIFTS], 1)]
        checks += _packages(facts, view)
        details = {"drifts": [drift.cells for drift in drifts[:MOST_DRIFTS]], "hosts": len(facts.listed.hosts)}
        limited = f", limited to {view.expect['limit']!r}" if view.expect["limit"] else ""
        return Judgement(checks=tuple(checks), summary=_summary(facts, drifts, checks) + limited, details=details)


def _summary(facts: Facts, drifts: Sequence[Drift], checks: Sequence[Check]) -> str:
    total: int | str = len(facts.listed.hosts)
    if facts.whole is not None and len(facts.whole.hosts) != total:
        total = f"{total} (of {len(facts.whole.hosts)})"
    where = len({drift.result.host for drift in drifts})
    if drifts:
        return f"{len(drifts)} drift{'s' if len(drifts) > 1 else ''} on {where} of {total} hosts"
    open_ones = [check.id for check in checks if check.status != "PASSED"]
    return f"no drift seen; not so: {shorten(open_ones, 2)}" if open_ones else f"no drift on {total} hosts"


def _whole(facts: Facts, view: View) -> Check:
    """It was a check run with differences, of the whole site: every play, each on all of its hosts."""
    run, limit = facts.run.run, view.expect["limit"]
    problems = list(run_problems(facts.run, facts.plays, view.expect["playbook"], limit))
    of = f"hosts that the limit {limit!r} leaves" if limit else "whole site"
    identifier, claim = (
        "drift.run",
        f"it was a check run with differences over the {of}, every play on all of its hosts",
    )
    expected = f"{view.expect['playbook']} --check --diff, {len(facts.plays)} plays"
    evidence = (line_of(view, CHECK, facts.document.check.stdout[0]),)
    if problems:
        action = "a play that ended early has a failed host (see below); mend that and run the rung again"
        words = shorten(problems, 6)
        return unproved(identifier, claim, expected=expected, actual=words, evidence=evidence, next_action=action)
    told = f"{len(facts.plays)} plays, Ansible {run.ansible}"
    return decide(identifier, claim, True, expected=expected, actual=told, evidence=evidence)


def _limit(facts: Facts, view: View) -> list[Check]:
    """A limited run is none of the whole site: it is told how much it is of, and holds no node of the cluster back."""
    limit = view.expect["limit"]
    if not limit:
        return []
    assert facts.whole is not None, "reading has seen to it"
    left = sorted(set(facts.whole.hosts) - set(facts.listed.hosts))
    told = f"{len(facts.listed.hosts)} of {len(facts.whole.hosts)} hosts"
    told += f"; not looked at: {', '.join(left[:_MOST])}{' …' if len(left) > _MOST else ''}" if left else ""
    problems = limit_problems(facts.listed, view.inputs.cluster)
    identifier, claim = "drift.limit", f"the limit {limit!r} of the cluster file leaves every node of the cluster"
    evidence = (line_of(view, CHECK, f"--limit {limit}"),)
    derivation = "ansible-inventory --list, with the limit and without; node_groups of the cluster file"
    action = "correct ansible.limit in the cluster file; without it the whole of the inventory is looked at"
    if problems:
        words = f"{shorten(problems)}; {told}"
        return [unproved(identifier, claim, actual=words, evidence=evidence, derivation=derivation, next_action=action)]
    return [decide(identifier, claim, True, actual=told, evidence=evidence, derivation=derivation)]


def _stats_line(facts: Facts, view: View) -> Evidence:
    return line_of(view, CHECK, facts.document.check.stdout[-1])


def _hosts(facts: Facts, view: View) -> list[Check]:
    """Every host of the inventory was reached and looked at; and none is one that a task failed on."""
    totals, hosts = facts.run.totals, facts.listed.hosts
    away = {t.result.host: t for t in facts.run.of("unreachable")}
    unknown = [f"{host}: unreachable: {_one_line(told.result.message)}" for host, told in away.items()]
    unknown += [f"{host}: no play of the site is for it" for host in hosts if host not in totals]
    looked = {t.result.host for t in facts.run.results if looks(t.result)}
    unknown += [
        f"{host}: no task looked at it" for host in hosts if host in totals and host not in looked | away.keys()
    ]
    unknown += same_machine(facts.said)
    failed = [told for told in facts.run.of("failed") if not told.result.ignored]
    lines = [event_line(view, CHECK, facts.document.check, told) for told in [*away.values(), *failed]][:_MOST]
    reached = "drift.reached", "every host of the inventory was looked at"
    expected = f"{len(hosts)} hosts"
    action = (
        "see the rung inventory for a host out of reach; a host that no play is for belongs into a group of the site"
    )
    evidence = (*lines, _stats_line(facts, view))
    words = shorten(unknown, _MOST)
    if unknown:
        first = unproved(*reached, expected=expected, actual=words, evidence=evidence, next_action=action)
    else:
        first = decide(*reached, True, expected=expected, actual=expected, evidence=evidence)
    bad = [f"{t.result.host}: {t.result.where} ({t.result.at}): {_one_line(t.result.message)}" for t in failed]
    second = decide(
        "drift.tasks",
        "no task of the site fails on any host",
        not bad,
        expected="0 failed",
        actual=shorten(bad, _MOST) or f"0 failed of {sum(t.ok for t in totals.values())}",
        evidence=evidence,
        next_action="mend what the message says. A task that fails in a check run alone needs what an earlier one "
        "would have made: give it `when`, or `check_mode: false` where it only looks",
    )
    return [first, second]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _blind(facts: Facts, view: View) -> Check:
    """Nothing was passed over: a task that a check run skips as such proves nothing about its host."""
    spots = blind_spots(facts.run)
    identifier = "drift.seen"
    claim = "the check run passed over no task that it cannot look at, and let no failure and no difference pass"
    evidence: tuple[Evidence, ...] = tuple(
        event_line(view, CHECK, facts.document.check, told) for told, _ in spots[:_MOST]
    )
    own = left_out(facts.run)
    derivation = f"{len(own)} tasks leave check runs out by their own `when`: {shorten(sorted(own), 3)}" if own else ""
    if not spots:
        told = f"{len(facts.run.results)} results, none passed over"
        evidence = (_stats_line(facts, view),)
        return decide(identifier, claim, True, actual=told, evidence=evidence, derivation=derivation)
    hosts: dict[str, list[str]] = {}
    for spot, why in spots:
        hosts.setdefault(f"{spot.result.where} ({spot.result.at}) {why}", []).append(spot.result.host)
    words = [f"{what}: {', '.join(names[:4])}" for what, names in hosts.items()]
    return unproved(
        identifier,
        claim,
        expected="0 tasks",
        actual=shorten(words, _MOST),
        evidence=evidence,
        derivation=derivation,
        next_action="give the task `check_mode: false` where it only looks, or a `when` that looks first; "
        "where drifts are told, these are often what would follow them. A task that changes something has neither "
        "`check_mode: false` nor `ignore_errors`, `failed_when: false` or `changed_when: false`",
    )


def _none(facts: Facts, drifts: Sequence[Drift], view: View) -> Check:
    per_host = Counter(drift.result.host for drift in drifts)
    words = ", ".join(f"{host}: {count}" for host, count in per_host.most_common(12))
    looked = sum(total.ok for total in facts.run.totals.values())
    return decide(
        "drift.none",
        "a run of the site would change nothing on any host",
        not drifts,
        expected=0,
        actual=len(drifts),
        unit="changes",
        evidence=(_stats_line(facts, view),),
        derivation=f"by host: {words}" if words else f"{looked} tasks looked at on {len(facts.run.totals)} hosts",
        next_action="a change that is wanted belongs into the inventory or a role; one that is not goes with "
        "`ansible-playbook site.yml` (add --limit HOST, --tags ROLE for a part)",
    )


def _drift(number: int, drift: Drift, facts: Facts, view: View) -> Check:
    one = drift.result
    return decide(
        f"drift.{one.host}.{number}",
        f"on {one.host} it holds that: {one.where}",
        False,
        expected="no change",
        actual=drift.words,
        evidence=(_event(drift.told, facts, view),),
        derivation=f"role {one.role or 'none'}, {one.at}",
        next_action=f"undo it: ansible-playbook site.yml --limit {one.host}{' --tags ' + one.role if one.role else ''}; "
        "or keep it: write it into the inventory",
    )


def _event(told: Told, facts: Facts, view: View) -> Evidence:
    return event_line(view, CHECK, facts.document.check, told)


def _packages(facts: Facts, view: View) -> list[Check]:
    """Packages that roles name have one version on all hosts that they are named for."""
    found = list(versions_of(facts.run, facts.roles, facts.named, facts.said))
    hosts = silent_hosts(facts.run, facts.said)
    unknown = [f"versions are not known of {', '.join(hosts[:_MOST])}"] if hosts else []
    unknown += unknown_roles(facts.run, facts.roles, facts.named, facts.asked, CHECK)
    if not found and not unknown:
        return []  # nothing that roles name is a package here
    identifier, claim = "drift.packages", "a package that a role names has one version on all of its hosts"
    bad: dict[str, None] = {}
    for one in found:
        if one.unlike:
            hosts = [host for host in one.by_host if one.package in facts.said[host].history]
            last = "; ".join(f"{host}: {facts.said[host].history[one.package]}" for host in hosts[:3])
            bad[f"{one.unlike}{f' (last: {last})' if last else ''}"] = None
    evidence = (_history_line(facts, view),)
    derivation = "dpkg-query on each host; hosts of one distribution and release are compared with each other"
    if bad or not unknown:
        named = {one.role for one in found}
        told = f"{len({one.package for one in found})} packages of {len(named)} roles on {len(facts.said)} hosts"
        return [
            decide(
                identifier,
                claim,
                not bad,
                actual=shorten([*bad, *(unknown if bad else [])], _MOST) or told,
                evidence=evidence,
                derivation=derivation,
                next_action="install the same version everywhere (`apt-get install PACKAGE=VERSION`), and pin it: ROLE_version",
            )
        ]
    words = shorten(unknown, _MOST)
    more = (
        "see what the second playbook said in the evidence; a role names its packages in a variable of its defaults, "
        "ROLE_packages, that needs nothing but facts and the inventory"
    )
    return [unproved(identifier, claim, actual=words, evidence=evidence, derivation=derivation, next_action=more)]


def _history_line(facts: Facts, view: View) -> Evidence:
    answer = facts.document.history
    return line_of(view, CHECK, answer.stdout[-1] if answer and answer.stdout else "history")


RUNG = DriftRung()
