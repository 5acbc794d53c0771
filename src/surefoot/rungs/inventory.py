"""Inventory: Ansible's inventory, the cluster file and Slurm tell of the same hosts, and each answers as itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot.errors import EvidenceError
from surefoot.evidence import parse_record
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Inventory as InventorySpec
from surefoot.model.run import CommandStep, Judgement
from surefoot.provision.events import Playbook
from surefoot.provision.listing import Listed
from surefoot.rungs.ansible_view import (
    Document,
    Named,
    declared,
    document,
    event_line,
    hosts_said,
    listed,
    playbook,
    program_step,
    refuse_other_command,
    short,
    site_of,
    trouble,
)
from surefoot.rungs.base import Asked, PlanContext, Rung, View
from surefoot.rungs.inventory_compare import ASPECTS, VARIABLES, Row, Three, compared
from surefoot.rungs.judging import decide, shorten, summed_up, unproved
from surefoot.rungs.slurm_view import SHOW_CONFIG, SHOW_NODES, Answer, Node, config_of, line_of, nodes_of_answer

LOOK = "raw/look.stdout"
NODES = "raw/nodes.stdout"
CONFIG = "raw/config.stdout"
_SLURM: dict[str, list[str]] = {"nodes": SHOW_NODES, "config": SHOW_CONFIG}
_LIMIT_S = 60.0
_MOST = 8


class Look(Document):
    """What ``surefoot.provision.look`` printed."""

    inventory: Answer
    hosts: Answer


@dataclass(frozen=True)
class Facts:
    """The three accounts, and the playbook that asked every host."""

    look: Look
    run: Playbook
    three: Three


class Inventory(Rung[InventorySpec, Facts]):
    """One look at each of the three."""

    name: ClassVar[str] = "inventory"
    title: ClassVar[str] = "Inventory"
    proves: ClassVar[str] = (
        "Ansible's inventory, the cluster file and Slurm tell of the same hosts, and each host answers as itself."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "ansible", "package")

    def plan(self, context: PlanContext[InventorySpec]) -> Asked:
        steps = [program_step(context, "look", "surefoot.provision.look", variables=list(VARIABLES))]
        if context.cluster.scheduler.kind == "slurm":
            steps += [CommandStep(name=name, argv=tuple(argv), timeout_s=_LIMIT_S) for name, argv in _SLURM.items()]
        return Asked(steps=tuple(steps), expect={"node_group": site_of(context).node_group})

    def read(self, view: View) -> Facts:
        look = document(Look, view, "look")
        refuse_other_command(look.hosts, view, LOOK, "--extra-vars")
        found = listed(look.inventory, view, LOOK)
        run = playbook(look.hosts, LOOK)
        said_of = declared(run, LOOK)
        if lost := sorted(host for host in set(found.hosts) - said_of.keys() if trouble(run, host) is None):
            raise EvidenceError(f"what the inventory declares of {', '.join(lost[:5])} is missing", file=LOOK)
        nodes = _nodes(view) if view.inputs.cluster.scheduler.kind == "slurm" else None
        three = Three(
            listed=found,
            declared=said_of,
            cluster=view.inputs.cluster,
            nodes=nodes,
            config=config_of(_answer(view, "config"), file=CONFIG) if nodes is not None else None,
            said=hosts_said(run, LOOK),
        )
        return Facts(look, run, three)

    def judge(self, facts: Facts, view: View) -> Judgement:
        rows = compared(facts.three)
        checks = [_listed(facts, view), _answers(facts, view), _names(facts, view), *_compared(facts, rows, view)]
        hosts = len(facts.three.listed.hosts)
        sources = "inventory, cluster file and Slurm" if facts.three.nodes is not None else "inventory and cluster file"
        wrong = sum(bool(row.problem) for row in rows)
        anyway = f"{hosts} hosts, {wrong} difference{'' if wrong == 1 else 's'}"
        summary = summed_up(checks, f"{hosts} hosts answer; {sources} agree", anyway=anyway)
        return Judgement(checks=tuple(checks), summary=summary, details={"rows": [row.cells for row in rows]})


def _nodes(view: View) -> list[Node]:
    """Slurm's nodes, each once. Raises EvidenceError."""
    nodes = nodes_of_answer(_answer(view, "nodes"), file=NODES)
    twice = sorted(name for name, count in Counter(node.name for node in nodes).items() if count > 1)
    if twice:
        raise EvidenceError(f"scontrol show node: {', '.join(twice[:5])} twice", file=NODES)
    return nodes


def _answer(view: View, name: str) -> Answer:
    """A command's evidence in the form that Slurm's parsers take. Raises EvidenceError."""
    ending = view.evidence.json(f"raw/{name}.exit.json")
    if not isinstance(ending, dict):
        raise EvidenceError("does not say how the command ended", file=f"raw/{name}.exit.json")
    timed_out = ending.get("timed_out") is True
    text = view.evidence.blob(f"raw/{name}.stdout").text()
    if text and not text.endswith("\n"):
        raise EvidenceError("cut off: the last line has no end", file=f"raw/{name}.stdout", text=text[-120:])
    return parse_record(
        Answer,
        {
            "argv": tuple(_SLURM[name]),
            "exit_code": ending.get("exit_code"),
            "stdout": tuple(text.splitlines()),
            "stderr": tuple(view.evidence.blob(f"raw/{name}.stderr").text().splitlines()),
            "error": f"did not end within {_LIMIT_S:g} s" if timed_out else "",
            "started_at": ending.get("started_at"),
            "ended_at": ending.get("ended_at"),
        },
        file=f"raw/{name}.exit.json",
    )


def _listed(facts: Facts, view: View) -> Check:
    found, group = facts.three.listed, view.expect["node_group"]
    nodes = found.within(group)
    asked = {host for play in facts.run.plays for host in play.hosts}
    problems = [] if nodes else [f"group {group} holds no host"]
    if asked != set(found.hosts):
        other = sorted(asked ^ set(found.hosts))
        raise EvidenceError(f"the hosts asked are not those of the inventory: {', '.join(other[:6])}", file=LOOK)
    return decide(
        "inventory.listed",
        "the inventory is whole, and has hosts that compute",
        not problems,
        expected=f"at least one host in {group}",
        actual=shorten(problems) or f"{len(found.hosts)} hosts, {len(nodes)} of them in {group}",
        evidence=(_group_line(view, found, group),),
        derivation="ansible-inventory --list over all inventories of the cluster file",
        next_action=f"put the nodes into the group {group}, or name the group that holds them: ansible.node_group",
    )


def _group_line(view: View, found: Listed, group: str) -> Evidence:
    return line_of(view, LOOK, f' "{group}": {{' if group in found.own else "_meta")


def _answers(facts: Facts, view: View) -> Check:
    pinged = {t.result.host for t in facts.run.results if t.result.task == "Ping" and t.result.status == "ok"}
    bad: list[Named] = []
    references: list[Evidence] = []
    for host in facts.three.listed.hosts:
        why = trouble(facts.run, host)
        if why is not None:
            bad.append(Named(host, f"{why.result.status}: {_one_line(why.result.message) or 'it did not say why'}"))
            references.append(event_line(view, LOOK, facts.look.hosts, why))
        elif host not in pinged or host not in facts.three.said:
            bad.append(Named(host, "no answer is recorded"))
    good = [
        event_line(view, LOOK, facts.look.hosts, t)
        for t in facts.run.results
        if t.result.task == "Ping" and t.result.status == "ok"
    ]
    total = len(facts.three.listed.hosts)
    return decide(
        "inventory.answers",
        "every host of the inventory answers Ansible",
        not bad,
        expected=f"{total} hosts",
        actual=shorten([str(one) for one in bad], _MOST) or f"{total} hosts answer",
        evidence=tuple([*references, *good][:_MOST]) or (view.evidence.ref(LOOK),),
        derivation="ansible.builtin.ping, then the host's own Python is asked who it is",
        next_action="try `ssh HOST true` as the user that Ansible takes (ansible_user, ansible_host); is the host up, "
        "does its key stand in known_hosts, is there a /usr/bin/python3?",
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:240]


def _names(facts: Facts, view: View) -> Check:
    said = facts.three.said
    bad = [
        Named(host, f"the host that answers calls itself {answer.host}")
        for host, answer in said.items()
        if short(answer.host) != short(host)
    ]
    shown = [*(one.host for one in bad), *said][:_MOST]
    lines = facts.run.messages("Answered")
    evidence = tuple(event_line(view, LOOK, facts.look.hosts, lines[host]) for host in dict.fromkeys(shown))
    identifier, claim = "inventory.names", "the host that answers bears the name that the inventory gives it"
    action = "correct ansible_host in the inventory, or the host's name (`hostnamectl`): Slurm, logs and this report go by it"
    if bad or said:
        actual = shorten([str(one) for one in bad], _MOST) or f"{len(said)} of {len(said)} that answered"
        expected = "the inventory's name, with or without a domain"
        return decide(
            identifier, claim, not bad, expected=expected, actual=actual, evidence=evidence, next_action=action
        )
    return unproved(
        identifier, claim, actual="no host answered", evidence=(view.evidence.ref(LOOK),), next_action=action
    )


_ACTIONS = {
    "hosts": "a new node is one line in the inventory, one name in `hosts:` of the cluster file, and site.yml run again",
    "addresses": "correct common_address or ansible_host in the inventory, then run site.yml again: it writes slurm.conf",
    "partitions": "correct slurm_partitions in the inventory and run site.yml again, or the cluster file's partition",
    "cluster_name": "correct slurm_cluster_name in the inventory; renaming a cluster that runs loses its accounting",
}
_ACTION = "correct the one that is wrong: the inventory (then run site.yml again), or node_groups of the cluster file"


def _compared(facts: Facts, rows: Sequence[Row], view: View) -> list[Check]:
    checks = []
    for aspect, claim in ASPECTS.items():
        mine = [row for row in rows if row.aspect == aspect]
        if not mine:
            continue  # none of the three says anything that another could contradict
        bad = [row for row in mine if row.problem]
        checks.append(
            decide(
                f"inventory.{aspect}",
                claim,
                not bad,
                expected="the same wherever it is said",
                actual=shorten([str(row) for row in bad], _MOST) or f"{len(mine)} compared, as declared",
                evidence=tuple(_lines(facts, bad or mine, aspect, view)),
                derivation=_DERIVATION.get(aspect, ""),
                next_action=_ACTIONS.get(aspect, _ACTION),
            )
        )
    return checks


_DERIVATION = {
    "hosts": "hosts of the inventory's node group; hosts and count of node_groups; NodeName of `scontrol show node`",
    "addresses": "common_address, ansible_host or name in the inventory; NodeAddr in Slurm; the host's own addresses",
    "gpus": "gres_gpus_per_node; gpus_per_node (0: its jobs leave GPUs alone; not compared); Gres",
    "gpu_type": "gres_gpu_type; Gres. gpu_model of the cluster file is the driver's name, and only shown",
    "cpus": "slurm_node_cpus; min_cpus; CPUTot",
    "memory": "slurm_node_memory_mib; min_memory_gib; RealMemory",
    "partitions": "slurm_partitions where the inventory sets it; scheduler.partition; Partitions",
    "cluster_name": "slurm_cluster_name; ClusterName of `scontrol show config`",
}


def _lines(facts: Facts, rows: Sequence[Row], aspect: str, view: View) -> list[Evidence]:
    """Where the rows stand: Slurm's line of the node, and the inventory's."""
    found: list[Evidence] = [_group_line(view, facts.three.listed, view.expect["node_group"])]
    if facts.three.nodes is None:
        return found
    if aspect == "cluster_name":
        return [*found, line_of(view, CONFIG, "ClusterName ")]
    known = {node.name for node in facts.three.nodes}
    named = [row.host for row in rows if row.host in known][: _MOST - 1]
    found += [line_of(view, NODES, f"NodeName={host} ") for host in named]
    return found if named else [*found, view.evidence.ref(NODES)]


RUNG = Inventory()
