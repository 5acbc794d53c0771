"""Which RDMA ports are rails: found from what all nodes have alike, and named where one node differs. Pure.

A rail is recognised across nodes by the subnet of its IPv4 address (RoCE with a subnet for each rail),
else by the device's name. Those that run fastest on most nodes are the rails; a port that is slower or
down on one node while it is a rail elsewhere is that rail, broken, and not something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from surefoot.hardware.network_facts import Gid, Hca, Interface, NodeNetwork, Port
from surefoot.hardware.network_view import Finding, Member, Trouble, View, grouped, some
from surefoot.hostlist import folded


@dataclass(frozen=True)
class Rail:
    """One port of one node, with how it is recognised."""

    node: str
    hca: Hca
    port: Port
    interface: Interface | None
    """Behind it; None for InfiniBand without IP, or where it cannot be told."""
    key: str

    @property
    def name(self) -> str:
        """As NCCL_IB_HCA takes it: with the port where the device has several."""
        several = len(self.hca.ports.value or ()) > 1
        return f"{self.hca.name}:{self.port.number}" if several else self.hca.name

    @property
    def rate(self) -> float:
        """Gbit/s; 0 where it is unknown."""
        return self.port.rate_gbit_s.value or 0.0

    @property
    def layer(self) -> str:
        """``InfiniBand``, ``Ethernet``; empty where it is unknown."""
        return self.port.link_layer.value or ""

    @cached_property
    def gid(self) -> Gid | None:
        """RoCE v2 with an IPv4 address; None where there is none, or for InfiniBand, which needs none."""
        return next(iter(self.port.routable), None) if self.port.roce else None


@dataclass(frozen=True)
class Rails:
    """The rails of each node, why each is one, why the other ports are none, and what is wrong."""

    rails: Mapping[str, tuple[Rail, ...]]
    why: str
    left_out: Mapping[str, Mapping[str, str]]
    """Node → port → why it is no rail."""
    findings: tuple[Finding, ...]


def rails(view: View, expected: Sequence[str], meeting: Mapping[str, str]) -> Rails:
    """The rails of all nodes. `meeting` is node → the interface that ranks first meet over."""
    nodes = [view.nodes[name] for name in expected if name in view.nodes]
    ports = _all_ports(nodes)
    findings = [*_unknown(nodes)]
    rate, layer = _fastest(ports)
    if not rate:
        why = "no node has an RDMA port that is active and has an address: NCCL will use sockets"
        why = "unknown, since RDMA devices cannot be read" if findings else why
        left = {node: {port.name: _left_out(port, rate, layer, "") for port in own} for node, own in ports.items()}
        return Rails(rails=dict.fromkeys(ports, ()), why=why, left_out=left, findings=tuple(findings))
    keys = _rail_keys(ports, rate, layer, meeting)
    assigned = {node: _assigned(own, keys) for node, own in ports.items()}
    sound = {
        node: [rail for rail in own if rail.name in assigned[node] and _serves(rail)] for node, own in ports.items()
    }
    alone = _unreached(view, sound, assigned)
    chosen = {node: tuple(rail for rail in own if (node, rail.name) not in alone) for node, own in sound.items()}
    left_out = {
        node: {
            rail.name: alone.get((node, rail.name)) or _left_out(rail, rate, layer, meeting.get(node, ""))
            for rail in own
            if rail not in chosen[node]
        }
        for node, own in ports.items()
    }
    for node, own in ports.items():
        findings += _broken(node, own, assigned[node], keys)
    findings += [_reaches_nobody(node, rail, what) for (node, rail), what in alone.items()]
    findings += _slower(sound, assigned)
    findings += _gid_indices(chosen)
    why = f"{len(keys)} a node: the {layer} ports that run at {rate:g} Gbit/s on most nodes"
    return Rails(rails=chosen, why=why, left_out=left_out, findings=tuple(findings))


def _all_ports(nodes: Sequence[NodeNetwork]) -> dict[str, tuple[Rail, ...]]:
    """Node → its ports, each with how it is recognised: subnets where at least half the nodes share them, else names."""
    plain = {node.node: _ports(node) for node in nodes}
    having = sum(1 for own in plain.values() if own)
    lone = {
        node: {subnet for subnet, count in Counter(_subnet(rail) for rail in own).items() if subnet and count == 1}
        for node, own in plain.items()
    }
    shared = Counter(subnet for subnets in lone.values() for subnet in subnets)
    known = {subnet for subnet, count in shared.items() if count > 1 and count * 2 >= having}
    names = _names_elsewhere(plain)
    return {
        node: tuple(
            replace(
                rail,
                key=_subnet(rail) if _subnet(rail) in known & lone[node] else names[node].get(rail.name, rail.name),
            )
            for rail in own
        )
        for node, own in plain.items()
    }


def _names_elsewhere(ports: Mapping[str, Sequence[Rail]]) -> dict[str, dict[str, str]]:
    """Node → own name of a port → what the most nodes call it: for nodes that name all of theirs in another way.

    Such a node's ports are matched in the order of their PCI addresses, where there are as many.
    """
    ordered = {
        node: tuple(rail.name for rail in sorted(own, key=lambda r: (r.hca.pci.value or "", r.hca.name, r.port.number)))
        for node, own in ports.items()
    }
    usual = Counter(ordered.values()).most_common(1)[0][0] if ordered else ()
    return {
        node: dict(zip(names, usual, strict=True)) if len(names) == len(usual) and not set(names) & set(usual) else {}
        for node, names in ordered.items()
    }


def _ports(node: NodeNetwork) -> tuple[Rail, ...]:
    """Every port of a node, not yet recognised."""
    found = []
    for hca in node.hcas.value or ():
        for port in hca.ports.value or ():
            interface = node.interface(port.netdev) if port.netdev else _behind(node, hca)
            found.append(Rail(node=node.node, hca=hca, port=port, interface=interface, key=""))
    return tuple(found)


def _behind(node: NodeNetwork, hca: Hca) -> Interface | None:
    """The interface on the same PCI function, where the GIDs name none (a link that is down)."""
    return next((i for i in node.interfaces if i.device.value and i.device.value == hca.pci.value), None)


def _subnet(rail: Rail) -> str:
    """The IPv4 subnet that a RoCE port's interface is in; empty where there is none."""
    if not rail.port.roce or rail.interface is None:
        return ""
    return next((str(a.network) for a in rail.interface.addresses if a.address.version == 4), "")


def _unknown(nodes: Sequence[NodeNetwork]) -> Iterator[Finding]:
    reasons = {node.node: node.hcas.unknown for node in nodes if node.hcas.unknown}
    for node in nodes:
        for hca in node.hcas.value or ():
            if hca.ports.unknown:
                reasons[node.node] = f"{hca.name}: {hca.ports.unknown}"
    if reasons:
        yield Finding(
            trouble=Trouble.RAILS_UNKNOWN,
            nodes=tuple(reasons),
            text=f"RDMA devices cannot be read: {grouped((node, str(why)) for node, why in reasons.items())}",
            next_action="let jobs see /sys/class/infiniband (a container's mounts), and try again",
        )


def _serves(rail: Rail) -> bool:
    """Whether NCCL could use it. A RoCE port without an address is a cable that somebody plugged in."""
    known = rail.layer in ("Ethernet", "InfiniBand")
    return rail.port.active and known and (rail.gid is not None or not rail.port.roce)


def _fastest(ports: Mapping[str, Sequence[Rail]]) -> tuple[float, str]:
    """(rate, link layer) of the fastest ports that at least half as many nodes have as have any; (0, "") for none."""
    seen: Counter[tuple[float, str]] = Counter()
    for own in ports.values():
        seen.update({(rail.rate, rail.layer) for rail in own if _serves(rail) and rail.rate})
    having = sum(1 for own in ports.values() if any(_serves(rail) for rail in own))
    common = [kind for kind, count in seen.items() if count * 2 >= having]
    amounts = Counter(
        kind for own in ports.values() for rail in own if _serves(rail) for kind in [(rail.rate, rail.layer)]
    )
    return max(common, key=lambda kind: (kind[0], amounts[kind], kind[1]), default=(0.0, ""))


def _rail_keys(
    ports: Mapping[str, Sequence[Rail]], rate: float, layer: str, meeting: Mapping[str, str]
) -> dict[str, set[str]]:
    """Key → names of the ports that are that rail on nodes where it runs at full rate, on at least half of those that could.

    The port that ranks first meet over is none, unless there is no other.
    """
    found: dict[str, list[Rail]] = {}
    for own in ports.values():
        for rail in own:
            if _serves(rail) and (rail.rate, rail.layer) == (rate, layer):
                found.setdefault(rail.key, []).append(rail)
    having = sum(1 for own in ports.values() if own)
    common = {key: own for key, own in found.items() if len(own) * 2 >= having}
    apart = {
        key: own for key, own in common.items()
        if not all(r.interface is not None and r.interface.name == meeting.get(r.node) for r in own)
    }  # fmt: skip
    return {key: {rail.name for rail in own} for key, own in (apart or common).items()}


def _assigned(own: Sequence[Rail], keys: Mapping[str, set[str]]) -> dict[str, str]:
    """Name of a port → the rail that it is: by its key, else by the name that the rail has on other nodes."""
    found = {rail.name: rail.key for rail in own if rail.key in keys}
    for key, names in keys.items():
        if key in found.values():
            continue
        candidate = next((rail for rail in own if rail.name in names and rail.name not in found), None)
        if candidate is not None:
            found[candidate.name] = key
    return found


def _idle(rail: Rail) -> str:
    return f"{(rail.port.state.value or 'in an unknown state').lower()} ({rail.port.physical_state.value or 'unknown'})"


def _left_out(rail: Rail, rate: float, layer: str, meeting: str) -> str:
    """Why a port is no rail now, in words: the first reason that holds."""
    reasons = (
        (not rail.port.active, _idle(rail)),
        (rail.port.roce and rail.gid is None, "it has no RoCE v2 GID with an IPv4 address"),
        (not (rail.rate and rail.layer), "its rate or its link layer is unknown"),
        (rail.layer != layer, f"{rail.layer}, and rails are {layer}"),
        (rail.interface is not None and rail.interface.name == meeting, f"{meeting} is where ranks first meet"),
        (rail.rate != rate, f"{rail.rate:g} Gbit/s, and rails run at {rate:g}"),
    )
    return next((why for holds, why in reasons if holds), "most nodes have no such rail")


def _broken(
    node: str, own: Sequence[Rail], assigned: Mapping[str, str], keys: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """Rails of the others that this node lacks, that are down here, or have no address."""
    for key, names in keys.items():
        if key not in assigned.values():
            yield Finding(
                trouble=Trouble.RAIL_MISSING,
                nodes=(node,),
                text=f"{node} has no rail {_called(key, names)}, which most nodes have; it has "
                + (", ".join(rail.name for rail in own) or "no RDMA device at all"),
                next_action="see whether the adapter is on the bus there (lspci), its driver loaded and its address set",
            )
    for rail in own:
        if rail.name not in assigned:
            continue
        if not rail.port.active:
            yield Finding(
                trouble=Trouble.RAIL_DOWN,
                nodes=(node,),
                text=f"{node}: rail {rail.name} is {_idle(rail)}, and active on other nodes",
                next_action="look at its cable and switch port"
                + ("; the subnet manager sets an InfiniBand port active" if not rail.port.roce else ""),
            )
        elif rail.port.roce and rail.gid is None:
            yield Finding(
                trouble=Trouble.RAIL_ADDRESS,
                nodes=(node,),
                text=f"{node}: rail {rail.name} has no RoCE v2 GID with an IPv4 address "
                f"(interface {rail.interface.name if rail.interface else 'unknown'})",
                next_action="give its interface the address of that rail's subnet",
            )


def _called(key: str, names: set[str]) -> str:
    joined = ", ".join(sorted(names))
    return joined if key in names else f"{key} ({joined})"


def _unreached(
    view: View, sound: Mapping[str, Sequence[Rail]], assigned: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], str]:
    """(node, port) → what came instead: of RoCE rails that none of the neighbours' same rail was reached from."""
    ends = {
        (rail.node, assigned[rail.node][rail.name]): (rail.name, member)
        for own in sound.values()
        for rail in own
        if (member := _member(view, rail)) is not None
    }
    tried: dict[tuple[str, str], list[str]] = {}
    for caller, called in view.asked():
        for key in set(assigned.get(caller, {}).values()):
            if (caller, key) not in ends or (called, key) not in ends:
                continue
            (name, own_end), (_, other_end) = ends[caller, key], ends[called, key]
            reached = view.reaches(own_end, other_end)
            what = "" if reached else f"{called} at {other_end.at}: {view.what_came(own_end, other_end)}"
            tried.setdefault((caller, name), []).append(what)
    return {rail: some(rows, 2) for rail, rows in tried.items() if all(rows)}


def _member(view: View, rail: Rail) -> Member | None:
    """The address by which a RoCE rail is called."""
    if rail.gid is None or rail.interface is None:
        return None
    return next((m for m in view.members[rail.node] if m.at == str(rail.gid.ipv4)), None)


def _reaches_nobody(node: str, rail: str, what: str) -> Finding:
    return Finding(
        trouble=Trouble.RAIL_UNREACHED,
        nodes=(node,),
        text=f"{node}: from rail {rail}, no neighbour is reached on the same rail ({what})",
        next_action="look for a wrong subnet, VLAN or cabling (rails swapped) of that rail",
    )


def _slower(sound: Mapping[str, Sequence[Rail]], assigned: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Rails that run slower than the same rail elsewhere."""
    by_key: dict[str, list[Rail]] = {}
    for own in sound.values():
        for rail in own:
            by_key.setdefault(assigned[rail.node][rail.name], []).append(rail)
    for key, own in by_key.items():
        fastest = max(rail.rate for rail in own)
        slow = [rail for rail in own if rail.rate < fastest]
        if slow:
            yield Finding(
                trouble=Trouble.RAIL_SLOWER,
                nodes=tuple(rail.node for rail in slow),
                text=f"rail {_called(key, {rail.name for rail in own})} runs at "
                + grouped((rail.node, f"{rail.rate:g} Gbit/s" if rail.rate else "an unknown rate") for rail in own),
                next_action="reseat or replace cable and transceiver of the slow ones; compare width and speed "
                "(`rate` in /sys/class/infiniband)",
            )


def _gid_indices(chosen: Mapping[str, Sequence[Rail]]) -> Iterator[Finding]:
    """Nodes whose rails need different GID indices: one variable can't name both."""
    differing = {
        node: sorted({rail.gid.index for rail in own if rail.gid is not None})
        for node, own in chosen.items()
        if len({rail.gid.index for rail in own if rail.gid is not None}) > 1
    }
    if differing:
        yield Finding(
            trouble=Trouble.GID_DIFFERS,
            nodes=tuple(differing),
            text=f"{folded(differing)}: rails have their RoCE v2 address at different GID indices "
            f"({grouped((node, ' and '.join(map(str, indices))) for node, indices in differing.items())}), "
            "so NCCL_IB_GID_INDEX is left unset",
            next_action="nothing with NCCL 2.21 and newer, which finds the index of each by itself; older ones want "
            "the same index on all rails",
            grave=False,
        )
