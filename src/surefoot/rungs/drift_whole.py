"""Whether a check run was one over the whole site, and what in it was looked at in appearance only. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from surefoot.hostlist import expand
from surefoot.model.cluster import Cluster
from surefoot.provision.events import Playbook, ResultEvent, Told
from surefoot.provision.listing import Listed, Play
from surefoot.rungs.ansible_view import HostSaid, short

_SAYING = frozenset(
    {
        "debug", "assert", "fail", "set_fact", "meta", "ping", "setup", "gather_facts", "pause", "include_vars",
        "include_tasks", "include_role", "group_by", "add_host", "validate_argument_spec", "wait_for_connection",
    }
)  # fmt: skip
"""Modules that look at nothing which a role manages."""
_LOOKING = _SAYING | {
    "command", "shell", "raw", "script", "stat", "slurp", "find", "getent", "uri", "wait_for", "fetch", "async_status",
}  # fmt: skip
"""Modules that may run for real in a check run: they look, or are the site's own word for looking."""
_PROBES = frozenset({"command", "shell", "raw", "script", "uri", "wait_for", "getent"})
"""Modules whose failing is an answer: `failed_when` says which."""


def _module(result: ResultEvent) -> str:
    return result.module.rpartition(".")[2]


def looks(result: ResultEvent) -> bool:
    """Whether a result tells something of its host's state."""
    return result.status in ("ok", "changed", "failed") and _module(result) not in _SAYING


def run_problems(run: Playbook, plays: Sequence[Play], playbook: str, limit: str) -> Iterator[str]:
    """What speaks against a check run with differences of every play, each on all of its hosts. `plays`: as listed."""
    begun = run.run
    if not (begun.check and begun.diff):
        yield f"check {begun.check}, diff {begun.diff}: it was no check run with differences"
    if begun.playbook != playbook:
        yield f"it was {begun.playbook}, asked for was {playbook}"
    if begun.only:
        yield f"tasks were left out: {begun.only} ([tags] in ansible.cfg?)"
    if begun.limit != limit:
        yield f"limited to {begun.limit or 'nothing'!r}, asked for was {limit or 'no limit'!r}"
    yield from _play_problems(run, plays)


def _play_problems(run: Playbook, plays: Sequence[Play]) -> Iterator[str]:
    """Plays are told apart by their place in the site, as two may have one name."""
    seen: dict[int, set[str]] = {}
    named: dict[int, str] = {}
    for event in run.plays:
        seen.setdefault(event.number, set()).update(event.hosts)
        named[event.number] = event.play
    missing = [f"#{number} {play.name}" for number, play in enumerate(plays, 1) if number not in seen]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        yield f"plays not run: {', '.join(missing[:5])}{more}"
    excused = {host for host, total in run.totals.items() if total.failures or total.unreachable}
    for number, play in enumerate(plays, 1):
        if number not in seen:
            continue
        if named[number] != play.name:
            yield f"play #{number} is {named[number]!r}, and in the site {play.name!r}"
        elif lost := sorted(play.hosts - seen[number]):
            yield f"play #{number} {play.name!r} left out {', '.join(lost[:6])}"
        elif silent := sorted(_silent(run, number, play.hosts) - excused):
            yield f"play #{number} {play.name!r} told nothing of {', '.join(silent[:6])}: was it ended by a meta task?"
    if more_seen := sorted(set(seen) - set(range(1, len(plays) + 1))):
        yield f"plays that the site does not list: {', '.join(f'#{number} {named[number]}' for number in more_seen[:5])}"


def _silent(run: Playbook, number: int, hosts: frozenset[str]) -> frozenset[str]:
    """Hosts of a play that no task told of. What is done once, for one host, speaks for all."""
    mine = [told.result for told in run.results if told.play == number]
    each = {one.host for one in mine if not one.once}
    return frozenset() if mine and not each else hosts - each


def limit_problems(limited: Listed, cluster: Cluster) -> list[str]:
    """Nodes of the cluster file that a limit leaves out."""
    assert cluster.ansible is not None
    hosts = set(limited.hosts)
    named = [host for group in cluster.node_groups for host in expand(group.hosts)]
    lost = [host for host in named if host not in hosts]
    count = sum(group.count for group in cluster.node_groups if not group.hosts)
    found = [host for host in limited.within(cluster.ansible.node_group) if host not in named]
    problems = [f"nodes of the cluster file are left out: {', '.join(lost[:6])}"] if lost else []
    if len(found) < count:
        problems.append(f"it leaves {len(found)} nodes of {cluster.ansible.node_group}, the cluster file has {count}")
    return problems


def same_machine(said: Mapping[str, HostSaid]) -> list[str]:
    """Hosts of the inventory that one machine answers for."""
    by_machine: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for host, answer in said.items():
        by_machine.setdefault((short(answer.host), answer.addresses), []).append(host)
    return [
        f"{' and '.join(sorted(hosts))} are one machine, which calls itself {name}"
        for (name, _), hosts in by_machine.items()
        if len(hosts) > 1
    ]


def blind_spots(run: Playbook) -> list[tuple[Told, str]]:
    """What a check run could not look into, or was told not to see; each with why, in words."""
    rescued = {host for host, total in run.totals.items() if total.rescued}
    found = [(told, _unseen(told.result) or _let_pass(told.result, rescued)) for told in run.results]
    return [(told, why) for told, why in found if why]


def _unseen(one: ResultEvent) -> str:
    """Why a result tells nothing of what a run of the site would do; empty where it does.

    The module raw is skipped without a word, also where its own condition would have skipped it.
    """
    if one.status == "skipped":
        unable = "check mode" in one.message.lower() or _module(one) == "raw"
        return "cannot be looked at in a check run" if unable else ""
    if one.for_real and not (_module(one) in _LOOKING or one.module.endswith(("_info", "_facts"))):
        return "is not held back by a check run (check_mode: false): it was done, and not told"
    if one.for_real and one.status == "changed":
        return "changed its host in the check run (check_mode: false)"
    return ""


def _let_pass(one: ResultEvent, rescued: Collection[str]) -> str:
    """Why a result is better than what happened; empty where it is not."""
    if one.status == "unreachable" and one.ignored:
        return "did not reach its host, and was let pass"
    if one.status == "failed" and (one.ignored or one.host in rescued):
        return "failed, and was let pass"
    if one.forgiven and one.status != "failed" and _module(one) not in _PROBES:
        return f"failed ({' '.join(one.forgiven.split())[:120]}), and failed_when lets it pass"
    if one.status == "ok" and any(each.before != each.after for each in one.diff):
        return "tells a difference, and changed_when says that there is none"
    return ""


def left_out(run: Playbook) -> set[str]:
    """Tasks that leave check runs out by their own ``when``: proofs that want the real thing."""
    return {f"{told.result.where} ({told.result.at})" for told in run.of("skipped") if told.result.left_out}
