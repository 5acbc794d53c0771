"""The nodes that a cluster file declares, against what Slurm says of them: checks that two rungs share."""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.judging import decide, shorten
from surefoot.rungs.slurm_view import Declared, Node, declared_nodes, field_line, line_of


def fit_check(
    identifier: str, nodes: list[Node], view: View, file: str, *, silent: Mapping[str, str] | None = None
) -> Check:
    """Every declared node takes jobs. `silent`: node → what is wrong with its slurmd, in words."""
    silent = silent or {}
    groups = declared_nodes(view.inputs.cluster, nodes)
    problems = [problem for group in groups for problem in _problems(group)]
    references = [node for group in groups for node in (group.unfit or group.nodes)[:4]]
    declared = sum(group.group.count for group in groups)
    fit = len({node.name for group in groups for node in group.nodes if not node.trouble} - silent.keys())
    spare = [node.name for group in groups if not group.too_few for node in group.unfit]
    words = f"{fit} nodes take jobs"
    return decide(
        identifier,
        "every node that the cluster file declares takes jobs",
        not problems and not silent and fit >= 1,
        expected=f"{declared} declared nodes, each known to Slurm and fit",
        actual=shorten([*problems, *(f"{name}: {words}" for name, words in silent.items())], 6)
        or (words + (f"; not so {', '.join(spare[:6])}" if spare else "")),
        evidence=(
            *(field_line(view, file, "node", name, text) for name, text in list(silent.items())[:4]),
            *(line_of(view, file, f"NodeName={node.name} ") for node in references),
        )
        or (view.evidence.ref(file),),
        derivation="node_groups of the cluster file, state and reason of `scontrol show node`",
        next_action="; ".join(dict.fromkeys([*_actions(groups), *([_KNOCK] if silent else [])])),
    )


_KNOCK = (
    "log in there: is the node up, is its network, and does `systemctl status slurmd` say running? One that listens and "
    "accepts nothing has another key or another time: compare `munge -n | ssh NODE unmunge`, and `date`"
)
DEAF = "accepts nothing that is said to it: another munge key, or a clock that is off by minutes"


def _problems(group: Declared) -> list[str]:
    if not group.too_few:
        return []
    problems = [f"{host} is not known to Slurm" for host in group.absent]
    problems += [f"{node.name} is {node.trouble}" for node in group.unfit]
    if not group.group.hosts:
        fit = len(group.nodes) - len(group.unfit)
        problems.insert(0, f"group {group.group.name!r} declares {group.group.count} nodes, Slurm has {fit} fit ones")
    return problems


def _actions(groups: list[Declared]) -> list[str]:
    actions = []
    for group in groups:
        if not group.too_few:
            continue
        states = {part for node in group.unfit for part in node.bad}
        if group.absent or not group.nodes:
            actions.append("compare node_groups[].hosts with `sinfo -N`")
        if states & {"INVALID_REG", "INVAL"}:
            actions.append("run `slurmd -C` and `slurmd -G` on the node, mend what is missing, restart slurmd")
        elif "NOT_RESPONDING" in states:
            actions.append(_KNOCK)
        elif states:
            actions.append("mend what the reason says, then `scontrol update nodename=NODE state=resume`")
    return actions


def silent_nodes(nodes: list[Node], trouble: dict[str, str], view: View) -> dict[str, str]:
    """Declared nodes whose slurmd does not answer this host, while Slurm calls them fit → what is wrong, in words.

    `trouble`: node → what is wrong. Where that is so of all of them, or of all nodes of a group, it is
    this host that is kept from them (a firewall, another network): Slurm's own word stands.
    """
    groups = [
        [node.name for node in group.nodes if not node.trouble] for group in declared_nodes(view.inputs.cluster, nodes)
    ]
    if all(name in trouble for names in groups for name in names):
        return {}
    kept = {name for names in groups if len(names) > 1 and all(n in trouble for n in names) for name in names}
    silent = sorted({name for names in groups for name in names if name in trouble} - kept)
    return {name: f"{trouble[name]}, although Slurm still calls it fit" for name in silent}


def deaf_nodes(nodes: list[Node], listening: set[str], view: View) -> dict[str, str]:
    """Declared nodes that Slurm does not hear although their slurmd listens → what is wrong, in words."""
    groups = declared_nodes(view.inputs.cluster, nodes)
    unheard = [node.name for group in groups for node in group.unfit if "NOT_RESPONDING" in node.bad]
    return {name: f"slurmd listens, and {DEAF}" for name in unheard if name in listening}


def gpu_check(identifier: str, nodes: list[Node], view: View, file: str) -> Check:
    """Slurm has, on every declared node, as many GPUs as the cluster file says."""
    problems, more, references = [], [], []
    for group in declared_nodes(view.inputs.cluster, nodes):
        wanted = group.group.gpus_per_node
        assert isinstance(wanted, int), "resolved when the run began"
        for node in group.nodes:
            if node.gpus < wanted:
                problems.append(f"{node.name} has {node.gpus} of {wanted}")
                references.append(node)
            elif node.gpus > wanted:
                more.append(f"{node.name} has {node.gpus}")
        references += group.nodes[:2]
    counted = {group.name: group.gpus_per_node for group in view.inputs.cluster.node_groups}
    unused = f"as declared; Slurm has more ({shorten(more)}), which this cluster file leaves alone"
    return decide(
        identifier,
        "every node has in Slurm the GPUs that the cluster file declares",
        not problems,
        expected=", ".join(f"{name}: {count} a node" for name, count in counted.items()),
        actual=shorten(problems, 6) or (unused if more else "as declared"),
        evidence=tuple(line_of(view, file, f"NodeName={node.name} ") for node in references[:6])
        or (view.evidence.ref(file),),
        derivation="gpus_per_node of the cluster file, Gres of `scontrol show node`",
        next_action="compare Gres= of the node in slurm.conf, gres.conf, and what `slurmd -G` finds there",
    )
