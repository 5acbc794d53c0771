"""The interface and the rails that are chosen on well-known sites, and why each other one is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import network_sites as sites
from surefoot.hardware.interfaces import NetworkChoice, choose
from surefoot.hardware.network_view import Trouble


def judged(site: sites.Site) -> NetworkChoice:
    return choose(site.nodes(), site.names)


def why_not(choice: NetworkChoice, node: str) -> dict[str, str]:
    chosen = choice.node(node)
    return {row.name: row.why for row in (*chosen.left_out, *chosen.ports_left_out)}


def test_two_sparks_get_what_their_people_had_to_pin() -> None:
    choice = judged(sites.two_sparks())
    assert choice.findings == ()
    for node in choice.nodes:
        assert node.environment == {
            "NCCL_SOCKET_IFNAME": "=enP7s7",
            "GLOO_SOCKET_IFNAME": "enP7s7",
            "OMPI_MCA_btl_tcp_if_include": "enP7s7",
            "NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1",
            "NCCL_IB_GID_INDEX": "3",
        }


def test_of_more_than_thirty_interfaces_each_that_is_not_taken_says_why() -> None:
    site = sites.two_sparks()
    assert sum(map(len, site.interfaces.values())) > 30
    choice = judged(site)
    reasons = why_not(choice, "spark-1")
    assert set(reasons) == {i["name"] for i in site.interfaces["spark-1"]} - {"enP7s7"} | {"rocep1s0f0", "roceP2p1s0f0"}
    words = {
        "lo": "loopback", "wlP9s9": "wireless", "docker0": "spark-1 itself answered", "cni0": "bridge without a cable",
        "br-5f1d2c3b4a59": "bridge without a cable", "veth0a": "a port of the bridge docker0",
        "flannel.1": "tunnel", "tailscale0": "Tailscale's", "enp1s0f0np0": "no link", "enp1s0f1np1": "a rail",
        "rocep1s0f0": "down (Disabled)",
    }  # fmt: skip
    for name, text in words.items():
        assert text in reasons[name], (name, reasons[name])


@pytest.mark.parametrize("roce", [False, True])
def test_eight_rails_are_found_beside_storage_ports_and_a_bmc_that_is_alike_on_all(*, roce: bool) -> None:
    choice = judged(sites.h100(roce=roce))
    assert choice.findings == ()
    for node in choice.nodes:
        assert (node.interface, len(node.rails)) == ("bond0", 8)
        assert node.environment["NCCL_IB_HCA"] == "=" + ",".join(f"mlx5_{rail}" for rail in range(8))
        assert node.environment.get("NCCL_IB_GID_INDEX") == ("3" if roce else None)
    reasons = why_not(choice, "gpu01")
    assert "the same on all nodes" in reasons["enx0a1b2c"]
    assert "a port of the bond bond0" in reasons["eno1"]
    assert ("rails run at 400" if roce else "rails are InfiniBand") in reasons["mlx5_8"]


def test_where_there_are_no_rails_none_is_named() -> None:
    choice = judged(sites.management_only())
    assert choice.findings == ()
    assert {node.interface for node in choice.nodes} == {"eno1"}
    assert all("NCCL_IB_HCA" not in node.environment for node in choice.nodes)


def test_names_may_differ_between_nodes() -> None:
    site = sites.two_sparks()
    site.rename("spark-2", "enP7s7", "eth0")
    site.rename("spark-2", "enp1s0f1np1", "rail0")
    choice = judged(site)
    assert choice.findings == ()
    assert [node.environment["NCCL_SOCKET_IFNAME"] for node in choice.nodes] == ["=enP7s7", "=eth0"]
    assert [len(node.rails) for node in choice.nodes] == [2, 2]


def test_devices_that_are_named_in_another_way_on_one_node_are_matched_in_the_order_of_the_bus() -> None:
    site = sites.h100()
    for number, hca in enumerate(site.hcas["gpu03"]):
        hca["name"] = f"ibp{number}s0"
    choice = judged(site)
    assert choice.findings == ()
    assert choice.node("gpu03").environment["NCCL_IB_HCA"] == "=" + ",".join(f"ibp{n}s0" for n in range(8))


def test_nodes_on_several_subnets_meet_over_their_default_routes_when_those_reach() -> None:
    site = sites.management_only(4)
    for node in ("n3", "n4"):
        site.get(node, "eno1")["addresses"][0]["address"] = f"10.2.0.{node[1]}"
    site.wire = lambda _a, interface, _b, address: "reached" if interface == "eno1" and address[:3] == "10." else None
    choice = judged(site)
    assert {node.interface for node in choice.nodes} == {"eno1"}
    assert "routes between them" in choice.nodes[0].why
    assert choice.findings == ()


def test_in_a_container_its_only_interface_is_taken_although_it_is_virtual() -> None:
    site = sites.Site("a", "b")
    for number, node in enumerate(site.names, 1):
        site.add(node, "lo", "127.0.0.1/8", arphrd=772)
        site.add(node, "eth0", f"10.42.0.{number}/24", kind="veth", elsewhere=True)
    choice = judged(site)
    assert [node.interface for node in choice.nodes] == ["eth0", "eth0"]
    assert choice.findings == ()


def test_a_bridge_with_a_cable_behind_it_is_as_good_as_the_cable() -> None:
    site = sites.management_only(2)
    for number, node in enumerate(site.names, 1):
        site.get(node, "eno1").update(addresses=[], master="br0", port_kind="bridge")
        site.add(node, "br0", f"10.1.0.{number}/24", kind="bridge", ports=["eno1", "vnet0"])
        site.add(node, "vnet0", kind="tun", master="br0", port_kind="bridge")
    choice = judged(site)
    assert {node.interface for node in choice.nodes} == {"br0"}


def test_rails_are_where_ranks_meet_only_if_nothing_else_connects_all_nodes() -> None:
    site = sites.two_sparks()
    for node in site.names:
        site.get(node, "enP7s7").update(carrier=False, state="down")
    choice = judged(site)
    assert choice.nodes[0].interface in ("enp1s0f1np1", "enP2p1s0f1np1")
    assert len(choice.nodes[0].rails) == 1, "the one that ranks meet over is not counted as a rail beside another"


def test_one_node_alone_has_an_interface_and_no_one_to_reach() -> None:
    site = sites.management_only(1)
    choice = judged(site)
    assert choice.nodes[0].interface == "eno1"
    assert "no other node" in choice.nodes[0].why


def test_without_a_word_of_who_reached_whom_nothing_is_chosen() -> None:
    site = sites.two_sparks()
    site.silent = set(site.names)
    choice = judged(site)
    assert all(node.interface is None and "NCCL_SOCKET_IFNAME" not in node.environment for node in choice.nodes)
    assert {f.trouble for f in choice.grave} == {Trouble.NO_COMMON_NETWORK, Trouble.ABSENT}


def test_without_any_node_nothing_is_chosen_and_all_are_missed() -> None:
    choice = choose([], ["a", "b"])
    assert choice.nodes == ()
    assert {f.trouble for f in choice.grave} == {Trouble.NO_COMMON_NETWORK, Trouble.ABSENT}


def test_the_page_names_every_finding_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "interfaces.md").read_text().split("## What is found wrong")[1]
    rows = [row.split("|")[1] for row in page.split("## Limits")[0].splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(rows))) == sorted(trouble.value for trouble in Trouble)
