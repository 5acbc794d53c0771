"""The pre-check on the seed's two nodes with thirty interfaces: what ranks are to use is said, and what is wrong fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import network_sites as sites
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.network_facts import NodeNetwork
from surefoot.hardware.network_view import Trouble
from surefoot.model.check import Check, Evidence
from surefoot.model.status import Status
from surefoot.rungs.precheck_network import _CLAIMS, chosen, network_checks, networks


def facts(node: NodeNetwork) -> NodeFacts:
    """What a probe tells that found these networks and nothing else."""
    unknown = {"value": None, "unknown": "not looked for in this test"}
    told = {
        "interfaces": {"value": [i.model_dump(mode="json") for i in node.interfaces]},
        "routes": {"value": [r.model_dump(mode="json") for r in node.routes]},
        "hcas": node.hcas.model_dump(mode="json"),
        "reach": {"value": node.reach.model_dump(mode="json")} if node.reach else unknown,
        "variables": {"value": node.environment},
    }
    return NodeFacts.model_validate({**dict.fromkeys(NodeFacts.model_fields, unknown), **told})


def judged(site: sites.Site) -> dict[str, Check]:
    told = {node.node: facts(node) for node in site.nodes()}
    assert networks(told) == tuple(site.nodes())
    found = network_checks(told, chosen(told), lambda node, text: Evidence(file=f"raw/precheck/{node}.json", text=text))
    return {check.id.removeprefix("precheck."): check for check in found}


def test_the_seeds_two_nodes_pass_and_are_told_what_it_had_to_pin_by_name() -> None:
    site = sites.two_sparks()
    checks = judged(site)
    assert {name: check.status for name, check in checks.items()} == {"network": Status.PASSED}
    environment = chosen({node.node: facts(node) for node in site.nodes()}).nodes[0].environment
    assert environment["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert set(environment["NCCL_IB_HCA"].removeprefix("=").split(",")) == {"rocep1s0f1:1", "roceP2p1s0f1:1"} or set(
        environment["NCCL_IB_HCA"].removeprefix("=").split(",")
    ) == {"rocep1s0f1", "roceP2p1s0f1"}


DAMAGES: dict[Trouble, Callable[[sites.Site], object]] = {
    Trouble.MTU: lambda s: s.get(s.names[1], "enp1s0f1np1").update(mtu=1500),
    Trouble.OWN_NAME: lambda s: s.resolved[s.names[1]].update({s.names[1]: sites.known(["127.0.1.1"])}),
    Trouble.PIN_MISSING: lambda s: s.environment[s.names[1]].update(NCCL_SOCKET_IFNAME="=enP9s9"),
    Trouble.RAIL_DOWN: lambda s: s.port(s.names[1], "rocep1s0f1").update(state=sites.known("DOWN")),
}


@pytest.mark.parametrize("trouble", DAMAGES)
def test_what_is_wrong_on_one_node_fails_a_check_of_its_own_that_names_it(trouble: Trouble) -> None:
    site = sites.two_sparks()
    DAMAGES[trouble](site)
    check = judged(site)[f"network.{trouble}"]
    assert check.status is Status.FAILED
    assert site.names[1] in str(check.actual)
    assert any(ref.file == f"raw/precheck/{site.names[1]}.json" for ref in check.evidence)
    assert check.next_action
    # An MTU that differs is no more this node's fault than the other's; a pin is the cluster file's.
    assert check.nodes == (() if trouble in (Trouble.MTU, Trouble.PIN_MISSING) else (site.names[1],))


def test_a_node_that_could_not_try_makes_no_pass() -> None:
    site = sites.two_sparks()
    site.silent.add(site.names[1])
    check = judged(site)["network"]
    assert check.status is Status.INCONCLUSIVE
    assert site.names[1] in str(check.actual)


def test_every_trouble_has_a_claim() -> None:
    assert set(_CLAIMS) == set(Trouble)


def test_a_node_alone_makes_no_claim() -> None:
    site = sites.management_only(1)
    assert judged(site) == {}
