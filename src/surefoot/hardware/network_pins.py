"""What a person has pinned (``NCCL_SOCKET_IFNAME=enP7s7``), held against what each node really has. Pure.

How the programs read them: NCCL takes a list of prefixes, of exact names after ``=``, and of those to
leave out after ``^``; an HCA may have ``:PORT`` behind it (NCCL's manual, Environment Variables). Gloo
takes exact names (torch/csrc/distributed/c10d: GLOO_SOCKET_IFNAME, a list). Open MPI takes exact names
and subnets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot.hardware.interface_kinds import FIRST_CLASS, INSIDE, Kind, told
from surefoot.hardware.network_facts import Hca, NodeNetwork, Port
from surefoot.hardware.network_view import Finding, Trouble, View, some
from surefoot.hardware.rails import Rail

BY_PREFIX = ("NCCL_SOCKET_IFNAME",)
BY_NAME = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
HCAS = "NCCL_IB_HCA"
GID_INDEX = "NCCL_IB_GID_INDEX"


@dataclass(frozen=True)
class Pattern:
    """A list as NCCL reads it."""

    entries: tuple[str, ...]
    exact: bool
    leaves_out: bool

    @classmethod
    def of(cls, text: str) -> Pattern:
        """``^docker,veth``, ``=eth0,eth1``, ``mlx5_0:1``."""
        rest = text.strip()
        leaves_out, rest = rest.startswith("^"), rest.removeprefix("^")
        exact, rest = rest.startswith("="), rest.removeprefix("=")
        entries = tuple(part.strip() for part in rest.split(",") if part.strip())
        return cls(entries=entries, exact=exact, leaves_out=leaves_out)

    def fits(self, entry: str, name: str) -> bool:
        """Whether a name is meant by an entry."""
        return name == entry if self.exact else name.startswith(entry)

    def fits_port(self, entry: str, hca: str, port: int) -> bool:
        """Whether a port of an HCA is meant by an entry."""
        name, colon, number = entry.partition(":")
        return self.fits(name, hca) and (not colon or number == str(port))


def pins(view: View, rails: Mapping[str, Sequence[Rail]]) -> list[Finding]:
    """Everything that is wrong with what is pinned, node by node."""
    found: list[Finding] = []
    for node in view.nodes.values():
        for variable in BY_PREFIX:
            if node.environment.get(variable):
                found += _socket(view, node, variable, Pattern.of(node.environment[variable]))
        for variable in BY_NAME:
            if node.environment.get(variable):
                found += _socket(view, node, variable, _names(node, node.environment[variable]))
        if node.environment.get(HCAS) and node.hcas.value is not None:
            found += _hcas(node, Pattern.of(node.environment[HCAS]), rails.get(node.node, ()))
        if node.environment.get(GID_INDEX):
            found += _gid_index(node, node.environment[GID_INDEX], rails.get(node.node, ()))
    return found


def _names(node: NodeNetwork, text: str) -> Pattern:
    """Exact names; a subnet (Open MPI takes them) is the interface that has an address in it."""
    entries = []
    for part in Pattern.of(f"={text}").entries:
        try:
            network = ipaddress.ip_network(part, strict=False) if "/" in part else None
        except ValueError:
            network = None
        inside = [i.name for i in node.interfaces if network and any(a.address in network for a in i.addresses)]
        entries.append(inside[0] if inside else part)
    return Pattern(entries=tuple(entries), exact=True, leaves_out=False)


def _socket(view: View, node: NodeNetwork, variable: str, pattern: Pattern) -> Iterator[Finding]:
    """Of one list of interfaces on one node."""
    set_to = f"{variable}={node.environment[variable]}"
    names = [interface.name for interface in node.interfaces]
    if pattern.leaves_out:
        left = [n for n in view.leading(node.node) if not any(pattern.fits(e, n) for e in pattern.entries)]
        if not any(not view.unfit[node.node][name] for name in left):
            text = f"{node.node}: {set_to} leaves out every interface that is fit to meet over"
            yield _finding(Trouble.PIN_UNFIT, node, text, variable)
        return
    for entry in pattern.entries:
        matched = [name for name in names if pattern.fits(entry, name)]
        if not matched:
            yield _missing(view, node, set_to, entry, variable)
            continue
        if len(matched) > 1:
            text = (
                f"{node.node}: {set_to} is a prefix, and {', '.join(matched)} begin with {entry}; NCCL uses all of them"
            )
            yield _finding(Trouble.PIN_AMBIGUOUS, node, text, variable, grave=False)
        judged = [_judged(view, node, set_to, name, variable) for name in matched]
        # As long as one of them is sound, the others are what the prefix takes along.
        if all(judged):
            yield next(found for found in judged if found is not None)


def _missing(view: View, node: NodeNetwork, set_to: str, entry: str, variable: str) -> Finding:
    fit = [name for name in view.leading(node.node) if not view.unfit[node.node][name]]
    has = ", ".join(fit) or "none that is fit"
    text = f"{node.node}: {set_to}, and it has no interface {entry}; it has {has}"
    return _finding(Trouble.PIN_MISSING, node, text, variable)


def _judged(view: View, node: NodeNetwork, set_to: str, name: str, variable: str) -> Finding | None:
    """What is wrong with an interface that is pinned; None where it is sound."""
    interface, kind = node.interface(name), view.kinds[node.node][name]
    assert interface is not None, name
    if not (interface.up and interface.carrier):
        return _finding(Trouble.PIN_DOWN, node, f"{node.node}: {set_to}, and {name} has no link", variable)
    reached = {c.node for c in node.reach.calls if c.interface == name and view.right(c)} if node.reach else set()
    others = {other for caller, other in view.asked() if caller == node.node}
    missing = sorted(others - reached)
    if kind not in FIRST_CLASS | INSIDE and (missing or kind is not Kind.WIRELESS):
        text = f"{node.node}: {set_to}, and {name} is {told(interface, kind)}"
        return _finding(Trouble.PIN_UNFIT, node, text, variable)
    if missing:
        calls = [c for c in (node.reach.calls if node.reach else ()) if c.interface == name and c.node in missing]
        what = (
            some((f"{c.node} at {c.address}: {view.outcome(node.node, c)}" for c in calls), 2) or "no way leads there"
        )
        text = f"{node.node}: {set_to}, and over {name} it does not reach {', '.join(missing[:4])} ({what})"
        return _finding(Trouble.PIN_UNREACHABLE, node, text, variable)
    return None


def _hcas(node: NodeNetwork, pattern: Pattern, rails: Sequence[Rail]) -> Iterator[Finding]:
    """Of the RDMA devices that are pinned on one node. NCCL says nothing of one that it does not find."""
    set_to = f"{HCAS}={node.environment[HCAS]}"
    ports = [(hca, port) for hca in node.hcas.value or () for port in hca.ports.value or ()]
    if not pattern.leaves_out:
        for entry in pattern.entries:
            yield from _hca_entry(node, set_to, entry, pattern, ports)

    def taken(rail: Rail) -> bool:
        named = any(pattern.fits_port(entry, rail.hca.name, rail.port.number) for entry in pattern.entries)
        return named != pattern.leaves_out

    without = [rail.name for rail in rails if not taken(rail)]
    if without:
        rate = sum(rail.rate for rail in rails if rail.name not in without)
        text = (
            f"{node.node}: {set_to} leaves out {', '.join(without)}, a rail on all nodes: {rate:g} of "
            f"{sum(rail.rate for rail in rails):g} Gbit/s stay"
        )
        yield _finding(Trouble.PIN_LEAVES_OUT, node, text, HCAS)


def _hca_entry(
    node: NodeNetwork, set_to: str, entry: str, pattern: Pattern, ports: Sequence[tuple[Hca, Port]]
) -> Iterator[Finding]:
    matched = [(hca, port) for hca, port in ports if pattern.fits_port(entry, hca.name, port.number)]
    if not matched:
        has = ", ".join(hca.name for hca in node.hcas.value or ()) or "none"
        text = f"{node.node}: {set_to}, and it has no RDMA device {entry}; it has {has}"
        yield _finding(Trouble.PIN_MISSING, node, text, HCAS)
    elif not any(port.active for _, port in matched):
        states = ", ".join(f"{hca.name} is {port.state.shown}" for hca, port in matched)
        yield _finding(Trouble.PIN_DOWN, node, f"{node.node}: {set_to}, and {states}", HCAS)
    if len({hca.name for hca, _ in matched}) > 1:
        names = ", ".join(sorted({hca.name for hca, _ in matched}))
        text = f"{node.node}: {set_to} is a prefix, and {names} begin with {entry}; NCCL uses all of them"
        yield _finding(Trouble.PIN_AMBIGUOUS, node, text, HCAS, grave=False)


def _gid_index(node: NodeNetwork, text: str, rails: Sequence[Rail]) -> Iterator[Finding]:
    """A pinned GID index that is no RoCE v2 address of a rail's."""
    for rail in rails:
        if rail.gid is None or text in ("-1", *(str(gid.index) for gid in rail.port.routable)):
            continue
        there = next((g for g in rail.port.gids.value or () if str(g.index) == text), None)
        what = f"is {there.type or 'of an unknown type'} {there.gid}" if there else "is not in use"
        message = (
            f"{node.node}: {GID_INDEX}={text}, and on {rail.name} that index {what}; "
            f"its RoCE v2 address {rail.gid.ipv4} is at {rail.gid.index}"
        )
        yield _finding(Trouble.PIN_GID, node, message, GID_INDEX)


def _finding(trouble: Trouble, node: NodeNetwork, text: str, variable: str, *, grave: bool = True) -> Finding:
    return Finding(
        trouble=trouble,
        nodes=(node.node,),
        text=text,
        next_action=f"take {variable} out of the cluster's env and the node's environment, and use what is found for each "
        "node; or correct it",
        grave=grave,
    )
