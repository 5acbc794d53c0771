"""The rails that a cluster file declares beside those that a node has: also where all nodes lack the same one. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from surefoot.hardware.interfaces import ChosenRail, NodeChoice
from surefoot.model.cluster import Rail


def shortfalls(choice: NodeChoice, declared: Sequence[Rail]) -> list[str]:
    """What each declared rail lacks on that node, in words; empty where all are as declared.

    A rail is found by its device, else by its subnet, else it is any that none of the others is.
    """
    left = list(choice.rails)
    wrong = []
    # Those that say which they are choose first.
    for rail in sorted(declared, key=lambda rail: (not rail.hca, not rail.subnet)):
        found = next((own for own in left if _is(own, rail)), None)
        if found is None:
            wrong.append(f"{rail.name}: {_why_none(choice, rail)}")
            continue
        left.remove(found)
        wrong += [f"{rail.name}: {text}" for text in _differences(found, rail)]
    return wrong


def _is(own: ChosenRail, rail: Rail) -> bool:
    if rail.hca:
        return rail.hca in (own.hca, own.hca.split(":")[0])
    return not rail.subnet or _inside(own, rail.subnet)


def _inside(own: ChosenRail, subnet: str) -> bool:
    try:
        network = ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return False  # what the file says is no subnet: no address is in it, and it is shown
    return own.address is not None and ipaddress.ip_address(own.address) in network


def _why_none(choice: NodeChoice, rail: Rail) -> str:
    """Why a declared rail is none there."""
    port = next((left for left in choice.ports_left_out if rail.hca in (left.name, left.name.split(":")[0])), None)
    if port is not None:
        return f"{port.name} is there and not in use: {port.why}"
    what = rail.hca or (f"a port in {rail.subnet}" if rail.subnet else "another port")
    has = ", ".join(own.hca for own in choice.rails) or "none"
    return f"{what} is not there; rails of this node: {has}"


def _differences(own: ChosenRail, rail: Rail) -> list[str]:
    found = []
    if own.rate_gbit_s < rail.rate_gbit_s:
        found.append(f"{own.hca} runs at {own.rate_gbit_s:g} of {rail.rate_gbit_s:g} Gbit/s")
    # An InfiniBand port has no address of its own, and its subnet says nothing here.
    if rail.subnet and own.address is not None and not _inside(own, rail.subnet):
        found.append(f"{own.hca} has {own.address}, which is not in {rail.subnet}")
    return found
