"""What an interface is follows from what the kernel says of it; its name decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

import network_sites as sites
from surefoot.hardware.interface_kinds import Kind, kind_of, owner, unfit
from surefoot.hardware.network_facts import Interface


def made(name: str = "x0", **more: Any) -> Interface:
    return Interface.model_validate(sites.Site("a").add("a", name, "10.0.0.1/24", **more))


KINDS: dict[str, tuple[Interface, Kind]] = {
    "loopback": (made(arphrd=772), Kind.LOOPBACK),
    "hardware": (made(), Kind.ETHERNET),
    "hardware that sysfs does not show": (made(device=sites.unknown("another namespace's")), Kind.ETHERNET),
    "no hardware and no driver of virtual links": (made(device=sites.known(None)), Kind.OTHER),
    "wireless by its folder": (made(wireless=sites.known(True)), Kind.WIRELESS),
    "wireless by its type": (made(devtype=sites.known("wlan")), Kind.WIRELESS),
    "mobile": (made(devtype=sites.known("wwan")), Kind.WIRELESS),
    "IP over InfiniBand": (made(arphrd=32), Kind.INFINIBAND),
    "a partition of it": (made(arphrd=32, kind="ipoib"), Kind.INFINIBAND),
    "an empty bridge": (made(kind="bridge"), Kind.INNER_BRIDGE),
    "Open vSwitch": (made(kind="openvswitch"), Kind.INNER_BRIDGE),
    "bond": (made(kind="bond"), Kind.BOND),
    "team": (made(kind="team"), Kind.BOND),
    "veth": (made(kind="veth"), Kind.VETH),
    "macvlan": (made(kind="macvlan"), Kind.MACVLAN),
    "tun": (made(kind="tun", arphrd=65534), Kind.TUNNEL),
    "WireGuard": (made(kind="wireguard", arphrd=65534), Kind.TUNNEL),
    "vxlan": (made(kind="vxlan"), Kind.TUNNEL),
    "dummy": (made(kind="dummy"), Kind.OTHER),
    "something new": (made(kind="netkit"), Kind.OTHER),
}


@pytest.mark.parametrize("what", KINDS)
def test_it_is_told_by_its_own_signs(what: str) -> None:
    interface, kind = KINDS[what]
    assert kind_of(interface, {interface.name: interface}) is kind


@pytest.mark.parametrize("kind", ["bridge", "tun", "vxlan", "dummy", "wireguard"])
def test_a_name_as_hardware_has_it_makes_no_hardware(kind: str) -> None:
    interface = made("enp1s0", kind=kind)
    assert unfit(interface, kind_of(interface, {})) != ""


def test_hardware_that_is_called_docker0_is_hardware() -> None:
    assert kind_of(made("docker0"), {}) is Kind.ETHERNET
    assert owner("docker0") == "Docker's"


def test_a_vlan_is_what_it_lies_on() -> None:
    bond, bridge = made("bond0", kind="bond"), made("docker0", kind="bridge")
    others = {"bond0": bond, "docker0": bridge}
    assert kind_of(made("bond0.7", kind="vlan", below="bond0"), others) is Kind.VLAN
    assert kind_of(made("docker0.7", kind="vlan", below="docker0"), others) is Kind.INNER_BRIDGE


def test_a_bridge_is_a_cables_where_one_of_its_ports_is() -> None:
    tap, cable = made("vnet0", kind="tun"), made("eno1")
    bridge = made("br0", kind="bridge", ports=["vnet0", "eno1"])
    assert kind_of(bridge, {"vnet0": tap, "eno1": cable}) is Kind.BRIDGE
    assert kind_of(bridge, {"vnet0": tap}) is Kind.INNER_BRIDGE


UNFIT: dict[str, tuple[Interface, str]] = {
    "a bond's port": (made(master="bond0", port_kind="bond"), "a port of the bond bond0"),
    "a virtual function below another": (made(master="eth0"), "a port of the interface eth0"),
    "switched off": (made(up=False, carrier=False), "switched off"),
    "no cable": (made(carrier=False, state="down"), "no link (down)"),
    "no address": (made(addresses=[]), "no address"),
    "IPv6 link-local alone": (
        made(addresses=[{"address": "fe80::1", "prefix": 64, "scope": "link"}]), "no address that others can use"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_why_it_is_unfit_is_said(what: str) -> None:
    interface, why = UNFIT[what]
    assert why in unfit(interface, kind_of(interface, {}))
    assert unfit(made(), Kind.ETHERNET) == ""
