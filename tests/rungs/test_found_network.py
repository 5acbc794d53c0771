"""Jobs that form a process group take what the pre-check found, and the judge holds each rank to it."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, planned, status_of
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs import collectives, ddp, found_network, mesh
from surefoot.rungs.base import Rung, View

HOST = socket.gethostname()
FOUND = {HOST: {"GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}}
PIN = {"NCCL_IB_HCA": "mlx5_9"}
SECOND = "raw/ddp/rank-1.json"


@pytest.fixture(scope="module")
def found() -> Any:
    """What the pre-check of the needed evidence is taken to have found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found_network, "environments", lambda _: FOUND)
        patch.setenv("SLURMD_NODENAME", HOST)
        yield FOUND


def needs(root: Path) -> dict[str, Any]:
    """Any evidence: what it says is `FOUND`."""
    return {"precheck": planned(ddp.RUNG, {}, root).evidence}


@pytest.fixture(scope="module")
def good(found: dict[str, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> View:
    assert found
    root = tmp_path_factory.mktemp("ddp")
    return collected(ddp.RUNG, {}, root, needs(root), env=PIN)


def network(view: View) -> Check:
    (check,) = (check for check in judged(ddp.RUNG, view).checks if check.id == "ddp.network")
    return check


@pytest.mark.parametrize("rung", [ddp.RUNG, collectives.RUNG, mesh.RUNG])
def test_each_job_is_told_what_was_found_or_that_nobody_looked(
    rung: Rung[Any, Any], found: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    with_it = planned(rung, {}, tmp_path, needs(tmp_path)).plan.jobs[0].request
    assert with_it["environment"] == found
    assert planned(rung, {}, tmp_path).plan.jobs[0].request["environment"] is None


@pytest.mark.slow
def test_ranks_take_it_and_a_pin_of_the_cluster_file_wins_and_is_named(good: View) -> None:
    assert status_of(ddp.RUNG, good) is Status.PASSED
    check = network(good)
    assert check.status is Status.PASSED
    assert "NCCL_IB_HCA=mlx5_9 by the cluster file's env" in str(check.actual)
    told = judged(ddp.RUNG, good).details["network"]
    assert told == {"source": "precheck", "nodes": {HOST: {"set": {"GLOO_SOCKET_IFNAME": "lo"}, "kept": PIN}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"set": {}}, "GLOO_SOCKET_IFNAME is not set, found was lo"),
        ({"set": {"GLOO_SOCKET_IFNAME": "docker0"}}, "GLOO_SOCKET_IFNAME is docker0, found was lo"),
        ({"kept": {}}, "the cluster file pins mlx5_9"),
        ({"kept": {"NCCL_IB_HCA": "mlx5_1"}}, "NCCL_IB_HCA is mlx5_1, the cluster file pins mlx5_9"),
        ({"source": None}, "knew of no pre-check"),
        ({"node": "another"}, "GLOO_SOCKET_IFNAME was not asked for"),
    ],
)
def test_a_rank_that_ran_otherwise_than_was_found_fails_by_name(good: View, change: dict[str, Any], word: str) -> None:
    damaged = edited(good, SECOND, lambda report: report["data"]["network"].update(change))
    assert failed(ddp.RUNG, damaged) == {"ddp.network"}
    assert f"rank 1 on {HOST}: " in str(network(damaged).actual)
    assert word in str(network(damaged).actual)


@pytest.mark.slow
def test_a_rank_that_does_not_tell_fails(good: View) -> None:
    silent = edited(good, SECOND, lambda report: report["data"].pop("network"))
    assert failed(ddp.RUNG, silent) == {"ddp.network"}


@pytest.mark.slow
def test_what_the_node_itself_sets_stays_and_is_named_as_its_own(good: View) -> None:
    told = {"set": {}, "kept": {**PIN, "GLOO_SOCKET_IFNAME": "eth7"}}
    own = edited(good, SECOND, lambda report: report["data"]["network"].update(told))
    assert network(own).status is Status.PASSED
    assert "GLOO_SOCKET_IFNAME=eth7 by the node's own environment" in str(network(own).actual)


@pytest.mark.slow
def test_without_a_precheck_there_is_no_claim_and_the_details_say_why(good: View) -> None:
    (job,) = good.plan.jobs
    bare = job.model_copy(update={"request": {**job.request, "environment": None}})
    steps = (good.plan.steps[0].model_copy(update={"jobs": (bare,)}),)
    plan = good.plan.model_copy(update={"steps": steps})
    view = replace(good, evidence=replace(good.evidence, plan=plan))
    view = edited(view, "raw/ddp/job.json", lambda d: d.update(spec=bare.canonical()))
    view = edited(view, "raw/ddp/request.json", lambda d: d.update(environment=None))
    judgement = judged(ddp.RUNG, view)
    assert "ddp.network" not in {check.id for check in judgement.checks}
    assert judgement.details["network"]["source"].startswith("no pre-check below")


@pytest.mark.slow
def test_a_mesh_is_held_to_what_was_found_and_evidence_in_an_older_form_is_refused(
    found: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    assert found
    view = collected(mesh.RUNG, {}, tmp_path, needs(tmp_path), env=PIN)
    assert status_of(mesh.RUNG, view) is Status.PASSED
    damaged = edited(view, "raw/mesh/rank-1.json", lambda report: report["data"]["network"].update(set={}))
    assert failed(mesh.RUNG, damaged) == {"mesh.network"}
    without = edited(view, "raw/mesh/rank-1.json", lambda report: report["data"].pop("network"))
    assert failed(mesh.RUNG, without) == {"mesh.network"}
    older = edited(without, "raw/mesh/rank-1.json", lambda report: report["data"].update(environment={}))
    with pytest.raises(EvidenceError, match="environment"):
        failed(mesh.RUNG, older)
