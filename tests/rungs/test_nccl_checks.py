"""What NCCL's log settles as checks: with the lines, or with what else there is to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nccl_written import Job
from rungs_harness import planned, with_files
from surefoot.benchmarks.nccl_claims import no_sockets
from surefoot.benchmarks.nccl_log import read_log
from surefoot.model.cluster import Cluster
from surefoot.model.status import Status
from surefoot.rungs.collectives import RUNG
from surefoot.rungs.nccl_checks import as_check, network_asked, network_findings


def test_a_check_names_file_and_line_and_one_without_lines_what_else_to_look_at(tmp_path: Path) -> None:
    name, text = "raw/collectives/x.out", Job().text()
    view = with_files(planned(RUNG, {}, tmp_path), {name: text.encode()})
    good = as_check("a", no_sockets(read_log({name: text})), view, name="transport")
    assert (good.id, good.status, good.next_action) == ("a.transport", Status.PASSED, "")
    first = good.evidence[0]
    assert first.file.endswith(name)
    assert first.line is not None
    assert text.split("\n")[first.line - 1] == first.text
    otherwise = (view.evidence.ref(name),)
    silent = as_check("a", no_sockets(read_log({name: ""})), view, otherwise=otherwise)
    assert (silent.id, silent.status, silent.evidence) == ("a.sockets", Status.INCONCLUSIVE, otherwise)
    assert "NCCL_DEBUG" in silent.next_action


def cluster(*groups: dict[str, Any]) -> Cluster:
    named = [{"name": f"g{number}", "count": 1, **group} for number, group in enumerate(groups)]
    return Cluster.model_validate({"name": "c", "root": "r", "node_groups": named})


def found(job: Job, *groups: dict[str, Any], sockets: bool = False, hosts: tuple[str, ...] = ("n1", "n2")) -> Any:
    expect = {"sockets": sockets, "network": network_asked(cluster(*groups))}
    return {f.name: f for f in network_findings(read_log({"log": job.text()}), expect, hosts)}


def two(*hcas: str, **more: Any) -> dict[str, Any]:
    return {"rails": [{"name": f"r{i}", "rate_gbit_s": 200, "hca": hca} for i, hca in enumerate(hcas)], **more}


def test_one_rail_of_two_that_carries_fails_on_each_node() -> None:
    one = Job(devices=("IB/0/GDRDMA", "IB/0/GDRDMA"))
    assert found(Job(), two("mlx5_0", "mlx5_1"))["rails"].status is Status.PASSED
    for group in (two("mlx5_0", "mlx5_1"), {}):
        failed = found(one, group)["rails"]
        assert failed.status is Status.FAILED
        assert "n1: nothing sends over mlx5_1:1" in failed.shown
        assert "n2: nothing sends over mlx5_1:1" in failed.shown
    assert found(one, two("mlx5_0"))["rails"].status is Status.PASSED


def test_a_declared_rail_that_nccl_did_not_find_is_named() -> None:
    failed = found(Job(), two("mlx5_0", "mlx5_7"))["rails"]
    assert failed.status is Status.FAILED
    assert "NCCL did not find mlx5_7:1" in failed.shown


def test_gpudirect_is_claimed_only_where_every_group_expects_it() -> None:
    bounced = Job(devices=("IB/0", "IB/1"))
    expected = two("mlx5_0", "mlx5_1", gpudirect="expected")
    assert found(bounced, expected)["gdr"].status is Status.FAILED
    assert found(Job(), expected)["gdr"].status is Status.PASSED
    for other in ({}, two("mlx5_0", "mlx5_1", gpudirect="never")):
        assert "gdr" not in found(bounced, other)
        assert "gdr" not in found(bounced, expected, other)


def test_gpudirect_of_a_group_that_expects_it_is_judged_on_its_own_nodes_and_told_of_the_others() -> None:
    bounced = Job(devices=("IB/0", "IB/1"))
    first = two("mlx5_0", "mlx5_1", gpudirect="expected", hosts="n1")
    failed = found(bounced, first, two("mlx5_0", "mlx5_1", gpudirect="never", hosts="n2"))
    assert failed["gdr"].status is Status.FAILED
    assert failed["gdr"].claim.endswith(" on n1")
    assert failed["gdr"].shown == "4 of 4 bounce through the host, on n1"
    assert "judged on n1 alone: 8 of 8 bounce" in failed["rails"].derivation
    assert found(Job(), first, {"hosts": "n2"})["gdr"].status is Status.PASSED
    # A node of which the log shows no RDMA at all is no pass, and one that takes no part is not judged.
    text = "".join(
        line.replace("NET/IB/0/GDRDMA", "NET/Socket/0").replace("NET/IB/1/GDRDMA", "NET/Socket/0")
        if line.startswith("n3:") else line
        for line in Job(nodes=3).text().splitlines(keepends=True)
    )  # fmt: skip
    expect = {"sockets": False, "network": network_asked(cluster({**first, "hosts": "n[1,3]"}, {"hosts": "n2"}))}
    gdr = next(f for f in network_findings(read_log({"log": text}), expect, ["n1", "n2", "n3"]) if f.name == "gdr")
    assert (gdr.status, gdr.shown) == (Status.INCONCLUSIVE, "no connection of n3 over an RDMA network")
    assert "gdr" not in found(bounced, {**first, "hosts": "n7"}, {"hosts": "n[1-2]"})


def test_a_host_that_no_group_names_leaves_gpudirect_open_where_only_some_expect_it() -> None:
    first = two("mlx5_0", "mlx5_1", gpudirect="expected", hosts="gpu1")
    unplaced = found(Job(), first, {"hosts": "gpu2"})["gdr_groups"]
    assert (unplaced.status, unplaced.shown) == (Status.INCONCLUSIVE, "n1, n2 in none")
    assert found(Job(), {**first, "hosts": "n1"}, {"hosts": "gpu2"})["gdr_groups"].shown == "n2 in none"
    assert "gdr_groups" not in found(Job(), {**first, "hosts": "n1"}, {"hosts": "n2"})
    assert "gdr_groups" not in found(Job(), two("mlx5_0", "mlx5_1", gpudirect="never", hosts="gpu1"), {"hosts": "gpu2"})


def test_on_one_node_or_over_tcp_that_is_wanted_nothing_is_claimed_of_rails() -> None:
    assert found(Job(), {}, hosts=("n1", "n1")) == {}
    assert found(Job(), {}, sockets=True) == {}


THREE = " [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_9:1/RoCE [RO]; OOB ib0:10.0.0.1<0>"
"""Two rails and a port for storage."""


def test_declared_rails_are_what_is_judged_and_a_port_for_something_else_is_not_missed() -> None:
    assert found(Job(using=THREE), two("mlx5_0", "mlx5_1"))["rails"].status is Status.PASSED
    undeclared = found(Job(using=THREE), {})["rails"]
    assert undeclared.status is Status.FAILED
    assert "mlx5_9:1" in undeclared.shown


def test_groups_with_other_rails_are_each_held_to_their_own_by_host() -> None:
    first, second = {**two("mlx5_0", "mlx5_1"), "hosts": "n1"}, {**two("mlx5_0"), "hosts": "n[2-9]"}
    assert found(Job(using=THREE), first, second)["rails"].status is Status.PASSED
    failed = found(Job(using=THREE, devices=("IB/0", "IB/0")), first, second)["rails"]
    assert failed.status is Status.FAILED
    assert "n1: nothing sends over mlx5_1:1" in failed.shown
    assert "n2: " not in failed.shown


def test_a_host_of_no_group_that_names_its_hosts_is_held_to_all_that_nccl_found() -> None:
    first, second = {**two("mlx5_0", "mlx5_1"), "hosts": "n1"}, two("mlx5_0")
    failed = found(Job(using=THREE), first, second)["rails"]
    assert failed.status is Status.FAILED
    assert "n2: nothing sends over mlx5_9:1" in failed.shown
    assert "n1: " not in failed.shown


def test_gpudirect_that_is_not_expected_is_told_and_not_judged() -> None:
    for job, word in (
        (Job(), "8 of 8 connections over the network go straight"),
        (Job(devices=("IB/0", "IB/1")), "bounce"),
    ):
        rails = found(job, two("mlx5_0", "mlx5_1"))["rails"]
        assert rails.status is Status.PASSED
        assert word in rails.derivation
    assert "not judged" not in found(Job(), two("mlx5_0", "mlx5_1", gpudirect="expected"))["rails"].derivation
