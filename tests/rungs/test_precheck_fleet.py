"""Nodes of one group are alike, or the odd one is named; what the cluster file expects holds, or where it doesn't is named."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from surefoot.hardware.fleet import Told, Unknown
from surefoot.model.check import Check, Evidence
from surefoot.model.status import Status
from surefoot.rungs.precheck_fleet import Facts, alike, expected, fleet

DRIVER = {"driver": "580.159.03", "kernel": "6.8.0", "gpu0.vbios": "96.00", "gpu1.vbios": "96.00"}


def facts(told: Mapping[str, Told], group_of: Mapping[str, str] | None = None) -> Facts:
    groups = group_of or dict.fromkeys(told, "gpu")
    return Facts(told, groups, lambda host, text: Evidence(file=f"raw/precheck/{host}", text=text))


def checks(told: Mapping[str, Told], *may_differ: str, group_of: Mapping[str, str] | None = None) -> dict[str, Check]:
    given = facts(told, group_of)
    return {check.id: check for check in alike(fleet(given, may_differ), given)}


def test_nodes_that_agree_are_one_check_that_says_in_how_much() -> None:
    found = checks({f"gpu{i}": DRIVER for i in range(64)})
    assert set(found) == {"precheck.alike"}
    assert found["precheck.alike"].status is Status.PASSED
    assert found["precheck.alike"].actual == "4 facts on gpu[0-63]"
    assert 1 <= len(found["precheck.alike"].evidence) <= 16


def test_two_odd_nodes_of_sixty_four_are_named_with_both_values() -> None:
    told = {f"gpu{i}": {**DRIVER, "driver": "580.142"} if i in (17, 41) else DRIVER for i in range(64)}
    check = checks(told)["precheck.alike.driver"]
    assert check.status is Status.FAILED
    assert check.actual == "driver 580.159.03 on 62 nodes, 580.142 on gpu[17,41]"
    assert {ref.file for ref in check.evidence} == {f"raw/precheck/gpu{i}" for i in (0, 17, 41)}
    assert "gpu[17,41]" in check.next_action
    assert check.nodes == ("gpu17", "gpu41")


def test_odd_nodes_are_named_as_the_scheduler_calls_them() -> None:
    told = {f"gpu{i}.site": {"driver": "1" if i == 2 else "2"} for i in range(3)}
    given = Facts(
        told, dict.fromkeys(told, "gpu"), facts(told).reference, {f"gpu{i}.site": f"slurm{i}" for i in range(3)}
    )
    (check,) = (check for check in alike(fleet(given, ()), given) if check.status is Status.FAILED)
    assert check.nodes == ("slurm2",)
    (check,) = expected(given, {"gpu": {"driver": "1"}})
    assert check.nodes == ("slurm0", "slurm1")


def test_two_nodes_that_differ_have_no_majority_and_both_are_named() -> None:
    check = checks({"a": DRIVER, "b": {**DRIVER, "kernel": "6.5.0"}})["precheck.alike.kernel"]
    assert check.status is Status.FAILED
    assert "no majority" in str(check.actual)
    assert check.nodes == ()


def test_a_fact_that_may_differ_is_no_claim() -> None:
    told = {"a": DRIVER, "b": {**DRIVER, "gpu0.vbios": "97.00", "gpu1.vbios": "97.00"}}
    assert set(checks(told, "gpu*.vbios")) == {"precheck.alike"}
    assert any("vbios" in name for name in checks(told))


def test_a_node_that_does_not_tell_what_others_tell_is_no_pass() -> None:
    check = checks({"a": DRIVER, "b": {**DRIVER, "driver": Unknown("NVML failed")}})["precheck.alike.untold"]
    assert check.status is Status.INCONCLUSIVE
    assert "NVML failed" in str(check.actual)


def test_what_no_node_can_tell_is_no_claim_and_no_pass() -> None:
    told = {host: {"driver": Unknown("NVML failed")} for host in ("a", "b")}
    assert checks(told) == {}


def test_one_node_alone_is_like_nobody() -> None:
    assert checks({"a": DRIVER}) == {}


def test_unlike_groups_are_not_compared_with_each_other() -> None:
    told = {"a": DRIVER, "b": DRIVER, "c": {"driver": "1"}, "d": {"driver": "1"}}
    found = checks(told, group_of={"a": "x", "b": "x", "c": "y", "d": "y"})
    assert set(found) == {"precheck.alike"}


@pytest.mark.parametrize(
    ("key", "text", "status", "words"),
    [
        ("driver", "580.159.03", Status.PASSED, "580.159.03"),
        ("gpu*.vbios", "96.00", Status.PASSED, "96.00"),
        ("driver", "581.0", Status.FAILED, "580.159.03 on n[0-2]"),
        ("gpu*.vbios", "97.00", Status.FAILED, "96.00 on n[0-2]"),
        ("gpu*.colour", "green", Status.INCONCLUSIVE, "no such fact there on n[0-2]"),
    ],
)
def test_what_the_cluster_file_expects_is_compared_on_every_node_of_the_group(
    key: str, text: str, status: Status, words: str
) -> None:
    (check,) = expected(facts({f"n{i}": DRIVER for i in range(3)}), {"gpu": {key: text}, "elsewhere": {key: "x"}})
    assert (check.id, check.status, check.actual) == (f"precheck.expect.gpu.{key}", status, words)


def test_an_expected_fact_that_one_node_cannot_tell_is_not_proved() -> None:
    told: dict[str, Told] = {"a": DRIVER, "b": {"driver": Unknown("NVML failed")}}
    (check,) = expected(facts(told), {"gpu": {"driver": "580.159.03"}})
    assert check.status is Status.INCONCLUSIVE
    assert check.actual == "NVML failed on b"
