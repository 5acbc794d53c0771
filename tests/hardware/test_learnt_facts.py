"""A claim is what more than half of the nodes have; everything else is said and not claimed."""

from __future__ import annotations

from surefoot.hardware.fleet_values import Unknown
from surefoot.hardware.learnt_facts import claims_of


def test_the_minority_is_named_beside_the_claim() -> None:
    told = {f"gpu{i}": {"driver": "580.142" if i in (17, 41) else "580.159.03"} for i in range(64)}
    expect, notes = claims_of(told)
    assert expect == {"driver": "580.159.03"}
    assert notes["expect.driver"] == ("62 of 64 nodes; 580.142 on gpu[17,41]",)


def test_a_tie_what_is_unknown_and_what_the_job_decides_are_never_claimed() -> None:
    told = {n: {"kernel": n, "nccl": Unknown("no torch"), "cpus": "8", "variable A": "1"} for n in ("a", "b")}
    expect, notes = claims_of(told)
    assert expect == {}
    said = " | ".join(notes["expect"])
    assert all(name in said for name in ("kernel", "no torch", "cpus", "variable A"))


def test_gpus_that_are_alike_are_one_pattern_and_those_that_are_not_are_numbered() -> None:
    node = {"gpu0.vbios": "96", "gpu1.vbios": "96", "gpu0.numa_node": "0", "gpu1.numa_node": "1"}
    expect, notes = claims_of({"a": node, "b": node, "c": {**node, "gpu1.vbios": "95"}})
    assert expect == {"gpu*.vbios": "96", "gpu0.numa_node": "0", "gpu1.numa_node": "1"}
    assert notes["expect.gpu*.vbios"] == ("2 of 3 nodes; 96 and 95 on c",)


def test_a_path_that_looks_like_a_pattern_means_itself() -> None:
    assert claims_of({"a": {"mount /d[1]": "nfs"}})[0] == {"mount /d[[]1]": "nfs"}
