"""Claims of a prolog from a cluster file: what the file says and no more, and what it does not say is named."""

from __future__ import annotations

import re
from typing import Any

import pytest

from surefoot.engine.prolog_derived import Derived, derived
from surefoot.errors import RequestError
from surefoot.model.cluster import Cluster
from surefoot.node.prolog_claims import CLAIMS, problem

FULL: dict[str, Any] = {
    "name": "gpu",
    "count": 2,
    "hosts": "gpu[01-02]",
    "gpus_per_node": 8,
    "gpu_model": "H200",
    "rails": [{"name": "a", "rate_gbit_s": 400, "hca": "mlx5_0"}, {"name": "b", "rate_gbit_s": 400}],
    "expect": {
        "gpu*.ecc": "on",
        "gpu*.persistence": "yes",
        "driver.library": "580.95.05",
        "mount /home": "nfs4 server:/home rw",
        "mount /a[[]b": "nfs4 server:/ab rw",
        "mount /none": "none",
        "mount /x*": "nfs4 server:/x rw",
        "memlock": "unlimited",
        "clock.synchronised": "yes",
        "kernel": "6.1",
    },
}


def cluster(*groups: dict[str, Any], **more: Any) -> Cluster:
    return Cluster.model_validate({"name": "c", "root": "/srv/c", "node_groups": list(groups), **more})


def of(group: dict[str, Any], **more: Any) -> Derived:
    (found,) = derived(cluster(group, **more))
    return found


def test_every_claim_comes_from_what_the_file_says() -> None:
    found = of(
        FULL, software={"driver": "580.95.05"}, env={"GLOO_SOCKET_IFNAME": "eth0,eth1", "NCCL_SOCKET_IFNAME": "=eth1"}
    )
    assert found.hosts == ("gpu01", "gpu02")
    assert {name: value for name, value in found.claims.items() if name != "xids"} == {
        "gpus": 8, "gpu_model": "H200", "rows": True, "ecc": True, "persistence": True, "driver": "580.95.05",
        "mounts": ["/home", "/a[b"], "interfaces": ["eth0", "eth1"],
        "rails": [{"hca": "mlx5_0", "rate_gbit_s": 400.0}], "memlock": "unlimited", "clock": True,
    }  # fmt: skip
    assert 79 in found.claims["xids"]
    assert 31 not in found.claims["xids"], "a program's own fault"
    assert [problem(name, value) for name, value in found.claims.items() if problem(name, value)] == []
    assert set(found.why) == set(found.claims) == set(CLAIMS)
    assert "not of b, as no hca is written there" in found.why["rails"]
    assert found.not_claimed == ()


def test_what_the_file_does_not_say_is_not_claimed_and_named() -> None:
    found = of(
        {"name": "cpu", "count": 1, "hosts": "n1", "rails": [{"name": "a", "rate_gbit_s": 1}]},
        software={"driver": "580.95.05"},
        env={"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": ""},
    )
    assert found.claims == {}, "nor the driver, as it has no GPUs"
    assert [text.split(":")[0] for text in found.not_claimed] == list(CLAIMS)


@pytest.mark.parametrize(
    ("group", "gpus"),
    [
        ({"gpus_per_node": 4, "gpus_on_bus": 8}, 8),  # jobs see a part, root sees all
        ({"gpus_per_node": 1, "gpus_on_bus": 0}, 1),  # no PCI device
        ({"gpus_per_node": 7, "expect": {"gpu*.mig": "on"}}, None),  # parts are no GPUs
        ({"gpus_per_node": 7, "gpus_on_bus": 1, "expect": {"gpu*.mig": "on"}}, 1),
        ({"gpus_per_node": "detect"}, None),
    ],
)
def test_gpus_are_those_that_the_driver_sees(group: dict[str, Any], gpus: int | None) -> None:
    assert of({"name": "g", "count": 1, "hosts": "n1", **group}).claims.get("gpus") == gpus


@pytest.mark.parametrize("value", ["none", "", "0", "-1", "many"])
def test_a_memlock_that_is_no_size_is_not_claimed(value: str) -> None:
    assert "memlock" not in of({"name": "g", "count": 1, "hosts": "n1", "expect": {"memlock": value}}).claims


def test_a_clock_that_is_expected_to_be_off_is_no_claim() -> None:
    assert "clock" not in of({**FULL, "expect": {"clock.synchronised": "no"}}).claims


@pytest.mark.parametrize(
    ("groups", "software", "words"),
    [
        ([{**FULL, "hosts": ""}], {}, "node group gpu has no hosts"),
        ([FULL, {**FULL, "name": "b", "hosts": "gpu[02-03]"}], {}, "gpu02 is in group gpu and in group b"),
        ([FULL, {**FULL, "hosts": "n1"}], {}, "the name gpu twice"),
        ([{**FULL, "name": "../x"}], {}, "its claims file cannot be called so"),
        ([{**FULL, "hosts": "a;reboot"}], {}, "'a;reboot', which is no name of a node"),
        ([FULL], {"driver": "1.0"}, "software.driver says 1.0; expect, driver.library says 580.95.05"),
    ],
)
def test_what_cannot_be_made_into_one_claims_file_a_node_is_refused(
    groups: list[dict[str, Any]], software: dict[str, str], words: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        derived(cluster(*groups, software=software))
