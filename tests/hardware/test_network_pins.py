"""What a person pinned is held against what each node has: what NCCL would pass over in silence is named."""

from __future__ import annotations

import pytest

import network_sites as sites
from surefoot.hardware.interfaces import choose
from surefoot.hardware.network_pins import Pattern
from surefoot.hardware.network_view import Finding, Trouble

BASE = {"NCCL_SOCKET_IFNAME": "enP7s7", "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1"}


def findings(site: sites.Site, **pinned: str) -> list[Finding]:
    for node in site.names:
        site.environment[node].update(pinned)
    return [f for f in choose(site.nodes(), site.names).findings if f.trouble.value.startswith("pin-")]


def test_what_the_reference_system_pinned_is_right_on_both_its_nodes() -> None:
    assert findings(sites.two_sparks(), **BASE, OMPI_MCA_btl_tcp_if_include="enP7s7", NCCL_IB_GID_INDEX="3") == []


def test_what_is_chosen_is_right_when_it_is_pinned() -> None:
    site = sites.two_sparks()
    for node in choose(site.nodes(), site.names).nodes:
        site.environment[node.node] = dict(node.environment)
    assert findings(site) == []


def test_a_name_that_one_node_lacks_is_named_with_what_it_has() -> None:
    site = sites.two_sparks()
    site.rename("spark-2", "enP7s7", "eth0")
    (found,) = findings(site, **BASE)
    assert (found.trouble, found.nodes, found.grave) == (Trouble.PIN_MISSING, ("spark-2",), True)
    assert found.text == (
        "spark-2: NCCL_SOCKET_IFNAME=enP7s7, and it has no interface enP7s7; it has eth0, enp1s0f1np1, enP2p1s0f1np1"
    )


PINS: dict[str, tuple[dict[str, str], Trouble, str, bool]] = {
    "docker0": ({"NCCL_SOCKET_IFNAME": "docker0"}, Trouble.PIN_UNFIT, "docker0 is a bridge without a cable", True),
    "tailscale": ({"GLOO_SOCKET_IFNAME": "tailscale0"}, Trouble.PIN_UNFIT, "a tunnel or VPN", True),
    "a link that is down": ({"GLOO_SOCKET_IFNAME": "enp1s0f0np0"}, Trouble.PIN_DOWN, "enp1s0f0np0 has no link", True),
    "a prefix": ({"NCCL_SOCKET_IFNAME": "enp1"}, Trouble.PIN_AMBIGUOUS, "enp1s0f0np0, enp1s0f1np1 begin with", False),
    "a name in other capitals": ({"GLOO_SOCKET_IFNAME": "enp7s7"}, Trouble.PIN_MISSING, "no interface enp7s7", True),
    "a subnet of Docker": (
        {"OMPI_MCA_btl_tcp_if_include": "172.17.0.0/16"}, Trouble.PIN_UNFIT, "docker0 is a bridge", True
    ),
    "a subnet that is not there": (
        {"OMPI_MCA_btl_tcp_if_include": "10.9.0.0/16"}, Trouble.PIN_MISSING, "no interface 10.9.0.0/16", True
    ),
    "all but everything": ({"NCCL_SOCKET_IFNAME": "^en,wl"}, Trouble.PIN_UNFIT, "leaves out every interface", True),
    "one rail": ({"NCCL_IB_HCA": "rocep1s0f1"}, Trouble.PIN_LEAVES_OUT, "200 of 400 Gbit/s stay", True),
    "a rail left out": ({"NCCL_IB_HCA": "^=roceP2p1s0f1"}, Trouble.PIN_LEAVES_OUT, "leaves out roceP2p1s0f1", True),
    "an unknown HCA": (
        {"NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1,mlx5_7"}, Trouble.PIN_MISSING, "no RDMA device mlx5_7", True
    ),
    "an HCA that is down": (
        {"NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1,rocep1s0f0"}, Trouble.PIN_DOWN, "rocep1s0f0 is DOWN", True
    ),
    "an HCA by prefix": ({"NCCL_IB_HCA": "roce"}, Trouble.PIN_AMBIGUOUS, "begin with roce", False),
    "another port": ({"NCCL_IB_HCA": "rocep1s0f1:2,roceP2p1s0f1"}, Trouble.PIN_MISSING, "rocep1s0f1:2", True),
    "RoCE v1": ({"NCCL_IB_GID_INDEX": "2"}, Trouble.PIN_GID, "that index is IB/RoCE v1", True),
    "an empty index": ({"NCCL_IB_GID_INDEX": "5"}, Trouble.PIN_GID, "that index is not in use", True),
}  # fmt: skip


@pytest.mark.parametrize("what", PINS)
def test_a_wrong_pin_is_named_on_each_node(what: str) -> None:
    pinned, trouble, text, grave = PINS[what]
    found = [f for f in findings(sites.two_sparks(), **pinned) if f.trouble is trouble]
    assert {f.nodes for f in found} >= {("spark-1",), ("spark-2",)}
    assert all(text in f.text and f.grave is grave for f in found), found
    assert all(next(iter(pinned)) in f.next_action for f in found)


def test_a_pinned_interface_that_reaches_nobody_is_named() -> None:
    site = sites.two_sparks()
    site.wire = lambda _a, interface, _b, _c: "refused" if interface == "enp1s0f1np1" else None
    found = [f for f in findings(site, GLOO_SOCKET_IFNAME="enp1s0f1np1") if f.trouble is Trouble.PIN_UNREACHABLE]
    assert {f.nodes for f in found} == {("spark-1",), ("spark-2",)}
    assert "does not reach spark-2 (spark-2 at 192.168.177.12: refused)" in found[0].text


def test_wireless_may_be_pinned_where_it_reaches_all() -> None:
    assert findings(sites.two_sparks(), GLOO_SOCKET_IFNAME="wlP9s9") == []


def test_an_exact_list_is_not_a_prefix() -> None:
    assert findings(sites.h100(), NCCL_IB_HCA="=" + ",".join(f"mlx5_{n}" for n in range(8))) == []
    exact, loose = Pattern.of("=mlx5_1,mlx5_2"), Pattern.of("mlx5_1:1")
    assert [exact.fits_port(exact.entries[0], name, 1) for name in ("mlx5_1", "mlx5_10")] == [True, False]
    assert [loose.fits_port(loose.entries[0], name, 1) for name in ("mlx5_1", "mlx5_10")] == [True, True]
    assert Pattern.of("^docker,veth").leaves_out
    assert Pattern.of("^=docker0") == Pattern(entries=("docker0",), exact=True, leaves_out=True)
