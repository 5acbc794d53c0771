"""Real hosts, each a network namespace with some thirty interfaces: found, chosen, and each damage named.

Their cables are veth, so to the kernel each host is a container: what the chooser takes where there is no
hardware. This kernel has no bond, VLAN, dummy or WireGuard; those are judged from what nodes with them
tell (tests/hardware).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import network_hosts
from network_hosts import Hosts, ip
from surefoot.hardware.interfaces import NetworkChoice, choose
from surefoot.hardware.network_facts import NodeNetwork
from surefoot.hardware.network_view import Finding, Trouble

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(bool(network_hosts.possible()), reason=network_hosts.possible() or "possible"),
]


def cabled(hosts: Hosts) -> None:
    """Management on 192.168.1.0/24 and two rails, as on the reference system."""
    for network in ("lan", "r1", "r2"):
        hosts.network(network)
    for number, host in enumerate(hosts.names, 1):
        for network, interface, subnet, mtu in (
            ("lan", "enP7s7", "192.168.1", 1500), ("r1", "enp1s0f1np1", "192.168.177", 9000),
            ("r2", "enP2p1s0f1np1", "192.168.178", 9000),
        ):  # fmt: skip
            hosts.cable(network, host, interface, f"{subnet}.{number}/24", mtu)
        hosts.do(host, "route add default via 192.168.1.254")
        rows = "".join(f"192.168.1.{n} {name}\n" for n, name in enumerate(hosts.names, 1))
        hosts.hosts_files[host] = f"127.0.0.1 localhost\n{rows}"


def crowd(hosts: Hosts, host: str) -> None:
    """What Docker, Kubernetes, Tailscale and a person leave on a host: 27 interfaces more, the same on each."""
    lines = ["link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0"]
    lines += ["link add br-5f1d2c3b4a59 type bridge", "addr add 172.18.0.1/16 dev br-5f1d2c3b4a59"]
    lines += ["link add cni0 type bridge", "addr add 10.42.0.1/24 dev cni0"]
    for number, bridge in enumerate(["docker0"] * 4 + ["br-5f1d2c3b4a59"] * 2 + ["cni0"] * 4):
        lines += [f"link add veth{number}a type veth peer name veth{number}b"]
        lines += [f"link set veth{number}a master {bridge} up", f"link set veth{number}b up"]
    lines += [f"link set {bridge} up" for bridge in ("docker0", "br-5f1d2c3b4a59", "cni0")]
    lines += ["tuntap add tailscale0 mode tun", "addr add 100.101.102.1/32 dev tailscale0", "link set tailscale0 up"]
    lines += ["tuntap add vnet0 mode tap", "link set vnet0 up"]
    lines += ["link add flannel.1 type vxlan id 1 dev enP7s7 dstport 8472", "addr add 10.42.0.0/32 dev flannel.1"]
    lines += ["link set flannel.1 up", "link add mv0 link enp1s0f1np1 type macvlan mode bridge"]
    hosts.do(host, *lines)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Hosts]:
    with network_hosts.hosts(tmp_path, "n1", "n2") as hosts:
        cabled(hosts)
        yield hosts


def judged(hosts: Hosts, **limits: float) -> NetworkChoice:
    told = hosts.meet(**limits)
    nodes = [
        NodeNetwork.model_validate(
            {**{k: hosts.facts(h)[k]["value"] for k in ("interfaces", "routes")},
             "node": h, "hcas": hosts.facts(h)["hcas"], "reach": told[h], "environment": hosts.environment.get(h, {})}
        )
        for h in told
    ]  # fmt: skip
    return choose(nodes, hosts.names)


def only(choice: NetworkChoice, trouble: Trouble) -> Finding:
    found = [finding for finding in choice.findings if finding.trouble is trouble]
    assert len(found) == 1, choice.findings
    return found[0]


def test_among_thirty_interfaces_the_one_that_connects_all_hosts_is_found(tmp_path: Path) -> None:
    with network_hosts.hosts(tmp_path, "n1", "n2", "n3") as hosts:
        cabled(hosts)
        for host in hosts.names:
            crowd(hosts, host)
        begun = time.monotonic()
        choice = judged(hosts)
        assert time.monotonic() - begun < 30
    assert [len(node.left_out) for node in choice.nodes] == [30, 30, 30]
    assert choice.findings == ()
    assert [node.environment["NCCL_SOCKET_IFNAME"] for node in choice.nodes] == ["=enP7s7"] * 3
    reasons = {row.name: row.why for row in choice.nodes[0].left_out}
    for name, why in {
        "docker0": "bridge without a cable", "br-5f1d2c3b4a59": "Docker's", "cni0": "Kubernetes'",
        "veth0a": "a port of the bridge docker0", "veth0b": "no address", "tailscale0": "tunnel",
        "flannel.1": "tunnel", "lo": "loopback", "enp1s0f1np1": "192.168.1.0/24 is preferred",
    }.items():  # fmt: skip
        assert why in reasons[name], reasons[name]
    assert "at 172.17.0.1 of n2, n1 itself answered" in reasons["docker0"]


def test_an_interface_that_is_called_otherwise_on_one_host_is_found_and_its_pin_is_caught(pair: Hosts) -> None:
    pair.do("n2", "link set enP7s7 down", "link set enP7s7 name eth0", "link set eth0 up")
    pair.do("n2", "route replace default via 192.168.1.254")
    pair.environment = {host: {"NCCL_SOCKET_IFNAME": "enP7s7"} for host in pair.names}
    choice = judged(pair)
    assert [node.environment["NCCL_SOCKET_IFNAME"] for node in choice.nodes] == ["=enP7s7", "=eth0"]
    assert [f.trouble for f in choice.findings] == [Trouble.PIN_MISSING]
    assert "n2: NCCL_SOCKET_IFNAME=enP7s7, and it has no interface enP7s7" in choice.findings[0].text


def test_a_pin_on_docker0_is_caught(pair: Hosts) -> None:
    for host in pair.names:
        crowd(pair, host)
    pair.environment = {host: {"OMPI_MCA_btl_tcp_if_include": "docker0"} for host in pair.names}
    choice = judged(pair)
    assert [f.trouble for f in choice.findings] == [Trouble.PIN_UNFIT] * 2
    assert choice.nodes[0].interface == "enP7s7"


def test_a_link_that_is_down_on_one_host_is_named_and_another_network_taken(pair: Hosts) -> None:
    pair.do("n2", "link set enP7s7 down")
    choice = judged(pair)
    assert only(choice, Trouble.LINK_DOWN).text == "enP7s7 has a link on n1, and is switched off on n2"
    assert only(choice, Trouble.SUBNET_PARTIAL).nodes == ("n2",)
    assert {node.interface for node in choice.nodes} <= {"enp1s0f1np1", "enP2p1s0f1np1"}
    assert "switched off" in {row.name: row.why for row in choice.node("n2").left_out}["enP7s7"]


def test_a_cable_that_is_pulled_is_named(pair: Hosts) -> None:
    ip("link set lan-1 down", netns=pair.netns("switch"))
    choice = judged(pair)
    assert only(choice, Trouble.LINK_DOWN).text == "enP7s7 has a link on n1, and is without a link on n2"
    assert "no link" in {row.name: row.why for row in choice.node("n2").left_out}["enP7s7"]
    assert choice.node("n1").interface != "enP7s7"


def test_a_switch_that_loses_large_packets_is_found_although_small_ones_arrive(pair: Hosts) -> None:
    ip("link set r1-1 mtu 1500", netns=pair.netns("switch"))
    found = only(judged(pair), Trouble.CUT_OFF)
    assert found.nodes == ("n1", "n2")
    assert "192.168.177.0/24: small packets arrive and large ones do not: n1 from n2 (cut off: " in found.text


def test_an_mtu_that_one_host_does_not_share_is_named(pair: Hosts) -> None:
    pair.do("n2", "link set enp1s0f1np1 mtu 1500")
    found = only(judged(pair), Trouble.MTU)
    assert "192.168.177.0/24: the MTU is 9000 on n1, 1500 on n2" in found.text


def test_a_name_that_leads_to_127_0_1_1_is_named(pair: Hosts) -> None:
    pair.hosts_files["n2"] = "127.0.0.1 localhost\n127.0.1.1 n2\n192.168.1.1 n1\n"
    found = only(judged(pair), Trouble.OWN_NAME)
    assert found.nodes == ("n2",)
    assert "127.0.1.1" in found.text


def test_hosts_that_no_network_joins_are_named_and_nothing_is_chosen(pair: Hosts) -> None:
    for network in ("lan", "r1", "r2"):
        ip(f"link set {network}-1 nomaster", netns=pair.netns("switch"))
    choice = judged(pair)
    assert [node.environment for node in choice.nodes] == [{}, {}]
    text = only(choice, Trouble.NO_COMMON_NETWORK).text
    assert "n1 does not reach n2 at 192.168.1.2" in text
    assert "n2 does not reach n1 at 192.168.178.1" in text


def test_two_hosts_of_one_address_are_told_apart(tmp_path: Path) -> None:
    with network_hosts.hosts(tmp_path, "n1", "n2", "n3") as hosts:
        cabled(hosts)
        hosts.do("n3", "addr flush dev enp1s0f1np1", "addr add 192.168.177.2/24 dev enp1s0f1np1")
        choice = judged(hosts)
        told = {host: json.loads((hosts.folder / "job" / f"reach-{host}.json").read_text()) for host in hosts.names}
    assert only(choice, Trouble.ADDRESS_TWICE).nodes == ("n2", "n3")
    answered = {
        c["node"]: (c["outcome"], c["greeted_by"]) for c in told["n1"]["calls"] if c["address"] == "192.168.177.2"
    }
    # Which of the two answers is chance; the other one is told from it.
    assert sorted(answered.values()) in (
        [("other host", "n2"), ("reached", "n2")],
        [("other host", "n3"), ("reached", "n3")],
    )


def test_a_host_that_does_not_come_is_named_by_the_one_that_does(pair: Hosts) -> None:
    begun = time.monotonic()
    told = pair.meet(only=["n1"], others_s=1.0)
    assert told["n1"]["absent"] == ["n2"]
    assert time.monotonic() - begun < 15


def test_without_a_way_there_is_no_call(pair: Hosts) -> None:
    pair.do("n1", "route del default", "addr flush dev enp1s0f1np1")
    told = pair.meet()
    (call,) = [c for c in told["n1"]["calls"] if c["address"] == "192.168.177.2"]
    assert (call["outcome"], call["interface"]) == ("no route", None)
    assert "unreachable" in call["detail"]


def test_the_files_say_what_the_kernel_knows(pair: Hosts) -> None:
    crowd(pair, "n1")
    pair.meet()
    found = {entry["name"]: entry for entry in pair.facts("n1")["interfaces"]["value"]}
    assert (found["docker0"]["kind"], found["docker0"]["ports"]) == ("bridge", ["veth0a", "veth1a", "veth2a", "veth3a"])
    assert (found["veth0a"]["master"], found["veth0a"]["port_kind"]) == ("docker0", "bridge")
    assert found["enP7s7"]["elsewhere"] is True
    assert found["tailscale0"]["kind"] == "tun"
    assert found["mv0"]["below"] == "enp1s0f1np1"
    assert found["enp1s0f1np1"]["mtu"] == 9000
    assert found["lo"]["speed_mbit_s"]["value"] is None
    assert "Invalid argument" in found["lo"]["speed_mbit_s"]["unknown"]
    assert json.dumps(found)


def test_hosts_of_ipv6_alone_meet_too(tmp_path: Path) -> None:
    with network_hosts.hosts(tmp_path, "n1", "n2") as hosts:
        hosts.network("lan")
        for number, host in enumerate(hosts.names, 1):
            hosts.cable("lan", host, "eth0", "")
            hosts.do(host, f"addr add fd00::{number}/64 dev eth0 nodad")
            hosts.hosts_files[host] = "127.0.0.1 localhost\nfd00::1 n1\nfd00::2 n2\n"
        choice = judged(hosts)
    assert [(node.interface, node.address) for node in choice.nodes] == [("eth0", "fd00::1"), ("eth0", "fd00::2")]
    assert choice.findings == ()
