"""NCCL's log of real meshes on two H200: P2P passes; with it off the SHM line fails, with SHM off too the socket's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nccl_written import Job
from rungs_harness import planned
from surefoot.benchmarks.mesh import ORDER, Trail
from surefoot.errors import EvidenceError
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.check import Check
from surefoot.model.run import Plan
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.mesh import RUNG
from surefoot.rungs.mesh_log import log_checks

GOLDEN = Path(__file__).parents[1] / "golden" / "nccl_log" / "mesh-h200-x2"


def trails_of(text: str, **facts: Any) -> dict[int, Trail]:
    """Trails of the two ranks that wrote this log."""
    pids = {int(rank): int(pid) for pid, rank in re.findall(r"vm:(\d+):\d+ .* rank (\d) nranks 2 .*Init START", text)}
    assert set(pids) == {0, 1}
    phases = [{"name": phase.name, "began": 1.7e9, "took_s": 1.0, "problem": None} for phase in ORDER]
    return {
        rank: Trail.model_validate(
            {
                "rank": rank, "local_rank": rank, "world_size": 2, "nonce": "n", "job_id": "1", "host": "vm",
                "slurm_node": None, "pid": pid, "facts": {"peers": [1 - rank], **facts}, "phases": phases,
            }
        )
        for rank, pid in pids.items()
    }  # fmt: skip


def view_of(text: str, trails: dict[int, Trail], *, sockets: bool = False) -> View:
    """A view that holds this log and these trails."""
    expect = {"world_size": 2, "ranks_per_node": 2, "nodes": 1, "sockets": sockets}
    plan = Plan(run_id="r", rung="mesh", attempt=1, nonce="n" * 16, steps=(), expect=expect)
    files = {"raw/mesh/mesh-1-vm.out": text.encode()} | {
        f"raw/mesh/trail-{rank}.json": json.dumps(trail.canonical()).encode() for rank, trail in trails.items()
    }
    evidence = EvidenceSet(plan=plan, files={name: Blob(name=name, data=data) for name, data in files.items()})
    return View(evidence=evidence, inputs=None, spec=None, needs={})  # type: ignore[arg-type]


def judged(text: str, *, sockets: bool = False, **facts: Any) -> dict[str, Check]:
    trails = trails_of(text, **facts)
    checks = log_checks(trails, view_of(text, trails, sockets=sockets))
    return {check.id.removeprefix("mesh.nccl."): check for check in checks}


def statuses(checks: dict[str, Check]) -> dict[str, Status]:
    return {name: check.status for name, check in checks.items()}


def test_two_gpus_over_nvlink_pass_with_the_lines_that_show_it() -> None:
    checks = judged((GOLDEN / "p2p.out").read_text())
    assert statuses(checks) == dict.fromkeys(("ranks", "sockets", "inside_nodes"), Status.PASSED)
    assert "via P2P/CUMEM" in checks["inside_nodes"].evidence[0].text


def test_without_p2p_the_claim_fails_with_the_line_of_shared_memory() -> None:
    checks = judged((GOLDEN / "shm.out").read_text())
    assert statuses(checks) == {"ranks": Status.PASSED, "sockets": Status.PASSED, "inside_nodes": Status.FAILED}
    assert "via SHM/direct/direct" in checks["inside_nodes"].evidence[0].text
    assert checks["inside_nodes"].evidence[0].line


def test_without_shared_memory_too_the_socket_is_what_fails() -> None:
    checks = judged((GOLDEN / "socket.out").read_text())
    assert statuses(checks) == {"ranks": Status.PASSED, "sockets": Status.FAILED, "inside_nodes": Status.FAILED}
    assert "via NET/Socket/0" in checks["sockets"].evidence[0].text
    allowed = judged((GOLDEN / "socket.out").read_text(), sockets=True)
    assert allowed["sockets"].status is Status.PASSED


def test_gpus_that_cannot_read_each_other_make_no_claim_of_p2p() -> None:
    assert "inside_nodes" not in judged((GOLDEN / "shm.out").read_text(), peers=[])


def test_a_job_whose_log_was_switched_off_proves_nothing() -> None:
    whole = (GOLDEN / "p2p.out").read_text()
    silent = "\n".join(line for line in whole.splitlines() if "NCCL INFO" not in line)
    trails = trails_of(whole)
    found = log_checks(trails, view_of(silent, trails))
    assert {check.status for check in found} == {Status.INCONCLUSIVE}


def test_the_log_of_another_process_is_refused() -> None:
    stranger = "vm:99999:99999 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>\n"
    with pytest.raises(EvidenceError, match="no rank of this job"):
        judged((GOLDEN / "p2p.out").read_text() + stranger)


def over_two_nodes(job: Job, root: Path, **group: Any) -> dict[str, Check]:
    """Checks of the log of ranks on two nodes of that group, as the mesh itself plans what to expect of them."""
    text = job.text()
    members = {
        int(rank): (host, int(pid))
        for host, pid, rank in re.findall(r"(n\d):(\d+):\d+ .* rank (\d) .*Init START", text)
    }
    world = len(members)
    phases = [{"name": phase.name, "began": 1.7e9, "took_s": 1.0, "problem": None} for phase in ORDER]
    trails = {
        rank: Trail.model_validate(
            {
                "rank": rank, "local_rank": 0, "world_size": world, "nonce": "n", "job_id": "1", "host": host,
                "slurm_node": None, "pid": pid, "facts": {}, "phases": phases,
            }
        )
        for rank, (host, pid) in members.items()
    }  # fmt: skip
    declared = {"name": "g", "count": 2, "gpus_per_node": world // 2, **group}
    plan = planned(RUNG, {"nodes": 2}, root, node_groups=[declared], scheduler={"kind": "slurm"}).plan
    view = view_of(text, trails)
    view.plan.expect.update({name: plan.expect[name] for name in ("nodes", "world_size", "network", "sockets")})
    return {check.id.removeprefix("mesh.nccl."): check for check in log_checks(trails, view)}


def rails(*hcas: str) -> list[dict[str, Any]]:
    return [{"name": hca, "rate_gbit_s": 200, "hca": hca} for hca in hcas]


def test_a_mesh_over_two_nodes_fails_where_one_rail_of_two_carries(tmp_path: Path) -> None:
    declared = rails("mlx5_0", "mlx5_1")
    assert over_two_nodes(Job(), tmp_path, rails=declared)["rails"].status is Status.PASSED
    one = over_two_nodes(Job(devices=("IB/0/GDRDMA", "IB/0/GDRDMA")), tmp_path, rails=declared)["rails"]
    assert one.status is Status.FAILED
    assert "nothing sends over mlx5_1:1" in (one.actual or "")
    assert one.evidence[0].line is not None


def test_a_mesh_holds_the_log_to_the_rails_and_the_gpudirect_that_the_cluster_file_declares(tmp_path: Path) -> None:
    storage = Job(using=" [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_9:1/RoCE [RO]; OOB ib0:10.0.0.1<0>")
    declared = rails("mlx5_0", "mlx5_1")
    assert over_two_nodes(storage, tmp_path, rails=declared)["rails"].status is Status.PASSED
    assert over_two_nodes(storage, tmp_path)["rails"].status is Status.FAILED
    absent = over_two_nodes(Job(), tmp_path, rails=rails("mlx5_0", "mlx5_7"))["rails"]
    assert absent.status is Status.FAILED
    assert "NCCL did not find mlx5_7:1" in str(absent.actual)
    bounced = Job(devices=("IB/0", "IB/1"))
    expected = over_two_nodes(bounced, tmp_path, rails=declared, gpudirect="expected")
    assert expected["gdr"].status is Status.FAILED
    observed = over_two_nodes(bounced, tmp_path, rails=declared)
    assert "gdr" not in observed
    assert "GPUDirect, which is not judged: 8 of 8 bounce through the host" in observed["rails"].derivation
