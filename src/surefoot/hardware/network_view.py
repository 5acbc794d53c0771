"""The networks of some nodes seen together: which interfaces are fit, who called whom and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from surefoot.hardware.interface_kinds import FIRST_CLASS, INSIDE, Kind, kind_of, unfit
from surefoot.hardware.network_facts import Address, Call, Interface, Network, NodeNetwork
from surefoot.hostlist import folded
from surefoot.model.base import Record


class Trouble(StrEnum):
    """What may be wrong with the networks of a cluster. Each finding is of one of these."""

    ABSENT = "absent"
    NO_COMMON_NETWORK = "no-common-network"
    UNREACHABLE = "unreachable"
    ONE_WAY = "one-way"
    CUT_OFF = "large-packets-lost"
    ADDRESS_TWICE = "address-twice"
    SUBNET_PARTIAL = "subnet-partial"
    SUBNET_TWICE = "subnet-twice"
    MTU = "mtu-differs"
    SPEED = "link-slower"
    LINK_DOWN = "link-down"
    OWN_NAME = "own-name-is-loopback"
    NAME = "name-leads-elsewhere"
    PIN_MISSING = "pin-missing"
    PIN_DOWN = "pin-down"
    PIN_UNFIT = "pin-unfit"
    PIN_UNREACHABLE = "pin-unreachable"
    PIN_AMBIGUOUS = "pin-ambiguous"
    PIN_LEAVES_OUT = "pin-leaves-out"
    PIN_GID = "pin-gid-index"
    RAIL_MISSING = "rail-missing"
    RAIL_DOWN = "rail-down"
    RAIL_SLOWER = "rail-slower"
    RAIL_ADDRESS = "rail-without-address"
    RAIL_UNREACHED = "rail-unreached"
    RAILS_UNKNOWN = "rails-unknown"
    GID_DIFFERS = "gid-index-differs"


class Finding(Record):
    """Something that is not as it should be, named."""

    trouble: Trouble
    nodes: tuple[str, ...]
    text: str
    """What was found, with the nodes in it."""
    next_action: str
    grave: bool = True
    """Training will fail, hang or be slow; otherwise it is worth knowing."""


@dataclass(frozen=True)
class Member:
    """A node's place in a network: an address of a fit interface."""

    node: str
    interface: Interface
    kind: Kind
    address: Address

    @cached_property
    def at(self) -> str:
        """The address alone."""
        return str(self.address.address)

    @cached_property
    def network(self) -> Network:
        """The subnet that the address lies in."""
        return self.address.network

    @property
    def speed(self) -> int:
        """Mbit/s; 0 where it is unknown."""
        return self.interface.speed_mbit_s.value or 0


class View:
    """Nodes with their interfaces judged one by one, and every call by its ends."""

    def __init__(self, nodes: Sequence[NodeNetwork]) -> None:
        self.nodes = {node.node: node for node in nodes}
        self.kinds: dict[str, dict[str, Kind]] = {}
        self.unfit: dict[str, dict[str, str]] = {}
        self.members: dict[str, list[Member]] = {}
        for node in nodes:
            others = {interface.name: interface for interface in node.interfaces}
            self.kinds[node.node] = kinds = {name: kind_of(i, others) for name, i in others.items()}
            self.unfit[node.node] = bad = {name: unfit(i, kinds[name]) for name, i in others.items()}
            self.members[node.node] = [
                Member(node.node, interface, kinds[interface.name], address)
                for interface in node.interfaces
                if not bad[interface.name]
                for address in interface.usable
            ]
        self.containers = {node for node, kinds in self.kinds.items() if not FIRST_CLASS & set(kinds.values())}
        self._leave_out_private()
        self._calls: dict[tuple[str, str, str], list[Call]] = {}
        self.spoke = {node.node: node.reach for node in nodes if node.reach is not None}
        self.hosts = {reach.nonce: name for name, reach in self.spoke.items()}
        for name, reach in self.spoke.items():
            for call in reach.calls:
                self._calls.setdefault((name, call.node, call.address), []).append(call)
        self._reached = {
            (name, call.interface, call.node, call.address)
            for name, reach in self.spoke.items()
            for call in reach.calls
            if self.right(call)
        }
        self._default = {name: node.default_interfaces for name, node in self.nodes.items()}
        self._leading = {
            name: {interface.name for interface in node.interfaces if self._leads(name, interface)}
            for name, node in self.nodes.items()
        }

    def _leave_out_private(self) -> None:
        """Take out what is a network of each host alone: a BMC's, which gives all hosts the same address.

        On two nodes alone and not on USB, one address twice is rather a mistake, which is found elsewhere.
        """
        holders: dict[str, dict[str, Member]] = {}
        for node, members in self.members.items():
            for member in members:
                holders.setdefault(member.at, {})[node] = member
        for address, held in holders.items():
            usb = all(member.interface.bus.value == "usb" for member in held.values())
            if len(held) == len(self.nodes) > 1 and (usb or len(held) > 2):
                for node, member in held.items():
                    self.unfit[node][member.interface.name] = (
                        f"its address {address} is the same on all nodes: a network of each host alone (of its BMC)"
                    )
        for node, members in self.members.items():
            self.members[node] = [m for m in members if not self.unfit[node][m.interface.name]]

    def subnets(self) -> dict[Network, dict[str, list[Member]]]:
        """Subnet → node → its members there, of fit interfaces; IPv4 first, in order of address."""
        found: dict[Network, dict[str, list[Member]]] = {}
        for node, members in self.members.items():
            for member in members:
                found.setdefault(member.network, {}).setdefault(node, []).append(member)
        order = sorted(found, key=lambda net: (net.version, int(net.network_address), net.prefixlen))
        return {network: found[network] for network in order}

    def asked(self) -> Iterator[tuple[str, str]]:
        """(caller, called) of every pair that was to be tried and where both spoke."""
        for name, reach in self.spoke.items():
            for other in reach.neighbours:
                if other in self.spoke:
                    yield name, other

    def calls(self, caller: str, to: Member) -> list[Call]:
        """Calls of a node to one address of another."""
        return self._calls.get((caller, to.node, to.at), [])

    def right(self, call: Call) -> bool:
        """Whether the right host answered: the nonce is the one that it says itself it greeted with."""
        to = self.spoke.get(call.node)
        return call.outcome == "reached" and to is not None and call.greeted == to.nonce

    def reaches(self, caller: Member, to: Member) -> bool:
        """Whether the right host answered, from this very interface."""
        return (caller.node, caller.interface.name, to.node, to.at) in self._reached

    def left_alone(self, nodes: Sequence[str]) -> list[str]:
        """Of several nodes, those that called no other or that no other was to call: of them nothing is known."""
        pairs = list(self.asked())
        called, calling = {to for _, to in pairs}, {caller for caller, _ in pairs}
        return [node for node in nodes if len(nodes) > 1 and not (node in called and node in calling)]

    def what_came(self, caller: Member, to: Member) -> str:
        """Why `to` is not reached from there, in words."""
        calls = self.calls(caller.node, to)
        own = [call for call in calls if call.interface == caller.interface.name] or calls
        if not own:
            return "never tried"
        call = own[0]
        if call.outcome == "reached" and not self.right(call):
            return "answered with a nonce that is not its own"
        if call.outcome == "reached":
            return f"reached over {call.interface}, not {caller.interface.name}"
        return f"{self.outcome(caller.node, call)}" + (
            f": {call.detail}" if call.outcome in ("failed", "cut off") else ""
        )

    def outcome(self, caller: str, call: Call) -> str:
        """The outcome of a call in words, with who answered instead."""
        if call.outcome != "other host":
            return call.outcome
        who = call.greeted_by or self.hosts.get(call.greeted or "")
        return f"{who} itself answered" if who == caller else f"{who or 'an unknown host'} answered"

    def default(self, member: Member) -> bool:
        """Whether a default route of the node leads over that interface."""
        return member.interface.name in self._default[member.node]

    def leads(self, member: Member) -> bool:
        """Whether it leads out of its node: hardware and its like, or a container's way out."""
        return member.interface.name in self._leading[member.node]

    def _leads(self, node: str, interface: Interface) -> bool:
        kind = self.kinds[node][interface.name]
        out = kind in INSIDE and interface.elsewhere and interface.master is None
        return kind in FIRST_CLASS or (node in self.containers and out)

    def leading(self, node: str) -> list[str]:
        """Names of the node's interfaces that lead out of it, fit or not."""
        return [i.name for i in self.nodes[node].interfaces if i.name in self._leading[node]]


def some(texts: Iterable[str], most: int = 4) -> str:
    """The first few, and how many more there are."""
    rows = list(texts)
    more = f"; and {len(rows) - most} more" if len(rows) > most else ""
    return "; ".join(rows[:most]) + more


def grouped(rows: Iterable[tuple[str, str]]) -> str:
    """(node, value) as ``9000 on n[1-2], 1500 on n3``, the most common first."""
    by_value: dict[str, list[str]] = {}
    for node, value in rows:
        by_value.setdefault(value, []).append(node)
    ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{value} on {folded(nodes)}" for value, nodes in ordered)
