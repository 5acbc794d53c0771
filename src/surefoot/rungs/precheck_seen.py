"""What a judged pre-check knows of each node, for whoever writes a cluster file from it. Pure."""

from __future__ import annotations

from surefoot.hardware.learnt import NodeSeen
from surefoot.model.run import Judgement
from surefoot.rungs.base import View
from surefoot.rungs.precheck import RUNG, by_name
from surefoot.rungs.precheck_network import chosen


def seen(view: View, judgement: Judgement) -> tuple[NodeSeen, ...]:
    """Every node that answered. `judgement`: that of the same evidence; empty where it has none. Raises EvidenceError."""
    groups = [row["group"] for row in judgement.details.get("nodes", ())]
    if not groups:
        return ()  # nothing was judged: evidence that is damaged, say, tells nothing
    facts = by_name(RUNG.read(view))
    choices = {told.node: told for told in chosen(facts).nodes}
    return tuple(
        NodeSeen(
            name=name,
            group=group,
            facts=told,
            rails=choices[name].rails if name in choices and told.hcas.value is not None else None,
        )
        for (name, told), group in zip(facts.items(), groups, strict=True)
    )
