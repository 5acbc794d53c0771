"""Pre-check: every node has the rails that the cluster file declares, in use and at their rate."""

from __future__ import annotations

from surefoot.hardware.declared_rails import shortfalls
from surefoot.hardware.fact import Known
from surefoot.hardware.interfaces import NodeChoice
from surefoot.hardware.network_facts import Hca
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import NodeGroup
from surefoot.rungs.judging import decide, shorten, unproved


def rails_declared(
    rank: int, group: NodeGroup, hcas: Known[tuple[Hca, ...]], choice: NodeChoice | None, evidence: Evidence
) -> list[Check]:
    """One check for a node of a group that declares rails; none for others.

    Nodes that lack the same rail agree with each other, and a bandwidth test succeeds on one rail of two.
    """
    if not group.rails:
        return []
    identifier = f"precheck.node{rank}.rails"
    claim = "the node has every rail that the cluster file declares, in use and at its rate"
    expected = ", ".join(f"{rail.name} {rail.hca or rail.subnet} {rail.rate_gbit_s:g} Gbit/s" for rail in group.rails)
    source = f"node_groups.{group.name}.rails of the cluster file"
    if choice is None or hcas.value is None or any(hca.ports.value is None for hca in hcas.value):
        unread = next((hca.ports.unknown for hca in hcas.value or () if hca.ports.unknown), None)
        return [
            unproved(
                identifier, claim, expected=expected, evidence=(evidence,), derivation=source,
                actual=f"unknown: {hcas.unknown or unread or 'the interfaces of this node are not known'}",
                next_action="let jobs see /sys/class/infiniband and the network there",
            )
        ]  # fmt: skip
    wrong = shortfalls(choice, group.rails)
    return [
        decide(
            identifier,
            claim,
            not wrong,
            expected=expected,
            actual=shorten(wrong) or ", ".join(f"{rail.hca} {rail.rate_gbit_s:g} Gbit/s" for rail in choice.rails),
            evidence=(evidence,),
            derivation=source,
            next_action="look at cable, switch port and address of that rail; where the node is right, correct the file",
        )
    ]
