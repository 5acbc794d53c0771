"""Interfaces are told from the kernel's own words, and what sysfs adds is believed of the same interface alone."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_sysfs
from surefoot.hardware.fact import Known
from surefoot.hardware.network_facts import Interface, Route
from surefoot.node.facts import netlink, network

LINK = {
    "index": 2, "name": "enp1s0f1np1", "arphrd": 1, "up": True, "carrier": True, "state": "up", "mtu": 9000,
    "mac": "4c:bb:47:00:00:01", "kind": None, "port_kind": None, "master": None, "below": None, "elsewhere": False,
}  # fmt: skip
ADDRESS = {"address": "192.168.177.11", "prefix": 24, "scope": "global"}


def described(sysfs: Path, *links: dict[str, Any]) -> list[Interface]:
    told = network.described(list(links or [LINK]), {2: [ADDRESS]}, sysfs)
    return [Interface.model_validate(entry) for entry in told]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    fake_sysfs.interface(
        tmp_path, "enp1s0f1np1", 2, pci="0000:01:00.1", driver="mlx5_core", speed="200000"
    )  # fmt: skip
    return tmp_path


def test_hardware_is_described_with_its_driver_and_speed(sysfs: Path) -> None:
    (found,) = described(sysfs)
    assert (found.device.value, found.bus.value, found.driver.value) == ("0000:01:00.1", "pci", "mlx5_core")
    assert found.speed_mbit_s.value == 200_000
    assert found.wireless.value is False
    assert [str(a.network) for a in found.usable] == ["192.168.177.0/24"]
    assert (found.counters.value or {})["rx_crc_errors"] == 0


def test_a_speed_that_the_driver_does_not_know_is_unknown(sysfs: Path) -> None:
    for text in ("-1", "0", str((1 << 32) - 1)):
        (sysfs / "class/net/enp1s0f1np1/speed").write_text(text)
        (found,) = described(sysfs)
        assert found.speed_mbit_s.value is None
        assert f"says {text}" in (found.speed_mbit_s.unknown or "")


def test_a_speed_that_the_kernel_refuses_to_tell_is_unknown(tmp_path: Path) -> None:
    fake_sysfs.interface(tmp_path, "enp1s0f1np1", 2)
    (found,) = described(tmp_path)
    assert found.speed_mbit_s.value is None
    assert "Is a directory" in (found.speed_mbit_s.unknown or ""), "the refusal itself is the reason"


@pytest.mark.parametrize("marker", ["wireless", "phy80211"])
def test_a_wireless_interface_is_one(marker: str, sysfs: Path) -> None:
    (sysfs / "class/net/enp1s0f1np1" / marker).mkdir()
    (sysfs / "class/net/enp1s0f1np1/uevent").write_text("DEVTYPE=wlan\nINTERFACE=enp1s0f1np1\n")
    (found,) = described(sysfs)
    assert (found.wireless.value, found.devtype.value) == (True, "wlan")


def test_sysfs_of_another_namespace_is_not_believed(sysfs: Path) -> None:
    (sysfs / "class/net/enp1s0f1np1/ifindex").write_text("7\n")
    (found,) = described(sysfs)
    for fact in (found.device, found.driver, found.speed_mbit_s, found.counters, found.wireless):
        assert fact.value is None
        assert "another network namespace" in (fact.unknown or "")


def test_an_interface_that_sysfs_lacks_is_told_all_the_same(tmp_path: Path) -> None:
    (found,) = described(tmp_path)
    assert (found.name, found.mtu, found.device.value) == ("enp1s0f1np1", 9000, None)
    assert "no /" in (found.device.unknown or "") or "no " in (found.device.unknown or "")


def test_ports_masters_and_what_an_interface_lies_on_are_named(sysfs: Path) -> None:
    port = {**LINK, "master": 3, "port_kind": "bond"}
    bond = {**LINK, "index": 3, "name": "bond0", "kind": "bond"}
    vlan = {**LINK, "index": 4, "name": "bond0.7", "kind": "vlan", "below": 3}
    inside = {**LINK, "index": 5, "name": "eth0", "kind": "veth", "below": 3, "elsewhere": True}
    lost = {**LINK, "index": 6, "name": "vf0", "master": 99}
    found = {entry.name: entry for entry in described(sysfs, port, bond, vlan, inside, lost)}
    assert (found["enp1s0f1np1"].master, found["bond0"].ports) == ("bond0", ("enp1s0f1np1",))
    assert (found["bond0.7"].below, found["eth0"].below) == ("bond0", None)
    assert found["vf0"].master == "interface 99"


def test_this_machine_tells_of_its_own_loopback_and_routes() -> None:
    facts = network.facts()
    read = Known[tuple[Interface, ...]].model_validate_json(json.dumps(facts["interfaces"]))
    loopback = next(entry for entry in read.value or () if entry.arphrd == 772)
    assert "127.0.0.1" in [str(a.address) for a in loopback.addresses]
    assert loopback.usable == ()
    routes = Known[tuple[Route, ...]].model_validate_json(json.dumps(facts["routes"]))
    assert routes.value is not None


def test_the_way_to_an_own_address_is_found() -> None:
    assert netlink.route_to("127.0.0.1")["index"] is not None


def attribute(kind: int, body: bytes) -> bytes:
    raw = netlink.ATTRIBUTE.pack(len(body) + 4, kind) + body
    return raw + b"\0" * (-len(raw) % 4)


def test_a_link_is_read_from_the_kernels_form() -> None:
    body = netlink.LINK.pack(0, 1, 7, 0x11043, 0)
    body += attribute(3, b"veth0a\0") + attribute(4, struct.pack("=I", 1500)) + attribute(10, struct.pack("=I", 4))
    body += attribute(5, struct.pack("=I", 2)) + attribute(16, b"\x06") + attribute(1, bytes.fromhex("020000000001"))
    body += attribute(18 | 0x8000, attribute(1, b"veth\0") + attribute(4, b"bridge\0")) + attribute(37, b"\0\0\0\0")
    assert netlink.link(body) == {
        "index": 7, "name": "veth0a", "arphrd": 1, "up": True, "carrier": True, "state": "up", "mtu": 1500,
        "mac": "02:00:00:00:00:01", "kind": "veth", "port_kind": "bridge", "master": 4, "below": 2, "elsewhere": True,
    }  # fmt: skip


def test_the_own_end_of_a_link_between_two_is_its_address() -> None:
    body = netlink.ADDRESS.pack(socket.AF_INET, 32, 0, 0, 3)
    body += attribute(1, bytes([10, 0, 0, 2])) + attribute(2, bytes([10, 0, 0, 1]))
    assert netlink.address(body)["address"] == "10.0.0.1"


def test_a_route_over_several_interfaces_names_all() -> None:
    hops = struct.pack("=HBBi", 8, 0, 0, 2) + struct.pack("=HBBi", 8, 0, 0, 3)
    body = netlink.ROUTE.pack(socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0) + attribute(9, hops)
    assert netlink.route(body)["hops"] == [2, 3]
    assert netlink.route(body)["to"] == "0.0.0.0/0"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_attributes_are_refused_or_read_whole(data: bytes) -> None:
    try:
        found = netlink.attributes(data)
    except ValueError as e:
        assert "does not fit" in str(e)  # noqa: PT017 - either is right, and a crash is not
    else:
        assert sum(len(body) for body in found.values()) <= len(data)


def test_a_message_that_is_cut_off_is_refused() -> None:
    whole = netlink.HEADER.pack(32, 16, 0, 1, 0) + bytes(16)
    assert len(list(netlink.messages(whole))) == 1
    with pytest.raises(ValueError, match="does not fit"):
        list(netlink.messages(whole[:-1]))
