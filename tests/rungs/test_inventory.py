"""Ansible's inventory, the cluster file and Slurm beside each other, on what a real lab answered, whole and damaged."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_views import GOLDEN, GROUP, change_event, change_said, change_totals, events, inventory_view, put
from rungs_harness import status_of
from surefoot.errors import EvidenceError, RequestError
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.endings import ending_checks
from surefoot.rungs.inventory import RUNG
from surefoot.rungs.inventory_compare import ASPECTS

NODES = (GOLDEN / "nodes.txt").read_text()


def judged(view: View) -> dict[str, Check]:
    return {check.id: check for check in RUNG.judge(RUNG.read(view), view).checks}


def wrong(view: View) -> dict[str, str]:
    """Checks that did not pass, with what was found."""
    return {name: str(check.actual) for name, check in judged(view).items() if check.status is not Status.PASSED}


def test_a_lab_as_declared_passes_with_every_check_and_each_names_its_evidence() -> None:
    view = inventory_view()
    checks = judged(view)
    assert {check.status for check in checks.values()} == {Status.PASSED}
    assert set(checks) == {f"inventory.{name}" for name in ("listed", "answers", "names", *ASPECTS)}
    assert all(check.evidence and check.evidence[0].line for check in checks.values())
    assert {check.status for check in ending_checks(view.evidence)} == {Status.PASSED}
    assert RUNG.judge(RUNG.read(view), view).summary == "3 hosts answer; inventory, cluster file and Slurm agree"


@pytest.mark.parametrize(
    ("old", "new", "check", "word"),
    [
        ("NodeName=n2 ", "NodeName=n3 ", "hosts", "n2: missing in Slurm; n3: missing in the inventory and in the cluster"),
        ("NodeAddr=10.77.3.12", "NodeAddr=10.77.3.11", "addresses", "n2: Slurm's address is none of the host's own (10.77"),
        ("NodeAddr=10.77.3.12", "NodeAddr=gpu7", "addresses", "n2: Slurm has another name"),
        ("Gres=gpu:h100:8 NodeAddr=10.77.3.12", "Gres=gpu:h100:7 NodeAddr=10.77.3.12", "gpus", "n2: the inventory has 8, Slurm has 7"),
        ("Gres=gpu:h100:8 NodeAddr=10.77.3.12", "Gres=gpu:a100:8 NodeAddr=10.77.3.12", "gpu_type", "n2: Slurm has a100, the inventory h100"),
        ("CPUTot=96", "CPUTot=95", "cpus", "n1: the inventory has 96, Slurm has 95; n2: "),
        ("RealMemory=2000000", "RealMemory=1999999", "memory", "n1: the inventory has 2000000, Slurm has 1999999"),
        ("Partitions=gpu,low", "Partitions=low", "partitions", "n1: Slurm does not have it in gpu, where the cluster file's jobs"),
    ],
)  # fmt: skip
def test_what_slurm_has_otherwise_is_named_with_its_host(old: str, new: str, check: str, word: str) -> None:
    assert old in NODES
    found = wrong(inventory_view(nodes=NODES.replace(old, new)))
    assert set(found) - {"inventory.hosts"} | {f"inventory.{check}"} == {f"inventory.{check}"}
    assert word in found[f"inventory.{check}"]


@pytest.mark.parametrize(
    ("group", "check", "word"),
    [
        ({"hosts": "n[1-3]", "count": 3}, "hosts", "n3: missing in the inventory and in Slurm"),
        ({"hosts": "n1", "count": 1}, "hosts", "n2: missing in the cluster file"),
        ({"hosts": "", "count": 3}, "hosts", "group 'nodes': the cluster file declares 3 nodes, the inventory has 2"),
        ({"hosts": "n[1-2]", "count": 4}, "hosts", "group 'nodes': the cluster file declares 4 nodes and names 2"),
        ({"gpus_per_node": 4}, "gpus", "n1: the inventory has 8, the cluster file has 4, Slurm has 8"),
        ({"min_cpus": 128}, "cpus", "n1: Slurm has 96, the cluster file asks for 128"),
        ({"min_memory_gib": 2048}, "memory", "n1: Slurm has 2000000, the cluster file asks for 2097152"),
    ],
)
def test_what_the_cluster_file_has_otherwise_is_named(group: dict[str, Any], check: str, word: str) -> None:
    found = wrong(inventory_view("good", {**GROUP, **group}))
    assert list(found) == [f"inventory.{check}"]
    assert word in found[f"inventory.{check}"]


@pytest.mark.parametrize(
    ("variable", "value", "check", "word"),
    [
        ("slurm_cluster_name", "other", "cluster_name", "the inventory's cluster is 'other', Slurm's 'invh'"),
        ("slurm_node_cpus", 48, "cpus", "n2: the inventory has 48, Slurm has 96"),
        ("slurm_node_cpus", "many", "cpus", "n2: the inventory has inf, Slurm has 96"),
        ("gres_gpus_per_node", 0, "gpus", "n2: the inventory has 0, Slurm has 8"),
        ("common_address", "10.0.0.9", "addresses", "n2: the inventory's address is none of the host's own"),
        ("slurm_partitions", [{"name": "gpu"}], "partitions", "n2: Slurm has it in low, the inventory not"),
        ("slurm_partitions", [{"name": "gpu"}, {"name": "low", "nodes": "n1"}], "partitions", "n2: Slurm has it in low"),
    ],
)  # fmt: skip
def test_what_the_inventory_has_otherwise_is_named(variable: str, value: Any, check: str, word: str) -> None:
    def edit(said: dict[str, Any]) -> None:
        change_said(said["hosts"], "n2", lambda values: values.update({variable: value}), "Declared")

    found = wrong(inventory_view(edit=edit))
    assert list(found) == [f"inventory.{check}"]
    assert word in found[f"inventory.{check}"]


def test_gpus_that_slurm_alone_has_are_compared_with_nothing_and_are_no_check() -> None:
    def edit(said: dict[str, Any]) -> None:
        for host in ("n1", "n2"):
            change_said(said["hosts"], host, lambda values: values.pop("gres_gpus_per_node"), "Declared")

    assert "inventory.gpus" not in judged(inventory_view(edit=edit))


def test_partitions_are_compared_by_hostlist_group_and_everywhere() -> None:
    partitions = [{"name": "gpu", "nodes": "slurm_node"}, {"name": "low", "nodes": ["n[1-2]"]}]

    def edit(said: dict[str, Any]) -> None:
        for host in ("n1", "n2"):
            change_said(said["hosts"], host, lambda values: values.update(slurm_partitions=partitions), "Declared")

    assert wrong(inventory_view(edit=edit)) == {}


def test_a_host_out_of_reach_is_named_with_what_ssh_said_and_the_others_are_compared() -> None:
    view = inventory_view("n2-away")
    found = wrong(view)
    assert list(found) == ["inventory.answers"]
    assert found["inventory.answers"].startswith("n2: unreachable: ")
    assert "timed out" in found["inventory.answers"]
    assert judged(view)["inventory.answers"].evidence[0].text == "n2: unreachable: Ping"


def test_a_host_that_answers_by_another_name_is_named() -> None:
    def edit(said: dict[str, Any]) -> None:
        change_said(said["hosts"], "n2", lambda answer: answer.update(host="n7.example"), "Answered")

    assert wrong(inventory_view(edit=edit)) == {"inventory.names": "n2: the host that answers calls itself n7.example"}


def test_a_domain_makes_no_other_name() -> None:
    def edit(said: dict[str, Any]) -> None:
        change_said(said["hosts"], "n2", lambda answer: answer.update(host="n2.cluster.example"), "Answered")

    assert wrong(inventory_view(edit=edit)) == {}


def test_a_group_of_nodes_that_is_empty_fails() -> None:
    assert "holds no host" in wrong(inventory_view(node_group="gpu_nodes"))["inventory.listed"]


def _without_stats(said: dict[str, Any]) -> None:
    put(said["hosts"], events(said["hosts"])[:-1])


def _without_a_host(said: dict[str, Any]) -> None:
    put(said["hosts"], [event for event in events(said["hosts"]) if event.get("host") != "n2"])
    change_event(said["hosts"], lambda event: event["hosts"]["n2"].update(ok=0), event="stats")


def _host_not_asked(said: dict[str, Any]) -> None:
    change_event(said["hosts"], lambda event: event.update(hosts=["n1", "head"]), event="play")


def _other_nonce(said: dict[str, Any]) -> None:
    said["nonce"] = "f" * 16


def _failed_inventory(said: dict[str, Any]) -> None:
    said["inventory"].update(exit_code=1, stdout=[], stderr=["[ERROR]: Completely failed to parse inventory source"])


def _partly_read(said: dict[str, Any]) -> None:
    said["inventory"]["stderr"] = [
        "[WARNING]: a collection is old",
        "[WARNING]: Unable to parse /x as an inventory source",
    ]


def _other_inventory(said: dict[str, Any]) -> None:
    said["inventory"]["argv"][2] = "/another"


def _no_base64(said: dict[str, Any]) -> None:
    change_event(said["hosts"], lambda event: event.update(message="?"), event="result", task="Answered", host="n1")


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (_without_a_host, "what the inventory declares of n2 is missing"),
        (_without_stats, "cut off"),
        (_host_not_asked, "the hosts asked are not those of the inventory: n2"),
        (_other_nonce, "another attempt's"),
        (_failed_inventory, "Completely failed to parse inventory source"),
        (_partly_read, "Unable to parse /x"),
        (_other_inventory, "the answer to another command"),
        (_no_base64, "no base64"),
    ],
)
def test_evidence_that_is_not_whole_is_no_pass_and_says_why(edit: Any, word: str) -> None:
    view = inventory_view(edit=edit)
    with pytest.raises(EvidenceError, match=word):
        judged(view)
    assert status_of(RUNG, view) is Status.INCONCLUSIVE


def _without_its_answer(said: dict[str, Any]) -> None:
    put(said["hosts"], [e for e in events(said["hosts"]) if (e.get("host"), e.get("task")) != ("n2", "Answered")])
    change_totals(said["hosts"], "n2", ok=-1)


def test_a_host_without_an_answer_does_not_pass() -> None:
    assert wrong(inventory_view(edit=_without_its_answer))["inventory.answers"] == "n2: no answer is recorded"


def test_it_cannot_be_planned_where_the_cluster_declares_no_ansible() -> None:
    view = inventory_view()
    inputs = view.inputs.model_copy(update={"cluster": view.inputs.cluster.model_copy(update={"ansible": None})})
    from surefoot.rungs.ansible_view import site_of

    class Context:
        cluster = inputs.cluster

    with pytest.raises(RequestError, match="declares no ansible"):
        site_of(Context())  # type: ignore[arg-type]
