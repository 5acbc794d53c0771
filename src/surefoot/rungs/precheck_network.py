"""Pre-check: nodes reach each other, and it is known over which interface and rails ranks should."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.interfaces import NetworkChoice, choose
from surefoot.hardware.network_facts import NodeNetwork
from surefoot.hardware.network_view import Finding, Trouble
from surefoot.hostlist import folded
from surefoot.model.check import Check, Evidence
from surefoot.rungs.judging import decide, shorten, unproved

Reference = Callable[[str, str], Evidence]
"""(node, text) → a reference to that node's file."""


def networks(facts: Mapping[str, NodeFacts]) -> tuple[NodeNetwork, ...]:
    """What nodes (by the names that they call each other by) tell of their networks; without those that tell nothing."""
    return tuple(
        NodeNetwork(
            node=node,
            interfaces=told.interfaces.value,
            routes=told.routes.value or (),
            hcas=told.hcas,
            reach=told.reach.value,
            environment=told.variables.value or {},
        )
        for node, told in facts.items()
        if told.interfaces.value is not None
    )


def chosen(facts: Mapping[str, NodeFacts]) -> NetworkChoice:
    """What all nodes are to use."""
    return choose(networks(facts), tuple(facts))


def network_checks(facts: Mapping[str, NodeFacts], choice: NetworkChoice, reference: Reference) -> list[Check]:
    """One check for each kind of trouble that was found, and one that ranks can meet. None for a node alone."""
    if len(facts) < 2:
        return []
    silent = {node: told.reach.unknown or "" for node, told in facts.items() if told.reach.value is None}
    claim = "all nodes reach each other, and it is known over which interface ranks are to meet"
    refs = tuple(reference(node, node) for node in list(silent or facts)[:16])
    if silent:
        return [
            unproved(
                "precheck.network", claim, evidence=refs,
                actual=shorten([f"{node}: {why}" for node, why in silent.items()]),
                next_action="find out on these nodes why it could not be tried",
            )
        ]  # fmt: skip
    without = [node.node for node in choice.nodes if node.interface is None]
    kinds: dict[Trouble, list[Finding]] = {}
    for finding in choice.grave:
        kinds.setdefault(finding.trouble, []).append(finding)
    checks = [_trouble(trouble, found, reference, facts) for trouble, found in kinds.items()]
    shown = sorted({f"{node.interface} on {node.node}" for node in choice.nodes if node.interface})
    checks.append(
        decide(
            "precheck.network",
            claim,
            not without,
            expected="an interface of each node",
            actual=f"none for {folded(without)}" if without else shorten(shown, 8),
            evidence=refs,
            derivation=next((node.why for node in choice.nodes), ""),
            next_action=next(
                (f.next_action for f in choice.grave), "see the findings about the network beside this check"
            ),
        )
    )
    return checks


def _trouble(trouble: Trouble, found: Sequence[Finding], reference: Reference, facts: Mapping[str, NodeFacts]) -> Check:
    nodes = [node for node in dict.fromkeys(n for finding in found for n in finding.nodes) if node in facts]
    return decide(
        f"precheck.network.{trouble}",
        _CLAIMS[trouble],
        False,
        actual=shorten([finding.text for finding in found]),
        evidence=tuple(reference(node, node) for node in (nodes or list(facts))[:16]),
        derivation="interfaces, routes and RDMA ports of each node, and who reached whom over which",
        next_action=found[0].next_action,
        nodes=nodes if trouble in _OWN else (),
    )


_OWN = frozenset(
    {
        Trouble.SPEED, Trouble.LINK_DOWN, Trouble.OWN_NAME,
        Trouble.RAIL_MISSING, Trouble.RAIL_DOWN, Trouble.RAIL_SLOWER, Trouble.RAIL_ADDRESS,
    }
)  # fmt: skip
"""Findings whose nodes are those at fault; others name both ends of what fails, or everyone that differs."""

_CLAIMS: dict[Trouble, str] = {
    Trouble.ABSENT: "every node came to meet the others",
    Trouble.NO_COMMON_NETWORK: "there is a network that all nodes are in",
    Trouble.UNREACHABLE: "every node reaches every other",
    Trouble.ONE_WAY: "what one node reaches reaches it too",
    Trouble.CUT_OFF: "large packets arrive as small ones do",
    Trouble.ADDRESS_TWICE: "no two hosts have one address",
    Trouble.SUBNET_PARTIAL: "a subnet that training could use has all nodes in it",
    Trouble.SUBNET_TWICE: "no node has two interfaces in one subnet",
    Trouble.MTU: "interfaces of one network have one MTU",
    Trouble.SPEED: "interfaces of one network are equally fast",
    Trouble.LINK_DOWN: "a link that others have up is up everywhere",
    Trouble.OWN_NAME: "a node's own name leads to no loopback address",
    Trouble.NAME: "a node's name leads to it from everywhere",
    Trouble.PIN_MISSING: "an interface or HCA that is pinned by name exists on every node",
    Trouble.PIN_DOWN: "an interface or HCA that is pinned by name is up",
    Trouble.PIN_UNFIT: "an interface that is pinned by name is fit for traffic between nodes",
    Trouble.PIN_UNREACHABLE: "an interface that is pinned by name reaches the other nodes",
    Trouble.PIN_AMBIGUOUS: "a pinned name means one interface or HCA",
    Trouble.PIN_LEAVES_OUT: "pins leave out no rail",
    Trouble.PIN_GID: "a pinned GID index is a routable RoCE v2 address",
    Trouble.RAIL_MISSING: "a rail that other nodes have is on every node",
    Trouble.RAIL_DOWN: "every rail is up",
    Trouble.RAIL_SLOWER: "rails of one name are equally fast on all nodes",
    Trouble.RAIL_ADDRESS: "every RoCE rail has an address",
    Trouble.RAIL_UNREACHED: "every rail reaches the same rail of other nodes",
    Trouble.RAILS_UNKNOWN: "the RDMA devices of every node can be read",
    Trouble.GID_DIFFERS: "the GID index is the same on all rails of all nodes",
}


def rows(choice: NetworkChoice) -> dict[str, Any]:
    """For the report: what each node uses and why, and all findings, grave or not."""
    return {
        "nodes": [node.canonical() for node in choice.nodes],
        "findings": [finding.canonical() for finding in choice.findings],
    }
