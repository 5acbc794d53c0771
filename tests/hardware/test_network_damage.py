"""Each thing that may be wrong with the networks of a cluster is a finding of its own, which names the node."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

import network_sites as sites
from surefoot.hardware.interfaces import NetworkChoice, choose
from surefoot.hardware.network_facts import NodeNetwork
from surefoot.hardware.network_view import Finding, Trouble

Damage = Callable[[sites.Site], object]


def judged(site: sites.Site) -> NetworkChoice:
    return choose(site.nodes(), site.names)


def only(choice: NetworkChoice, trouble: Trouble) -> Finding:
    found = [finding for finding in choice.findings if finding.trouble is trouble]
    assert len(found) == 1, choice.findings
    return found[0]


def set_of(site: sites.Site, node: str, interface: str, **values: object) -> None:
    site.get(node, interface).update(values)


def cut(*pairs: tuple[str, str], interface: str, outcome: str = "timed out") -> sites.Wire:
    return lambda caller, used, called, _: outcome if (caller, called) in pairs and used == interface else None


RAIL = "enp1s0f1np1"
DAMAGES: dict[str, tuple[Damage, Trouble, tuple[str, ...], str]] = {
    "a node that never wrote": (
        lambda s: s.silent.add("gpu03"), Trouble.ABSENT, ("gpu03",), "gpu03 never told where it is"
    ),
    "its own name is 127.0.1.1": (
        lambda s: s.resolved["gpu02"].update(gpu02=sites.known(["127.0.1.1"])),
        Trouble.OWN_NAME, ("gpu02",), "127.0.1.1",
    ),
    "the first node's name leads to docker0": (
        lambda s: s.resolved["gpu04"].update(gpu01=sites.known(["172.17.0.99"])),
        Trouble.NAME, ("gpu04",), "the name gpu01 leads to 172.17.0.99",
    ),
    "the first node's name leads back to the caller": (
        lambda s: s.resolved["gpu04"].update(gpu01=sites.known(["127.0.0.1"])),
        Trouble.NAME, ("gpu04",), "the name gpu01 leads to 127.0.0.1 (lo there)",
    ),
    "the first node's name leads to what every host has": (
        lambda s: s.resolved["gpu04"].update(gpu01=sites.known(["172.17.0.1"])),
        Trouble.NAME, ("gpu04",), "the name gpu01 leads to 172.17.0.1 (docker0 there)",
    ),
    "the first node's name is unknown": (
        lambda s: s.resolved["gpu04"].update(gpu01=sites.unknown("gaierror: Name or service not known")),
        Trouble.NAME, ("gpu04",), "leads to nothing",
    ),
    "one MTU is not the others'": (
        lambda s: set_of(s, "gpu02", "rail3", mtu=1500), Trouble.MTU, ("gpu02",),
        "10.103.0.0/16: the MTU is 9000 on gpu[01,03-04], 1500 on gpu02",
    ),
    "one link is slower": (
        lambda s: set_of(s, "gpu02", "rail3", speed_mbit_s=sites.known(100_000)), Trouble.SPEED, ("gpu02",),
        "100000 Mbit/s on gpu02",
    ),
    "one link is down": (
        lambda s: s.unplug("gpu02", "rail3"), Trouble.LINK_DOWN, ("gpu02",), "rail3 has a link on gpu[01,03-04]"
    ),
    "one interface is switched off": (
        lambda s: set_of(s, "gpu02", "storage1", up=False, carrier=False), Trouble.LINK_DOWN, ("gpu02",),
        "switched off on gpu02",
    ),
    "one way only": (
        lambda s: setattr(s, "wire", cut(("gpu01", "gpu02"), interface="rail3")), Trouble.ONE_WAY, ("gpu01", "gpu02"),
        "10.103.0.0/16: gpu01 does not reach gpu02, while the other way works (timed out)",
    ),
    "two do not reach each other": (
        lambda s: setattr(
            s, "wire", cut(("gpu01", "gpu02"), ("gpu02", "gpu01"), interface="rail3", outcome="unreachable")
        ),
        Trouble.UNREACHABLE, ("gpu01", "gpu02"), "gpu01 does not reach gpu02 (unreachable)",
    ),
    "large packets are lost": (
        lambda s: setattr(s, "wire", cut(("gpu01", "gpu02"), interface="rail3", outcome="cut off")),
        Trouble.CUT_OFF, ("gpu01", "gpu02"), "small packets arrive and large ones do not",
    ),
    "two hosts have one address": (
        lambda s: s.move("gpu02", "storage0", "10.208.0.1"), Trouble.ADDRESS_TWICE, ("gpu01", "gpu02"), "10.208.0.1"
    ),
    "an address is missing": (
        lambda s: set_of(s, "gpu02", "storage0", addresses=[]), Trouble.SUBNET_PARTIAL, ("gpu02",),
        "10.208.0.0/16 is on gpu[01,03-04]",
    ),
    "two interfaces in one subnet": (
        lambda s: [s.move(n, "rail1", f"10.100.9.{n[-1]}") for n in s.names], Trouble.SUBNET_TWICE,
        ("gpu01", "gpu02", "gpu03", "gpu04"), "rail0, rail1",
    ),
    "a rail is down": (
        lambda s: s.unplug("gpu02", "rail3"), Trouble.RAIL_DOWN, ("gpu02",), "rail mlx5_3 is down (Disabled)"
    ),
    "an adapter is gone": (
        lambda s: s.hcas["gpu02"].pop(3), Trouble.RAIL_MISSING, ("gpu02",), "gpu02 has no rail 10.103.0.0/16 (mlx5_3)"
    ),
    "a rail is slower": (
        lambda s: s.port("gpu02", "mlx5_3").update(rate_gbit_s=sites.known(200.0)), Trouble.RAIL_SLOWER, ("gpu02",),
        "400 Gbit/s on gpu[01,03-04], 200 Gbit/s on gpu02",
    ),
    "a rail has no address": (
        lambda s: s.port("gpu02", "mlx5_3")["gids"].update(value=s.port("gpu02", "mlx5_3")["gids"]["value"][:2]),
        Trouble.RAIL_ADDRESS, ("gpu02",), "no RoCE v2 GID with an IPv4 address (interface rail3)",
    ),
    "a rail reaches nobody": (
        lambda s: setattr(s, "wire", lambda a, i, b, _: "timed out" if "gpu02" in (a, b) and i == "rail3" else None),
        Trouble.RAIL_UNREACHED, ("gpu02",), "from rail mlx5_3, no neighbour is reached",
    ),
    "devices cannot be read": (
        lambda s: s.hcas["gpu02"][0].update(ports=sites.unknown("PermissionError: ports")), Trouble.RAILS_UNKNOWN,
        ("gpu02",), "PermissionError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_it_is_named(what: str) -> None:
    damage, trouble, nodes, text = DAMAGES[what]
    site = sites.h100(roce=True)
    assert judged(site).findings == (), "nothing is named where nothing is wrong"
    damage(site)
    found = only(judged(site), trouble)
    assert found.nodes == nodes
    assert text in found.text
    assert found.next_action


def test_a_rail_that_is_down_or_reaches_nobody_is_not_in_the_environment() -> None:
    for damage in ("a rail is down", "a rail reaches nobody", "a rail has no address"):
        site = sites.h100(roce=True)
        DAMAGES[damage][0](site)
        choice = judged(site)
        assert "mlx5_3" not in choice.node("gpu02").environment["NCCL_IB_HCA"]
        assert "mlx5_3" in choice.node("gpu01").environment["NCCL_IB_HCA"]


def test_a_pair_that_no_network_connects_leaves_all_without_a_choice_and_is_named() -> None:
    site = sites.management_only(3)
    site.wire = cut(("n1", "n3"), ("n3", "n1"), interface="eno1")
    choice = judged(site)
    assert all(node.interface is None and node.environment == {} for node in choice.nodes)
    found = only(choice, Trouble.NO_COMMON_NETWORK)
    assert "n1 does not reach n3 at 10.1.0.3 (timed out)" in found.text
    assert "n2" not in found.text.replace("n2 does", "")


def test_docker_is_never_a_network_between_nodes_also_where_it_is_all_that_they_share() -> None:
    site = sites.management_only(2)
    for node in site.names:
        site.drop(node, "eno1")
    choice = judged(site)
    assert choice.nodes[0].interface is None
    assert only(choice, Trouble.NO_COMMON_NETWORK).text == (
        "no node has an interface that is fit to meet over: see why each was left out"
    )


def test_nodes_that_share_no_subnet_and_have_no_way_between_are_named() -> None:
    site = sites.management_only(2)
    site.move("n2", "eno1", "10.9.0.2")
    choice = judged(site)
    text = only(choice, Trouble.NO_COMMON_NETWORK).text
    assert "n1 does not reach n2 at 10.9.0.2 (timed out)" in text
    assert choice.nodes[0].environment == {}


@pytest.mark.parametrize("node", ["spark-1", "spark-2"])
def test_of_two_nodes_too_the_one_whose_rail_is_down_is_named(node: str) -> None:
    site = sites.two_sparks()
    site.unplug(node, RAIL)
    choice = judged(site)
    assert only(choice, Trouble.RAIL_DOWN).nodes == (node,)
    assert only(choice, Trouble.LINK_DOWN).nodes == (node,)
    assert choice.node(node).environment["NCCL_IB_HCA"] == "=roceP2p1s0f1"


def test_a_rail_in_the_wrong_subnet_is_named_and_not_used() -> None:
    site = sites.two_sparks()
    site.move("spark-2", RAIL, "192.168.187.12")
    choice = judged(site)
    assert {f.trouble for f in choice.grave} >= {Trouble.SUBNET_PARTIAL, Trouble.RAIL_UNREACHED}
    assert [node.environment["NCCL_IB_HCA"] for node in choice.nodes] == ["=roceP2p1s0f1", "=roceP2p1s0f1"]


def test_a_cable_that_somebody_plugged_into_a_spare_port_is_no_rail_and_no_finding() -> None:
    site = sites.two_sparks()
    set_of(site, "spark-1", "enp1s0f0np0", carrier=True, state="up", speed_mbit_s=sites.known(200_000))
    site.hcas["spark-1"] = [hca for hca in site.hcas["spark-1"] if hca["name"] != "rocep1s0f0"]
    site.hca("spark-1", "rocep1s0f0", "enp1s0f0np0")
    choice = judged(site)
    assert choice.findings == ()
    assert [node.environment["NCCL_IB_HCA"] for node in choice.nodes] == ["=rocep1s0f1,roceP2p1s0f1"] * 2
    reasons = {row.name: row.why for row in choice.node("spark-1").ports_left_out}
    assert reasons["rocep1s0f0"] == "it has no RoCE v2 GID with an IPv4 address"


def test_faster_ports_that_no_node_gave_an_address_do_not_hide_the_rails() -> None:
    site = sites.two_sparks()
    for node in site.names:
        set_of(site, node, "enp1s0f0np0", carrier=True, state="up")
        site.hcas[node] = [hca for hca in site.hcas[node] if hca["name"] != "rocep1s0f0"]
        site.hca(node, "rocep1s0f0", "enp1s0f0np0", rate=400.0)
    assert [len(node.rails) for node in judged(site).nodes] == [2, 2]


def test_where_no_rail_has_an_address_none_is_named_and_each_port_says_why() -> None:
    site = sites.two_sparks()
    for node in site.names:
        for hca in ("rocep1s0f1", "roceP2p1s0f1"):
            site.port(node, hca)["gids"] = sites.known([])
    choice = judged(site)
    assert all(node.rails == () and "NCCL_IB_HCA" not in node.environment for node in choice.nodes)
    assert "NCCL will use sockets" in choice.nodes[0].why_rails
    reasons = {row.name: row.why for row in choice.nodes[0].ports_left_out}
    assert reasons["rocep1s0f1"] == "it has no RoCE v2 GID with an IPv4 address"


def test_one_leg_of_a_bond_without_a_link_is_named() -> None:
    site = sites.h100()
    set_of(site, "gpu02", "eno2", carrier=False, state="down")
    assert (
        only(judged(site), Trouble.LINK_DOWN).text == "eno2 has a link on gpu[01,03-04], and is without a link on gpu02"
    )


def test_a_gid_index_that_differs_between_rails_is_left_to_nccl_and_said() -> None:
    site = sites.two_sparks()
    for gid in site.port("spark-2", "rocep1s0f1")["gids"]["value"][2:]:
        gid["index"] += 2
    choice = judged(site)
    assert not only(choice, Trouble.GID_DIFFERS).grave
    assert "NCCL_IB_GID_INDEX" not in choice.node("spark-2").environment
    assert choice.node("spark-1").environment["NCCL_IB_GID_INDEX"] == "3"


def test_a_storage_network_of_a_minority_is_worth_knowing_and_no_more() -> None:
    site = sites.management_only(3)
    site.add("n1", "nfs0", "10.77.0.1/24")
    choice = judged(site)
    assert choice.grave == ()
    assert only(choice, Trouble.SUBNET_PARTIAL).nodes == ("n2", "n3")


def test_among_many_nodes_of_eight_rails_the_odd_one_is_named() -> None:
    site = sites.h100(40, roce=True)
    set_of(site, "gpu27", "rail3", mtu=1500)
    nodes = site.nodes()
    choice = choose(nodes, site.names)
    assert only(choice, Trouble.MTU).nodes == ("gpu27",)
    assert {node.interface for node in choice.nodes} == {"bond0"}


DAMAGED_CALL: dict[str, Callable[[dict[str, object]], object]] = {
    "refused": lambda call: call.update(outcome="refused"),
    "another host's nonce": lambda call: call.update(greeted="nonce-n3" if call["node"] != "n3" else "nonce-n1"),
    "no nonce": lambda call: call.update(greeted=None),
    "another interface": lambda call: call.update(interface="docker0"),
    "another address": lambda call: call.update(address="10.1.0.99"),
    "another node": lambda call: call.update(node="n9"),
}


@pytest.mark.parametrize("what", DAMAGED_CALL)
def test_one_call_that_does_not_prove_its_pair_undoes_the_choice(what: str) -> None:
    site = sites.management_only(3)
    whole = [node.model_dump(mode="json") for node in site.nodes()]
    count = sum(len(node["reach"]["calls"]) for node in whole)
    undone = 0
    for number in range(count):
        nodes = copy.deepcopy(whole)
        call = [call for node in nodes for call in node["reach"]["calls"]][number]
        if call["interface"] == "eno1":
            DAMAGED_CALL[what](call)
            choice = choose([NodeNetwork.model_validate(node) for node in nodes], site.names)
            assert all(node.interface is None for node in choice.nodes)
            assert only(choice, Trouble.NO_COMMON_NETWORK)
            undone += 1
    assert undone == 6


@pytest.mark.parametrize("key", ["calls", "neighbours"])
def test_who_called_nobody_proves_nothing(key: str) -> None:
    site = sites.management_only(3)
    nodes = [node.model_dump(mode="json") for node in site.nodes()]
    nodes[1]["reach"][key] = []
    choice = choose([NodeNetwork.model_validate(node) for node in nodes], site.names)
    assert all(node.environment == {} for node in choice.nodes)
    assert "n2" in only(choice, Trouble.NO_COMMON_NETWORK).text


def test_another_nodes_word_is_not_taken_for_a_nodes_own() -> None:
    nodes = [node.model_dump(mode="json") for node in sites.management_only(3).nodes()]
    nodes[1]["reach"] = nodes[0]["reach"]
    with pytest.raises(ValueError, match="whom n1 reached is not what n2 reached"):
        NodeNetwork.model_validate(nodes[1])
