"""A cluster file that is learnt claims what its nodes told, passes on them, and fails by name on a node that is another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import network_sites
from node_views import known, unknown
from recorded_fleet import nodes, planted, precheck_view
from surefoot.config.load import load_cluster
from surefoot.config.written import cluster_text
from surefoot.hardware.facts import NodeFacts
from surefoot.hardware.interfaces import ChosenRail, choose
from surefoot.hardware.learnt import Learnt, NodeSeen, Notes, learn
from surefoot.model.check import Check
from surefoot.model.cluster import Cluster, NodeGroup
from surefoot.model.status import Status
from surefoot.rungs import precheck
from surefoot.rungs.precheck_seen import seen
from surefoot.units import GIB

Json = dict[str, Any]
INTEL, AMD = "Intel(R) Xeon(R) Platinum 8480C", "AMD EPYC 9654 96-Core Processor"


def cluster(*groups: Json, kind: str = "slurm") -> Cluster:
    return Cluster.model_validate({
        "name": "site", "root": "/lustre/surefoot", "scheduler": {"kind": kind},
        "node_groups": list(groups or ({"name": "nodes", "count": 4, "min_memory_gib": 1},)),
    })  # fmt: skip


def told(
    fleet: Mapping[str, Json], rails: Mapping[str, tuple[ChosenRail, ...] | None] | None = None, group: str = "nodes"
) -> list[NodeSeen]:
    known_rails = rails or {}
    return [
        NodeSeen(name, group, NodeFacts.model_validate(facts), known_rails.get(name)) for name, facts in fleet.items()
    ]


def learnt(fleet: Mapping[str, Json], **more: Any) -> Learnt:
    found = learn(cluster(), told(fleet, **more))
    assert found is not None
    return found


def only(found: Learnt) -> tuple[NodeGroup, Notes]:
    (group,), (notes,) = found.cluster.node_groups, found.notes
    return group, notes


def rails_of(site: network_sites.Site) -> dict[str, tuple[ChosenRail, ...] | None]:
    return {node.node: node.rails for node in choose(site.nodes()).nodes}


def changed(fleet: Mapping[str, Json], *hosts: str, **facts: Any) -> dict[str, Json]:
    """The fleet with other facts on these hosts."""
    found = copy.deepcopy(dict(fleet))
    for host in hosts:
        found[host].update(facts)
    return found


@pytest.mark.parametrize("roce", [False, True], ids=["InfiniBand", "RoCE"])
def test_gpus_rails_and_versions_that_all_nodes_have_are_claimed_with_how_many_have_them(roce: bool) -> None:
    group, notes = only(learnt(nodes(4), rails=rails_of(network_sites.h100(4, roce=roce))))
    assert (group.count, group.hosts) == (4, "gpu[01-04]")
    assert (group.gpus_per_node, group.gpu_model) == (8, "NVIDIA H200")
    # eight of 400 Gbit/s; the two of 200 carry storage
    assert [(rail.hca, rail.rate_gbit_s) for rail in group.rails] == [(f"mlx5_{n}", 400.0) for n in range(8)]
    claimed = ("driver", "kernel", "nccl", "gpu*.vbios", "memlock", "mount /lustre")
    assert set(claimed) <= set(group.expect)
    assert group.expect["driver"] == "580.159.03"
    assert [notes[f"expect.{name}"] for name in claimed] == [("4 of 4 nodes",)] * len(claimed)
    assert notes[""] == ("4 seen: gpu[01-04]",)


def judged(view: Any, judged_by: Cluster) -> dict[str, Check]:
    inputs = view.inputs.model_copy(update={"cluster": judged_by})
    judgement = precheck.RUNG.judge(precheck.RUNG.read(view), replace(view, inputs=inputs))
    return {check.id: check for check in judgement.checks}


def written(found: Learnt, folder: Path) -> Cluster:
    """As whoever reviews it loads it."""
    path = folder / "learnt.yaml"
    notes = dict(enumerate(found.notes))
    path.write_text(cluster_text(found.cluster, {("node_groups", n): notes[n].get("", ()) for n in notes}))
    return load_cluster(path).record


def test_the_file_loads_passes_on_the_nodes_that_it_was_learnt_from_and_fails_by_name_on_another(
    tmp_path: Path,
) -> None:
    fleet = nodes(4)
    view = precheck_view(fleet, tmp_path / "root")
    judgement = precheck.RUNG.judge(precheck.RUNG.read(view), view)
    found = learn(cluster({"name": "hgx", "count": 4}), seen(view, judgement))
    assert found is not None
    group, notes = only(found)
    assert [rail.hca for rail in group.rails] == [f"mlx5_{n}" for n in range(8)]
    assert "mlx5_7 400 Gbit/s on 4 of 4 nodes" in notes["rails"][0]
    loaded = written(found, tmp_path)
    assert loaded == found.cluster
    wrong = {name: check.actual for name, check in judged(view, loaded).items() if check.status is not Status.PASSED}
    assert wrong == {}
    for check, facts in OTHER_NODES.items():
        worse = precheck_view(changed(fleet, "gpu03", **facts), tmp_path / "root")
        failed = {name: c for name, c in judged(worse, loaded).items() if c.status is Status.FAILED}
        assert check in failed, (check, set(failed))
        assert failed[check].nodes == ("gpu03",)


OTHER_NODES: dict[str, Json] = {
    "precheck.expect.hgx.kernel": {"kernel": known("6.8.0-85-generic")},
    "precheck.expect.hgx.memlock": {"memlock": known(65536)},
    "precheck.node2.memory": {"memory_total": known(1_000_000_000_000), "memory_available": known(9_000_000_000)},
    "precheck.node2.cpus": {"cpus": known(1), "cpus_online": known(1)},
    "precheck.node2.gpus": {"torch_gpus": known(nodes(3)["gpu03"]["torch_gpus"]["value"][:7])},
    "precheck.node2.rails": {"hcas": known(nodes(3)["gpu03"]["hcas"]["value"][1:])},
}


def _four_gpus(facts: Json) -> None:
    for name in ("gpus", "torch_gpus"):
        facts[name] = known(facts[name]["value"][:4])
    facts["pci_gpus"] = known(4)


def _another_gpu(facts: Json) -> None:
    for gpu in facts["torch_gpus"]["value"]:
        gpu["name"] = "NVIDIA H100 80GB HBM3"


def _another_cpu(facts: Json) -> None:
    facts["cpu"] = known(AMD)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (_four_gpus, "nodes-4gpu-NVIDIA-H200"),
        (_another_gpu, "nodes-8gpu-NVIDIA-H100-80GB-HBM3"),
        (_another_cpu, "nodes-AMD-EPYC-9654"),
    ],
)
def test_nodes_of_other_hardware_are_a_group_of_their_own_with_claims_of_their_own(
    other: Callable[[Json], None], name: str, tmp_path: Path
) -> None:
    fleet = nodes(4)
    for host in ("gpu02", "gpu04"):
        other(fleet[host])
        fleet[host]["kernel"] = known("6.8.0-40-generic")
    fleet["gpu05"] = nodes(5)["gpu05"]
    view = precheck_view(fleet, tmp_path)
    found = learn(cluster({"name": "nodes", "count": 5}), told(fleet))
    assert found is not None
    groups = {group.name: group for group in found.cluster.node_groups}
    assert {name: group.hosts for name, group in groups.items()} == {"nodes": "gpu[01,03,05]", name: "gpu[02,04]"}
    assert groups["nodes"].expect["kernel"] == "6.8.0-87-generic"
    assert groups[name].expect["kernel"] == "6.8.0-40-generic"
    # and a pre-check takes each node for the group that names it
    checks = judged(view, written(found, tmp_path))
    assert {checks[f"precheck.group.{name}"].actual for name in groups} == {2, 3}
    failed = {name: check.actual for name, check in checks.items() if check.status is Status.FAILED}
    assert not [name for name in failed if ".expect." in name or ".gpu" in name or ".alike" in name], failed


def test_a_node_that_does_not_tell_its_cpu_is_of_those_that_have_its_gpus() -> None:
    fleet = changed(nodes(3), "gpu02", cpu=unknown("PermissionError: /proc/cpuinfo"))
    group, notes = only(learnt(fleet))
    assert group.hosts == "gpu[01-03]"
    assert group.expect["cpu"] == INTEL
    assert notes["expect.cpu"] == ("2 of 3 nodes; unknown (PermissionError: /proc/cpuinfo) on gpu02",)


def test_nodes_without_gpus_are_a_group_that_claims_none_and_the_most_demanding_group_stands_first() -> None:
    none = {"torch_gpus": known([]), "gpus": known([]), "pci_gpus": known(0)}
    fleet = changed(nodes(5), "gpu01", "gpu02", **none, cpus=known(300), cpus_online=known(300))
    groups = learnt(fleet).cluster.node_groups
    assert [(group.hosts, group.gpus_per_node, group.gpu_model) for group in groups] == [
        ("gpu[01-02]", 0, ""),
        ("gpu[03-05]", 8, "NVIDIA H200"),
    ]


def test_a_version_that_nodes_are_divided_over_is_told_and_not_claimed() -> None:
    fleet = changed(nodes(4), "gpu02", "gpu03", driver=known("580.142"))
    group, notes = only(learnt(fleet))
    assert "driver" not in group.expect
    (said,) = [text for text in notes["expect"] if "driver 580" in text]
    assert said == "not claimed: driver 580.159.03 on gpu[01,04], 580.142 on gpu[02-03]: no majority"


def test_one_odd_node_of_four_is_named_beside_the_claim_of_the_others() -> None:
    group, notes = only(learnt(changed(nodes(4), "gpu02", driver=known("580.142"))))
    assert group.expect["driver"] == "580.159.03"
    assert notes["expect.driver"] == ("3 of 4 nodes; 580.142 on gpu02",)


def test_every_drift_of_a_node_is_told_and_none_becomes_the_claim() -> None:
    fleet = nodes(64)
    drifts = planted(fleet, 20)
    whole, _ = only(learnt(nodes(64)))
    group, notes = only(learnt(fleet))
    of_the_job = {name for _, name in drifts if name.startswith("variable ")}
    said = " | ".join(text for texts in notes.values() for text in texts)
    for host, name in drifts:
        assert host in said or name in of_the_job, (host, name)
    assert group.expect == whole.expect


def test_a_fact_that_one_of_two_nodes_does_not_tell_is_no_claim_and_its_reason_is_told() -> None:
    group, notes = only(learnt(changed(nodes(2), "gpu02", nccl=unknown("torch is missing"))))
    assert "nccl" not in group.expect
    assert any("nccl" in text and "torch is missing" in text and "gpu02" in text for text in notes["expect"])


def test_rails_that_no_majority_has_in_use_are_told_and_not_claimed() -> None:
    rails = rails_of(network_sites.h100(4))
    eight = rails["gpu01"]
    assert eight is not None
    group, notes = only(learnt(nodes(4), rails={**rails, "gpu02": eight[1:], "gpu03": None}))
    assert group.rails == ()
    assert any("not known on gpu03" in text for text in notes["rails"])
    group, notes = only(learnt(nodes(4), rails={**rails, "gpu02": eight[1:]}))
    assert [rail.hca for rail in group.rails] == [rail.hca for rail in eight]
    assert notes["rails"][0].endswith("on 3 of 4 nodes")
    assert any(text.endswith("on gpu02") and "mlx5_0 " not in text for text in notes["rails"][1:])


def test_rails_that_are_declared_stay_though_all_nodes_lack_one() -> None:
    declared = [{"name": f"rail{n}", "rate_gbit_s": 400, "hca": f"mlx5_{n}"} for n in range(9)]
    base = cluster({"name": "nodes", "count": 4, "rails": declared})
    found = learn(base, told(nodes(4), rails_of(network_sites.h100(4))))
    assert found is not None
    group, notes = only(found)
    assert group.rails == base.node_groups[0].rails
    assert notes["rails"][0].startswith("as declared")


def test_floors_are_what_the_least_node_has() -> None:
    fleet = changed(nodes(3), "gpu02", cpus=known(100), memory_total=known(1000 * GIB))
    fleet["gpu03"]["cpus"] = unknown("no sched_getaffinity")
    group, notes = only(learnt(fleet))
    assert (group.min_cpus, group.min_memory_gib) == (100, 980.0)
    assert notes["min_cpus"] == ("jobs could use 100 to 224 on 2 of 3 nodes",)


def test_a_node_with_next_to_no_memory_makes_a_file_that_loads(tmp_path: Path) -> None:
    fleet = changed(nodes(2), "gpu01", memory_total=known(4096))
    assert written(learnt(fleet), tmp_path).node_groups[0].min_memory_gib == 0.01


def test_a_count_that_no_kernel_counts_to_is_no_fact() -> None:
    with pytest.raises(ValidationError, match="less than"):
        told(changed(nodes(1), "gpu01", memory_total=known(10**400)))


def test_nodes_whose_gpus_cannot_be_counted_are_left_out_with_the_reason_and_alone_teach_nothing() -> None:
    silent = {"torch_gpus": unknown("torch is missing"), "gpus": unknown("no NVML"), "pci_gpus": unknown("no /sys")}
    found = learnt(changed(nodes(3), "gpu02", **silent))
    assert only(found)[0].hosts == "gpu[01,03]"
    assert found.left_out == ("gpu02: how many GPUs it has is not known: torch is missing",)
    assert learn(cluster(), told(changed(nodes(1), "gpu01", **silent))) is None


def test_a_group_of_which_no_node_was_seen_is_left_out_aloud() -> None:
    base = cluster({"name": "nodes", "count": 1}, {"name": "gone", "count": 7})
    found = learn(base, told(nodes(1)))
    assert found is not None
    assert found.left_out == ("group gone (7 declared): no node of it was seen",)
    assert [group.name for group in found.cluster.node_groups] == ["nodes"]


def test_gpus_that_jobs_cannot_use_are_told_and_a_mix_of_models_is_not_claimed() -> None:
    fleet = nodes(2)
    for facts in fleet.values():
        facts["torch_gpus"]["value"] = facts["torch_gpus"]["value"][:7]
    fleet["gpu01"]["torch_gpus"]["value"][0]["name"] = fleet["gpu02"]["torch_gpus"]["value"][3]["name"] = "NVIDIA A2"
    group, notes = only(learnt(fleet))
    assert (group.gpus_per_node, group.gpu_model) == (7, "")
    assert notes[""][1] == "not claimed: gpu_model, as these nodes mix NVIDIA A2, NVIDIA H200"
    assert "the PCI bus has 8 GPUs on gpu[01-02], jobs can use 7" in notes[""][2]


def test_what_only_the_job_or_a_fault_decides_is_never_claimed() -> None:
    fleet = changed(nodes(2), "gpu01", "gpu02", cpu_quota=known(4.0), memory_limit=known(8 * GIB))
    for facts in fleet.values():
        facts["clock"]["value"]["synchronised"] = False
    group, notes = only(learnt(fleet))
    assert {"cpus", "cpu_quota", "memory_limit", "variable NCCL_DEBUG", "clock.synchronised"}.isdisjoint(group.expect)
    assert any("clock.synchronised" in text and "not to be so" in text for text in notes["expect"])
