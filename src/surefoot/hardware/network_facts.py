"""Interfaces, routes and RDMA devices of a node as records, and who reached whom: what nodes report of networks.

Written by ``surefoot.node.facts.network``, ``surefoot.node.facts.fabric`` and ``surefoot.node.reach``.
"""

from __future__ import annotations

import ipaddress
from typing import Literal, Self

from pydantic import Field, IPvAnyAddress, IPvAnyNetwork, model_validator

from surefoot.hardware.fact import Fact, Known, Natural, Positive, Text, TextFact
from surefoot.model.base import Record

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = 772
"""ARPHRD_LOOPBACK of linux/if_arp.h."""
ETHERNET = 1
INFINIBAND = 32


class Address(Record):
    """One address of an interface."""

    address: IPvAnyAddress
    prefix: Natural
    scope: Text
    """``global``, ``link``, ``host`` or the kernel's number of another one."""

    @property
    def network(self) -> Network:
        """The subnet that it lies in."""
        return ipaddress.ip_network((self.address, self.prefix), strict=False)


class Interface(Record):
    """One network interface. MTU in bytes."""

    name: Text
    index: Positive
    arphrd: Natural
    """Kind of link, as linux/if_arp.h numbers them."""
    up: bool
    """Switched on."""
    carrier: bool
    """A link is there."""
    state: Text
    mtu: Natural
    mac: str | None
    kind: str | None
    """What a virtual interface's driver calls itself (``bridge``, ``veth``); None for hardware."""
    port_kind: str | None
    """The same of what it is a port of."""
    master: str | None
    """The bond or bridge that it is a port of."""
    below: str | None
    """The interface that it lies on, as a VLAN does."""
    elsewhere: bool
    """Its other end is in another network namespace: of a container, or of the host where this is one."""
    ports: tuple[str, ...]
    """Interfaces that have it as their master."""
    addresses: tuple[Address, ...]
    device: TextFact
    """PCI address, or its like on another bus; None for a virtual interface."""
    bus: TextFact
    driver: TextFact
    numa_node: Fact[Natural]
    wireless: Known[bool]
    devtype: TextFact
    speed_mbit_s: Known[Positive]
    counters: Known[dict[str, int]]

    @property
    def usable(self) -> tuple[Address, ...]:
        """Addresses that others may know it by: neither loopback nor IPv6 link-local."""
        return tuple(
            a for a in self.addresses if a.scope != "host" and not (a.address.version == 6 and a.address.is_link_local)
        )


class Route(Record):
    """One route of the main table."""

    to: IPvAnyNetwork
    interfaces: tuple[str, ...]
    gateway: IPvAnyAddress | None
    source: IPvAnyAddress | None
    metric: Natural

    @property
    def default(self) -> bool:
        """Whether it is for all that no other route is for."""
        return self.to.prefixlen == 0


class Gid(Record):
    """One index of a port's GID table that is in use."""

    index: Natural
    gid: IPvAnyAddress
    type: str | None
    """``RoCE v2``, ``IB/RoCE v1``; None where the driver does not say."""
    netdev: str | None

    @property
    def ipv4(self) -> ipaddress.IPv4Address | None:
        """The IPv4 address that it stands for."""
        return self.gid.ipv4_mapped if isinstance(self.gid, ipaddress.IPv6Address) else None


class Port(Record):
    """One port of an RDMA device. Rate in decimal Gbit/s."""

    number: Positive
    link_layer: TextFact
    """``InfiniBand`` or ``Ethernet``."""
    state: TextFact
    """``ACTIVE``, ``DOWN``, ``INIT``, ``ARMED``."""
    physical_state: TextFact
    rate_gbit_s: Known[float]
    rate: TextFact
    lid: Known[Natural]
    subnet_manager_lid: Known[Natural]
    active_mtu: Known[Positive]
    gids: Known[tuple[Gid, ...]]
    counters: Known[dict[str, int]]
    hw_counters: Known[dict[str, int]]

    @property
    def active(self) -> bool:
        """Whether it says that it is; unknown is not active."""
        return self.state.value == "ACTIVE"

    @property
    def roce(self) -> bool:
        """Whether it runs over Ethernet."""
        return self.link_layer.value == "Ethernet"

    @property
    def netdev(self) -> str | None:
        """The network interface behind it, as its GIDs name it; None where they name none."""
        return next((gid.netdev for gid in self.gids.value or () if gid.netdev), None)

    @property
    def routable(self) -> tuple[Gid, ...]:
        """RoCE v2 with an IPv4 address: what NCCL wants of a RoCE port."""
        return tuple(gid for gid in self.gids.value or () if gid.type == "RoCE v2" and gid.ipv4 is not None)


class Hca(Record):
    """One RDMA device."""

    name: Text
    pci: TextFact
    driver: TextFact
    numa_node: Fact[Natural]
    type: TextFact
    board: TextFact
    firmware: TextFact
    node_guid: TextFact
    ports: Known[tuple[Port, ...]]


Outcome = Literal[
    "reached",
    "other host",
    "cut off",
    "stranger",
    "silent",
    "refused",
    "timed out",
    "unreachable",
    "no route",
    "failed",
]
"""Of a call. ``cut off``: the right host greeted, and what it sent in large packets did not arrive.
``stranger``: what answered is no node of this job. ``silent``: connected, and nothing came."""


class Call(Record):
    """One connection to an address of another node."""

    node: Text
    address: Text
    interface: str | None
    """Own one that it was made from; None where no way leads there."""
    source: str | None
    outcome: Outcome
    held: bool
    """The kernel held it to that interface."""
    detail: str
    time_ms: float = Field(ge=0)
    greeted: str | None
    """Nonce of who answered."""
    greeted_by: str | None
    """The node of that nonce, where the caller knew it."""


class OwnAddress(Record):
    """An address that a node told others."""

    interface: Text
    address: Text
    prefix: Natural


class Reach(Record):
    """What ``reach-<node>.json`` says: whom a node reached."""

    me: Text
    execution: Text
    host: Text
    nonce: Text
    ports: dict[str, Known[Positive]]
    addresses: tuple[OwnAddress, ...]
    neighbours: tuple[Text, ...]
    """Nodes that it was to call."""
    absent: tuple[Text, ...]
    """Those of them that never wrote where they are."""
    waited_s: float = Field(ge=0)
    calls: tuple[Call, ...]
    names: dict[str, Known[tuple[IPvAnyAddress, ...]]]
    """Node, this one too → the addresses that its name leads to here."""
    took_s: float = Field(ge=0)


class NodeNetwork(Record):
    """All that is known of one node's networks."""

    node: Text
    interfaces: tuple[Interface, ...]
    routes: tuple[Route, ...]
    hcas: Known[tuple[Hca, ...]]
    reach: Reach | None
    """None: it never told."""
    environment: dict[str, str] = {}
    """Variables that the job sets there, or that the node has itself; pins are looked for in them."""

    @model_validator(mode="after")
    def _reach_is_its_own(self) -> Self:
        if self.reach is not None and self.reach.me != self.node:
            raise ValueError(f"whom {self.reach.me} reached is not what {self.node} reached")
        return self

    def interface(self, name: str) -> Interface | None:
        """The interface of that name."""
        return next((i for i in self.interfaces if i.name == name), None)

    @property
    def default_interfaces(self) -> frozenset[str]:
        """Those that default routes of the least metric lead over, of each family."""
        found: set[str] = set()
        for version in (4, 6):
            routes = [route for route in self.routes if route.default and route.to.version == version]
            least = min((route.metric for route in routes), default=0)
            found.update(name for route in routes if route.metric == least for name in route.interfaces)
        return frozenset(found)
