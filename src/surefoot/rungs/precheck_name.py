"""Pre-check: a node's own name leads to where other nodes can reach it."""

from __future__ import annotations

from surefoot.hardware.facts import Addresses
from surefoot.model.check import Check, Evidence
from surefoot.rungs.judging import decide, unproved


def own_name(rank: int, host: str, found: Addresses, evidence: Evidence) -> Check:
    """Debian's installer writes ``127.0.1.1 HOSTNAME`` into /etc/hosts. A rank that gives its peers its
    own name's address (gloo does) then sends them to themselves: they hang, or meet a stranger.
    """
    identifier = f"precheck.node{rank}.own_name"
    claim = f"{host}'s own name leads, on {host}, to an address that other nodes can reach"
    expected = "no loopback address"
    if found.value is None:
        return unproved(
            identifier, claim, expected=expected, actual=f"unknown: {found.unknown}", evidence=(evidence,),
            next_action=f"give {host} an entry for its own name in DNS or /etc/hosts",
        )  # fmt: skip
    bad = ", ".join(found.loopback)
    return decide(
        identifier,
        claim,
        not bad,
        expected=expected,
        actual=f"{host} → {bad} on {host}" if bad else ", ".join(str(address) for address in found.value),
        evidence=(evidence,),
        derivation="peers are told this address and would reach themselves under it",
        next_action=f"in /etc/hosts of {host}: the address of its network in place of {bad or '127.0.1.1'}",
    )
