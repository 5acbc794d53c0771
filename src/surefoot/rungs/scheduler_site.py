"""Scheduler smoke on Slurm: configuration, munge keys and clocks of every node against the head's. Checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from surefoot.hostlist import expand
from surefoot.model.check import Check, Evidence
from surefoot.rungs.base import View
from surefoot.rungs.judging import Said, decide, shorten, unproved
from surefoot.rungs.scheduler_slurm import DECODED, HEAD, ConfigurationFile, NodeSaid, SlurmFacts
from surefoot.rungs.slurm_nodes import fit_check, gpu_check
from surefoot.rungs.slurm_view import Answer, controllers_clock, line_of

CLOCK_S = 5.0
"""How far a node's clock may be from the controller's; munge's own limit is 300 s."""
ANSWER_S = 10.0
"""An answer that took longer says too little about the clock."""
PER_NODE = ("gres.conf", "cgroup.conf")
"""Files that may differ between kinds of nodes, and hold for like ones: a group's nodes are compared with each other."""
_TIME = re.compile(r"^(ENCODE|DECODE)_TIME:.*\((\d+)\)\s*$")


def site_checks(facts: SlurmFacts, view: View) -> list[Check]:
    """Checks about the site. Raises EvidenceError for a missing reference."""
    return [
        _config(facts, view),
        fit_check("scheduler.slurm.nodes", facts.nodes, view, HEAD),
        gpu_check("scheduler.slurm.gpus", facts.nodes, view, HEAD),
        _files(facts, view),
        _munge(facts, view),
        _clocks(facts, view),
    ]


def _conclude(identifier: str, claim: str, problems: list[str], unknown: list[str], well: str, **more: Any) -> Check:
    """FAILED with what is wrong, else INCONCLUSIVE with what is not known, else PASSED."""
    if problems or not unknown:
        return decide(identifier, claim, not problems, actual=shorten([*problems, *unknown], 6) or well, **more)
    return unproved(identifier, claim, actual=shorten(unknown, 6), **more)


def _config(facts: SlurmFacts, view: View) -> Check:
    config = facts.config
    same = config["HASH_VAL"]
    words = {
        "ClusterName": config["ClusterName"], "Slurm": config["SLURM_VERSION"],
        "controller": ", ".join(config.controllers), "ProctrackType": config["ProctrackType"],
        "SelectType": config["SelectType"], "TaskPlugin": config["TaskPlugin"], "AuthType": config["AuthType"],
    }  # fmt: skip
    told = f"HASH_VAL = {same or 'none: Slurm does not say'}"
    return _conclude(
        "scheduler.slurm.config",
        "the controller runs with the slurm.conf that the login host has",
        [told] if same.startswith("Different") else [],
        [told] if not same.startswith(("Different", "Match")) else [],
        ", ".join(f"{name} {value or 'none'}" for name, value in words.items()),
        expected="HASH_VAL = Match",
        evidence=(line_of(view, HEAD, "ClusterName "), line_of(view, HEAD, "HASH_VAL" if same else "SLURM_VERSION")),
        next_action="copy slurm.conf from the controller, or run `scontrol reconfigure` where the new one is wanted",
    )


# -- slurm.conf


@dataclass(frozen=True)
class _Copy:
    """One node's copy of one file."""

    rank: Said[NodeSaid]
    file: ConfigurationFile | None

    @property
    def sha256(self) -> str | None:
        return self.file.sha256 if self.file else None


def _files(facts: SlurmFacts, view: View) -> Check:
    head = facts.head.configuration.files
    problems: list[str] = []
    unknown: list[str] = []
    bad: list[Said[NodeSaid]] = []
    names = dict.fromkeys([*head, *(name for rank in facts.ranks for name in rank.data.configuration.files)])
    for name in names:
        for group in _alike(name, facts, view):
            wanted, whose = _reference(name, head.get(name), group)
            for copy in group:
                word = _unlike(name, copy, wanted, whose)
                unread = copy.file is not None and copy.file.sha256 is None
                if word:
                    (unknown if unread else problems).append(f"{copy.rank.data.node}: {word}")
                    bad.append(copy.rank)
    mine = head["slurm.conf"]
    digest = mine.sha256 or "none on the login host: nodes are compared with each other"
    shown = [*dict.fromkeys(rank.file for rank in bad), *(rank.file for rank in facts.ranks if rank not in bad)][:8]
    references = tuple(view.evidence.ref(file) for file in shown)
    return _conclude(
        "scheduler.slurm.conf",
        "every node has the slurm.conf of the login host, and what belongs to it",
        problems,
        unknown,
        f"{', '.join(names)}: the same on {len(facts.ranks)} nodes",
        expected=f"slurm.conf {digest[:16]}",
        evidence=(*references, line_of(view, HEAD, mine.sha256 or "slurm.conf")),
        derivation=f"sha256 of the files; slurm.conf was found {facts.head.configuration.found}; "
        "gres.conf and cgroup.conf are compared within a node group",
        next_action="copy the files from the head, then `scontrol reconfigure` (new nodes or GRES: restart slurmd). "
        "One that cannot be read: chmod 644, secrets belong in slurmdbd.conf",
    )


def _alike(name: str, facts: SlurmFacts, view: View) -> Iterator[list[_Copy]]:
    """Nodes whose copies of this file are to be the same."""
    copies = [_Copy(rank, rank.data.configuration.files.get(name)) for rank in facts.ranks]
    if name not in PER_NODE:
        yield copies
        return
    groups: dict[str, list[_Copy]] = {}
    for copy in copies:
        node = copy.rank.data.node
        group = next((g.name for g in view.inputs.cluster.node_groups if node in expand(g.hosts)), "")
        groups.setdefault(group, []).append(copy)
    yield from groups.values()


def _reference(name: str, head: ConfigurationFile | None, copies: list[_Copy]) -> tuple[str | None, str]:
    """The digest that copies are to have (None: no such file), and whose it is.

    The head's; of a file that may differ from it, what most of these nodes have, and the head's where
    they are divided.
    """
    if name not in PER_NODE and head is not None and head.sha256 is not None:
        return head.sha256, "the login host"
    counted = Counter(copy.sha256 for copy in copies).most_common()
    most = [digest for digest, count in counted if count == counted[0][1]]
    if len(most) > 1 and head is not None and head.sha256 in most:
        return head.sha256, "the login host"
    return most[0], "most other nodes"


def _unlike(name: str, copy: _Copy, wanted: str | None, whose: str) -> str:
    """What is not as it should be; empty where all is."""
    if copy.file is not None and copy.file.sha256 is None:
        return f"{name} cannot be read at {copy.file.path or 'any usual place'}: {copy.file.error}"
    if copy.sha256 == wanted:
        return ""
    if copy.file is None:
        return f"{name} is missing"
    if wanted is None:
        return f"{copy.file.path} is there, and not on {whose}"
    lines = f": {' / '.join(copy.file.differing[:6])}" if copy.file.differing else ""
    return f"{copy.file.path} is not as on {whose}{lines}"


# -- munge


def _decoded(answer: Answer, payload: str) -> tuple[str, str]:
    """(what is wrong with the credential, what is not known of it); both empty where it decoded to `payload`."""
    if answer.exit_code is None:
        return "", answer.error
    status = next((row.split(":", 1)[1].strip() for row in answer.stdout if row.startswith("STATUS:")), "")
    if answer.well and status.startswith("Success"):
        found = answer.stdout[-1].strip() if answer.stdout else ""
        return ("", "") if found == payload else (f"decoded to {found[:60]!r}", "")
    times = {match.group(1): int(match.group(2)) for row in answer.stdout if (match := _TIME.match(row))}
    word = status or answer.said
    if "Invalid" in word:
        return f"{word}: another munge key", ""
    if len(times) == 2:
        return f"{word}: the clocks are {abs(times['DECODE'] - times['ENCODE'])} s apart", ""
    return word, ""


@dataclass(frozen=True)
class _Try:
    """One credential, from one host to another."""

    encoder: str
    decoder: str
    problem: str
    unknown: str


def _tries(facts: SlurmFacts, nonce: str) -> Iterator[_Try]:
    names = {str(rank.rank): rank.data.node for rank in facts.ranks}
    for rank in facts.ranks:
        node, exchange = rank.data.node, rank.data.munge
        bad = next((made for made in exchange.made.values() if not made.well), None)
        if bad is not None:
            words = f"{node} cannot make one: {bad.said}"
            yield _Try(node, node, "" if bad.exit_code is None else words, words if bad.exit_code is None else "")
            continue
        yield _pair("the head", node, exchange.head, nonce)
        yield _pair(node, "the head", facts.decoded.decoded[str(rank.rank)], f"{nonce} {rank.rank}")
        for other, answer in exchange.others.items():
            yield _pair(names[other], node, answer, f"{nonce} {other}")


def _pair(encoder: str, decoder: str, answer: Answer | None, payload: str) -> _Try:
    if answer is None:
        return _Try(encoder, decoder, "", f"{decoder} was shown none of {encoder}'s")
    problem, unknown = _decoded(answer, payload)
    return _Try(
        encoder,
        decoder,
        f"{decoder} cannot decode {encoder}'s: {problem}" if problem else "",
        f"{decoder}: {unknown}" if unknown else "",
    )


def _munge(facts: SlurmFacts, view: View) -> Check:
    identifier, claim = (
        "scheduler.slurm.munge",
        "every node and the head decode each other's munge credentials, or the site does without munge",
    )
    head = facts.head.munge
    if not facts.config.munge:
        words = f"this site does without munge: AuthType = {facts.config['AuthType']}"
        return decide(identifier, claim, True, actual=words, evidence=(line_of(view, HEAD, "AuthType "),))
    tries = list(_tries(facts, view.plan.nonce))
    problems, unknown = [t.problem for t in tries if t.problem], [t.unknown for t in tries if t.unknown]
    if not head.well:
        (unknown if head.exit_code is None else problems).insert(0, f"the head cannot make one: {head.said}")
    odd = _odd_one(tries)
    derivation = (
        f"{len(tries)} credentials: each node's to and from the head, and to and from {facts.ranks[0].data.node}"
    )
    named = {rank.data.node: rank.file for rank in facts.ranks}
    bad = [named[host] for host in odd if host in named]
    references: list[Evidence] = [view.evidence.ref(file) for file in dict.fromkeys([*bad, *named.values()])][:8]
    return _conclude(
        identifier,
        claim,
        [*([f"not as the others: {', '.join(odd)}"] if odd else []), *problems],
        unknown,
        f"{len(tries)} of {len(tries)}",
        expected="Success for every pair",
        evidence=(*references, view.evidence.ref(DECODED)),
        derivation=derivation,
        next_action="another key: copy /etc/munge/munge.key from the head (owner munge, mode 400) and restart munge. "
        "Expired or rewound: set the clock (chrony, timesyncd). Cannot make one: `systemctl status munge`",
    )


def _odd_one(tries: list[_Try]) -> list[str]:
    """Hosts that fail with most of those that they were tried with: theirs is the fault, not the others'."""
    met, failed = Counter[str](), Counter[str]()
    for one in tries:
        for host in {one.encoder, one.decoder}:
            met[host] += 1
            failed[host] += bool(one.problem)
    worst = [host for host in met if failed[host] and failed[host] * 2 > met[host]]
    nodes = [host for host in worst if host != "the head"]
    others = met.keys() - {"the head"}
    return ["the head"] if set(nodes) == others and len(others) > 1 and "the head" in worst else nodes


# -- clocks


def _clocks(facts: SlurmFacts, view: View) -> Check:
    """Each host's clock against the controller's, which answers with the second that it has."""
    problems, unknown, offsets = [], [], []
    hosts = [(f"the head ({facts.head.host})", facts.head.answers["config"])]
    hosts += [(rank.data.node, rank.data.config) for rank in facts.ranks]
    for name, answer in hosts:
        offset = _offset_s(answer)
        if offset is None:
            unknown.append(f"{name}: {answer.said if not answer.well else 'the controller did not tell its time'}")
        elif abs(offset) > CLOCK_S:
            problems.append(f"{name} is {abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the controller")
        if offset is not None:
            offsets.append(abs(offset))
    bad = [rank for rank in facts.ranks if (off := _offset_s(rank.data.config)) is None or abs(off) > CLOCK_S]
    shown = [*bad, *(rank for rank in facts.ranks if rank not in bad)][:8]
    references = [view.evidence.ref(r.file, text="; ".join(r.data.config.stdout)) for r in shown]
    return _conclude(
        "scheduler.slurm.clocks",
        f"the clock of every node and of the head agrees with the controller's to {CLOCK_S:g} s",
        problems,
        unknown,
        f"at most {max(offsets, default=0.0):.1f} s beyond what one second and the answer's own time explain",
        expected=f"≤ {CLOCK_S:g} s",
        evidence=(*references, line_of(view, HEAD, "Configuration data as of")),
        derivation="'Configuration data as of' of `scontrol show config`: the controller's clock in whole seconds, "
        "between the command's start and end by the host's own",
        next_action="start time synchronisation (chrony, timesyncd) on the hosts that differ; munge refuses from 300 s on",
    )


def _offset_s(answer: Answer) -> float | None:
    """Seconds that a host is ahead of the controller, as little as the answer allows; None: not known."""
    told = controllers_clock(answer)
    if told is None or not 0 <= answer.ended_at - answer.started_at <= ANSWER_S:
        return None
    least, most = answer.started_at - (told + 1), answer.ended_at - told
    return least if least > 0 else min(most, 0.0)
