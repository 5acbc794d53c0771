"""What an interface is, from what the kernel says of it, and whether ranks may meet over it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from surefoot.hardware.network_facts import ETHERNET, INFINIBAND, LOOPBACK, Interface


class Kind(StrEnum):
    """What an interface is. The value is how people call it."""

    LOOPBACK = "loopback"
    ETHERNET = "Ethernet hardware"
    INFINIBAND = "IP over InfiniBand"
    WIRELESS = "wireless"
    BOND = "a bond"
    VLAN = "a VLAN"
    BRIDGE = "a bridge with a cable behind it"
    INNER_BRIDGE = "a bridge without a cable behind it (of containers or virtual machines)"
    VETH = "one end of a virtual cable (veth)"
    MACVLAN = "a virtual interface on another one (macvlan, ipvlan)"
    TUNNEL = "a tunnel or VPN"
    OTHER = "a virtual interface"


FIRST_CLASS = frozenset({Kind.ETHERNET, Kind.INFINIBAND, Kind.BOND, Kind.VLAN, Kind.BRIDGE})
"""What nodes of a cluster meet over."""
INSIDE = frozenset({Kind.VETH, Kind.MACVLAN})
"""What a container may have as its only way out: taken where nothing of the first class reaches the others."""

_KINDS = {
    "bridge": Kind.INNER_BRIDGE, "openvswitch": Kind.INNER_BRIDGE,
    "bond": Kind.BOND, "team": Kind.BOND, "vlan": Kind.VLAN, "veth": Kind.VETH,
    "macvlan": Kind.MACVLAN, "macvtap": Kind.MACVLAN, "ipvlan": Kind.MACVLAN, "ipoib": Kind.INFINIBAND,
}  # fmt: skip
_TUNNELS = (
    "tun", "wireguard", "vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "ipip", "ip6tnl", "sit",
    "vti", "vti6", "xfrm", "bareudp", "l2tpeth", "ppp", "amt", "gtp",
)  # fmt: skip
_OWNERS = (
    ("docker", "Docker's"), ("br-", "Docker's, of a network of its own"), ("cni", "Kubernetes'"),
    ("flannel", "Kubernetes' (flannel)"), ("cali", "Kubernetes' (Calico)"), ("cilium", "Kubernetes' (Cilium)"),
    ("kube-", "Kubernetes'"), ("tailscale", "Tailscale's"), ("wg", "WireGuard's"), ("virbr", "libvirt's"),
    ("lxc", "LXC's"), ("lxdbr", "LXD's"), ("podman", "Podman's"), ("zt", "ZeroTier's"), ("vnet", "libvirt's"),
)  # fmt: skip


def kind_of(interface: Interface, others: Mapping[str, Interface]) -> Kind:
    """What it is; `others` are the node's interfaces by name. Names decide nothing."""
    if interface.arphrd == LOOPBACK:
        return Kind.LOOPBACK
    if interface.wireless.value or interface.devtype.value in ("wlan", "wwan"):
        return Kind.WIRELESS
    if interface.kind is not None:
        return _virtual(interface, interface.kind, others)
    if interface.arphrd == INFINIBAND:
        return Kind.INFINIBAND
    # Drivers of hardware have no kind of their own; /sys may not show the device behind (another namespace's).
    hardware = interface.device.value is not None or interface.device.unknown is not None
    return Kind.ETHERNET if interface.arphrd == ETHERNET and hardware else Kind.OTHER


def _virtual(interface: Interface, driver: str, others: Mapping[str, Interface]) -> Kind:
    """Of an interface that a driver made which is no hardware's."""
    if driver in _TUNNELS:
        return Kind.TUNNEL
    kind = _KINDS.get(driver, Kind.OTHER)
    if kind is Kind.INNER_BRIDGE:
        ports = [others[name] for name in interface.ports if name in others and name != interface.name]
        return Kind.BRIDGE if any(kind_of(port, others) in FIRST_CLASS for port in ports) else kind
    if kind is Kind.VLAN and interface.below is not None and interface.below in others:
        # A VLAN is what it lies on: of a container's bridge, it leads nowhere either.
        below = kind_of(others[interface.below], others)
        return Kind.VLAN if below in FIRST_CLASS else below
    return kind


def owner(name: str) -> str:
    """Whose an interface of that name usually is; empty where the name tells nothing. For people."""
    return next((whose for prefix, whose in _OWNERS if name.startswith(prefix)), "")


def told(interface: Interface, kind: Kind) -> str:
    """``docker0: a bridge without …, Docker's by its name``."""
    whose = owner(interface.name) if kind not in (Kind.ETHERNET, Kind.INFINIBAND, Kind.LOOPBACK) else ""
    return f"{kind.value}, {whose} by its name" if whose else kind.value


def unfit(interface: Interface, kind: Kind) -> str:
    """Why ranks can never meet over it, in words; empty where they might."""
    if kind not in FIRST_CLASS | INSIDE:
        return told(interface, kind)
    if interface.master is not None:
        what = {"bond": "bond", "team": "team", "bridge": "bridge"}.get(interface.port_kind or "", "interface")
        return f"a port of the {what} {interface.master}, which has the address"
    if not interface.up:
        return "switched off"
    if not interface.carrier:
        return f"no link ({interface.state})"
    if not interface.usable:
        return "no address that others can use"
    return ""
