"""A rail that the cluster file declares is missed also where all nodes lack it, and agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import network_sites as sites
from recorded_fleet import nodes, precheck_view
from surefoot.config.load import load_cluster
from surefoot.hardware.interfaces import choose
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster, NodeGroup, Rail
from surefoot.model.status import Status
from surefoot.rungs.precheck import RUNG
from surefoot.rungs.precheck_rails import rails_declared

RAILS = (
    Rail(name="rail0", rate_gbit_s=200, hca="rocep1s0f1", subnet="192.168.177.0/24"),
    Rail(name="rail1", rate_gbit_s=200, hca="roceP2p1s0f1", subnet="192.168.178.0/24"),
)
EVIDENCE = Evidence(file="raw/precheck/rank-0.json")


def judged(site: sites.Site, rails: tuple[Rail, ...] = RAILS, node: int = 0) -> list[Check]:
    nodes = site.nodes()
    choice = choose(nodes, site.names).nodes[node]
    group = NodeGroup(name="sparks", count=2, rails=rails)
    return rails_declared(node, group, nodes[node].hcas, choice, EVIDENCE)


def test_two_sparks_have_the_rails_that_their_shipped_file_declares() -> None:
    (check,) = judged(sites.two_sparks())
    assert (check.id, check.status) == ("precheck.node0.rails", Status.PASSED)
    assert check.actual == "rocep1s0f1 200 Gbit/s, roceP2p1s0f1 200 Gbit/s"
    assert check.evidence


def both(change: Callable[[sites.Site, str], Any]) -> Callable[[sites.Site], None]:
    def damage(site: sites.Site) -> None:
        for node in site.names:
            change(site, node)

    return damage


DAMAGES: dict[str, tuple[Callable[[sites.Site], None], str]] = {
    "both cables of a rail are pulled": (
        both(lambda s, n: s.unplug(n, "enP2p1s0f1np1")),
        "rail1: roceP2p1s0f1 is there and not in use: down (Disabled)",
    ),
    "both adapters are gone": (
        both(lambda s, n: s.hcas[n].pop(1)), "rail1: roceP2p1s0f1 is not there; rails of this node: rocep1s0f1"
    ),
    "both run at half their rate": (
        both(lambda s, n: [s.port(n, h["name"]).update(rate_gbit_s=sites.known(100.0)) for h in s.hcas[n][:2]]),
        "rail0: rocep1s0f1 runs at 100 of 200 Gbit/s; rail1: roceP2p1s0f1 runs at 100 of 200 Gbit/s",
    ),
    "both are in another subnet": (
        both(lambda s, n: s.move(n, "enp1s0f1np1", f"10.9.9.{n[-1]}")),
        "rail0: rocep1s0f1 has 10.9.9.1, which is not in 192.168.177.0/24",
    ),
    "no RDMA driver anywhere": (
        both(lambda s, n: s.hcas[n].clear()), "rail0: rocep1s0f1 is not there; rails of this node: none"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_what_both_nodes_lack_is_named_although_they_agree(what: str) -> None:
    damage, text = DAMAGES[what]
    site = sites.two_sparks()
    damage(site)
    (check,) = judged(site)
    assert check.status is Status.FAILED
    assert text in str(check.actual)
    assert check.next_action


def test_a_rail_may_be_declared_by_its_subnet_or_by_its_rate_alone() -> None:
    by_subnet = tuple(rail.model_copy(update={"hca": ""}) for rail in RAILS)
    by_rate = tuple(Rail(name=f"rail{n}", rate_gbit_s=200) for n in range(2))
    for rails in (by_subnet, by_rate, (by_rate[0], RAILS[0])):
        assert [check.status for check in judged(sites.two_sparks(), rails)] == [Status.PASSED]
    (check,) = judged(sites.two_sparks(), (*by_rate, Rail(name="rail2", rate_gbit_s=200)))
    assert "rail2: another port is not there" in str(check.actual)


def test_a_subnet_that_is_none_is_shown() -> None:
    (check,) = judged(sites.two_sparks(), (RAILS[0].model_copy(update={"subnet": "rail zero"}),))
    assert check.actual == "rail0: rocep1s0f1 has 192.168.177.11, which is not in rail zero"


def test_a_group_without_rails_makes_no_claim_and_devices_that_cannot_be_read_prove_nothing() -> None:
    assert judged(sites.management_only(), ()) == []
    site = sites.two_sparks()
    site.hcas["spark-1"][3]["ports"] = sites.unknown("PermissionError: ports")
    (check,) = judged(site)
    assert check.status is Status.INCONCLUSIVE
    assert "PermissionError" in str(check.actual)


def test_the_rails_here_are_those_of_the_shipped_file() -> None:
    cluster = load_cluster("two-sparks").record
    assert cluster.node_groups[0].rails == RAILS


def test_groups_with_other_numbers_of_rails_are_each_held_to_their_own_by_host(tmp_path: Path) -> None:
    """Nodes that have eight; groups that declare eight and nine."""
    view = precheck_view(nodes(4), tmp_path)

    def statuses(first: str, second: str) -> dict[str, Status]:
        groups = [
            {"name": name, "count": 2, "hosts": hosts, "gpus_per_node": 8, "rails": _declared(count)}
            for name, hosts, count in (("eight", first, 8), ("nine", second, 9))
        ]
        cluster = Cluster.model_validate(view.inputs.cluster.canonical() | {"node_groups": groups})
        asked = replace(view, inputs=view.inputs.model_copy(update={"cluster": cluster}))
        checks = RUNG.judge(RUNG.read(asked), asked).checks
        return {check.id: check.status for check in checks if check.id.endswith(".rails")}

    passed, failed = Status.PASSED, Status.FAILED
    order = [f"precheck.node{number}.rails" for number in range(4)]
    assert statuses("gpu[01-02]", "gpu[03-04]") == dict(zip(order, [passed, passed, failed, failed], strict=True))
    assert statuses("gpu[01,04]", "gpu[02-03]") == dict(zip(order, [passed, failed, failed, passed], strict=True))


def _declared(count: int) -> list[dict[str, Any]]:
    return [{"name": f"rail{n}", "rate_gbit_s": 400, "hca": f"mlx5_{n}"} for n in range(count)]
