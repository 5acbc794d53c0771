"""Mesh: real ranks that hang, die, are late or sit on another's device are each named; clean ones PASS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collect, collected, edited, failed, judged, planned, status_of, with_files
from surefoot.errors import EvidenceError
from surefoot.model.check import Check
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.mesh import RUNG
from tampered_rank import tampered

SECOND, TRAIL = "raw/mesh/rank-1.json", "raw/mesh/trail-1.json"
pytestmark = pytest.mark.slow
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {"ranks_per_node": 3, "time_limit_s": 120}, tmp_path_factory.mktemp("mesh"))


def check_of(view: View, name: str) -> Check:
    (found,) = (check for check in judged(RUNG, view).checks if check.id == f"mesh.{name}")
    return found


def test_three_ranks_meet_and_pass(good: View) -> None:
    assert status_of(RUNG, good) is Status.PASSED
    names = {check.id.removeprefix("mesh.") for check in judged(RUNG, good).checks}
    assert names == {"complete", "placed", "devices", "steady", "clocks", "backend", "step", "all_reduce"}
    assert all(check.evidence for check in judged(RUNG, good).checks)


def world_with(tmp_path: Path, phase: str, act: str, time_limit_s: int = 120) -> View:
    """Three ranks of which rank 1 does `act` at the begin of `phase`."""
    python = tampered(tmp_path / "inject", 1, phase, act)
    view = planned(RUNG, {"ranks_per_node": 3, "time_limit_s": time_limit_s}, tmp_path / "root", python=python)
    return collect(view, view.plan.steps, tmp_path / "root")


@pytest.mark.parametrize(
    ("phase", "act", "word"),
    [
        ("DEVICE", "os.kill(os.getpid(), signal.SIGSTOP)", "came as far as taking its device"),
        ("RENDEZVOUS", "os.kill(os.getpid(), signal.SIGSTOP)", "came as far as meeting the other ranks"),
        ("STEP", "os.kill(os.getpid(), signal.SIGKILL)", "came as far as a training step"),
        ("ALL_REDUCE", "raise RuntimeError('CUDA error: an illegal memory access')", "illegal memory access"),
    ],
)
def test_a_rank_that_hangs_dies_or_fails_is_named_with_where_it_stood(
    tmp_path: Path, phase: str, act: str, word: str
) -> None:
    check = check_of(world_with(tmp_path, phase, act, time_limit_s=30), "complete")
    assert check.status is Status.FAILED
    assert str(check.actual).startswith("rank 1 on ")
    assert word in str(check.actual)
    assert "rank 0" not in str(check.actual)
    assert "rank 2" not in str(check.actual)


def test_a_rank_that_is_late_by_itself_is_named_and_nothing_else_fails(tmp_path: Path) -> None:
    view = world_with(tmp_path, "DEVICE", "time.sleep(8)")
    assert failed(RUNG, view) == {"mesh.steady"}
    assert "rank 1 on " in str(check_of(view, "steady").actual)
    assert "taking its device" in str(check_of(view, "steady").actual)


def test_a_rank_whose_data_is_changed_on_the_way_fails(tmp_path: Path) -> None:
    act = "import torch.distributed as d; real = d.all_reduce; d.all_reduce = lambda t, *a, **k: (real(t, *a, **k), t.view(-1)[:1].add_(1))[0]"
    assert failed(RUNG, world_with(tmp_path, "ALL_REDUCE", act)) == {"mesh.all_reduce"}


def test_a_rank_that_never_began_is_named_with_its_host(good: View) -> None:
    gone = with_files(good, {TRAIL: None})
    check = check_of(gone, "complete")
    assert check.status is Status.FAILED
    assert check.actual == f"rank 1 on {gone.evidence.json('raw/mesh/trail-0.json')['host']} never began"
    assert check.nodes == (gone.evidence.json("raw/mesh/trail-0.json")["host"],)
    nobody = with_files(good, {f"raw/mesh/trail-{rank}.json": None for rank in range(3)})
    assert status_of(RUNG, nobody) is Status.FAILED
    assert check_of(nobody, "complete").status is Status.INCONCLUSIVE


def test_a_node_from_which_nothing_came_is_named_by_its_number(good: View) -> None:
    expect = {**good.expect, "ranks_per_node": 1, "nodes": 3}
    view = with_plan(good, expect)
    assert "node 1 of the job, from which nothing came" in str(
        check_of(with_files(view, {TRAIL: None}), "complete").actual
    )
    assert check_of(with_files(view, {TRAIL: None}), "complete").nodes == ()


def on_nodes(view: View, *names: str) -> View:
    """The evidence as if each rank had been on a node of its own that Slurm calls so."""
    view = with_plan(view, {**view.expect, "ranks_per_node": 1, "nodes": len(names)})
    for rank, name in enumerate(names):
        view = edited(
            view, f"raw/mesh/trail-{rank}.json", lambda trail, n=name: trail.update(slurm_node=n, local_rank=0)
        )
    return view


HOST = socket.gethostname()
STEP = 4
"""Phases up to the one in which ranks stop in `stopped`."""


def stopped(view: View, problems: dict[int, str | None]) -> View:
    """These ranks came no further than a step: with an error, or without one."""

    def cut(trail: dict[str, Any], problem: str | None) -> None:
        trail["phases"] = trail["phases"][:STEP]
        trail["phases"][-1].update(took_s=None, problem=problem)

    for rank, problem in problems.items():
        view = edited(view, f"raw/mesh/trail-{rank}.json", lambda trail, p=problem: cut(trail, p))
    return view


LOST = "DistBackendError: Connection closed by peer"


@pytest.mark.parametrize(
    ("problems", "nodes"),
    [
        ({0: LOST, 1: None, 2: LOST}, ("slurm1",)),  # hangs; the others gave it up
        ({0: LOST, 1: "RuntimeError: CUDA error: ECC", 2: None}, ("slurm1",)),
        ({0: LOST, 1: LOST, 2: LOST}, ()),  # who is at fault is not known
        ({0: None, 1: None, 2: None}, ()),  # what stops all is no node's fault
        ({0: LOST, 1: LOST}, ()),  # they gave up; nobody is shown to have kept them waiting
    ],
)
def test_only_nodes_of_ranks_that_kept_others_waiting_are_at_fault(
    good: View, problems: dict[int, str | None], nodes: tuple[str, ...]
) -> None:
    check = check_of(stopped(on_nodes(good, "slurm0", "slurm1", "slurm2"), problems), "complete")
    assert check.status is Status.FAILED
    assert check.nodes == nodes


def with_plan(view: View, expect: dict[str, Any]) -> View:
    from dataclasses import replace

    from surefoot.evidence import EvidenceSet

    plan = view.plan.model_copy(update={"expect": expect})
    return replace(view, evidence=EvidenceSet(plan=plan, files=view.evidence.files))


def both(view: View, change: Change) -> View:
    """The same change of what a rank tells, in its trail and in its report."""
    return edited(edited(view, TRAIL, lambda t: change(t["facts"])), SECOND, lambda r: change(r["data"]))


H200 = {
    "kind": "cuda", "index": 0, "name": "NVIDIA H200", "uuid": "a", "pci_bus_id": "0000:1b:00", "memory_bytes": 1,
    "torch": "2.13", "cuda": "13.0", "nccl": "2.28", "threads": 1,
}  # fmt: skip


def on_gpus(view: View, *devices: dict[str, Any], near: list[dict[str, Any]] | None = None) -> View:
    """The evidence as if the ranks had computed on these GPUs."""
    view = with_plan(view, {**view.expect, "device": "cuda"})
    for rank, device in enumerate(devices):
        beside = near[rank] if near else {"numa_node": {"value": 0}, "cpus": {"value": "0-63"}}
        view = edited(
            view, f"raw/mesh/trail-{rank}.json", lambda t, d=device, b=beside: t["facts"].update(device=d, near=b)
        )
    return view


def test_two_ranks_on_one_gpu_and_a_rank_on_anothers_are_named(good: View) -> None:
    own = [{**H200, "index": i, "uuid": f"u{i}", "pci_bus_id": f"0000:{i}b:00"} for i in range(3)]
    assert failed(RUNG, on_gpus(good, *own)) == set()
    shared = on_gpus(good, own[0], own[0] | {"index": 1}, own[2])
    assert failed(RUNG, shared) == {"mesh.devices"}
    assert "used the same GPU as rank 0" in str(check_of(shared, "devices").actual)
    swapped = on_gpus(good, own[0], own[2], own[1])
    assert "rank 1" in str(check_of(swapped, "devices").actual)
    assert check_of(on_nodes(swapped, "n0", "n1", "n2"), "devices").nodes == ("n1", "n2")
    assert "used cuda:2, its local rank is 1" in str(check_of(swapped, "devices").actual)


def test_a_rank_on_cpus_far_from_its_gpu_is_named_and_an_unknown_place_is_no_pass(good: View) -> None:
    own = [{**H200, "index": i, "uuid": f"u{i}", "pci_bus_id": f"0000:{i}b:00"} for i in range(3)]
    near = {"numa_node": {"value": 0}, "cpus": {"value": "0-63"}}
    far = on_gpus(good, *own, near=[near, {**near, "cpus": {"value": "64-127"}}, near])
    assert failed(RUNG, far) == {"mesh.affinity"}
    assert "its GPU is next to 64-127" in str(check_of(far, "affinity").actual)
    unsure = on_gpus(good, *own, near=[near, {**near, "cpus": {"value": None, "unknown": "not there"}}, near])
    assert check_of(unsure, "affinity").status is Status.INCONCLUSIVE


@pytest.mark.parametrize("offset", [3.0, -3.0])
def test_a_clock_that_is_off_is_named_with_by_how_much(good: View, offset: float) -> None:
    def moved(report: dict[str, Any]) -> None:
        for entry in report["data"]["clocks"]:
            entry["at"] += offset

    view = edited(good, SECOND, moved)
    assert failed(RUNG, view) == {"mesh.clocks"}
    words = str(check_of(view, "clocks").actual)
    assert "rank 1" in words
    assert ("ahead of" if offset > 0 else "behind") in words
    assert abs(float(words.split(" is ")[1].split(" s ", maxsplit=1)[0]) - 3.0) < 0.3
    assert check_of(on_nodes(view, "n0", "n1", "n2"), "clocks").nodes == ("n1",)
    assert check_of(view, "clocks").nodes == ()  # of one node, or of two, either may be wrong


def test_clocks_that_barriers_cannot_tell_apart_finely_enough_are_not_proved(good: View) -> None:
    view = good
    for rank in range(3):
        view = edited(
            view, f"raw/mesh/rank-{rank}.json", lambda r: [e.update(within_s=9.0) for e in r["data"]["clocks"]]
        )
    assert check_of(view, "clocks").status is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda d: d["step"].update(loss_sum=1.0), "mesh.step"),
        (lambda d: d["step"].update(parameter_digest="0" * 64), "mesh.step"),
        (lambda d: d["summed"].update(digest="0" * 64), "mesh.all_reduce"),
        (lambda d: d["step"].update(backend="mpi"), "mesh.backend"),
    ],
)
def test_a_value_that_is_not_the_computed_one_fails(good: View, change: Change, check: str) -> None:
    view = on_nodes(edited(good, SECOND, lambda r: change(r["data"])), "n0", "n1", "n2")
    assert {c.id for c in judged(RUNG, view).checks if c.status is not Status.PASSED} >= {check}
    (found,) = (c for c in judged(RUNG, view).checks if c.id == check)
    assert found.nodes == (() if check == "mesh.backend" or "different models" in str(found.actual) else ("n1",))
    assert failed(RUNG, edited(good, SECOND, lambda r: change(r["data"]))) == {check}


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(nonce="other"),
        lambda t: t.update(rank=2),
        lambda t: t.update(world_size=2),
        lambda t: t.update(pid=1),
        lambda t: t["phases"].pop(0),
    ],
)
def test_a_trail_of_another_rank_attempt_or_process_is_refused(good: View, change: Change) -> None:
    with pytest.raises(EvidenceError):
        judged(RUNG, edited(good, TRAIL, change))


def test_a_rank_with_another_ranks_place_is_named_whatever_it_reports(good: View) -> None:
    view = edited(good, TRAIL, lambda t: t.update(local_rank=2))
    assert f"rank 1 on {HOST} has LOCAL_RANK 2, its place is 1" in str(check_of(view, "placed").actual)
    assert "mesh.placed" in failed(RUNG, edited(view, SECOND, lambda r: r.update(local_rank=2)))
    swapped = edited(view, "raw/mesh/trail-2.json", lambda t: t.update(local_rank=1))
    assert "mesh.placed" in failed(RUNG, swapped)


def test_a_host_with_too_many_ranks_is_named(good: View) -> None:
    view = with_plan(good, {**good.expect, "ranks_per_node": 1, "nodes": 3})
    assert f"{HOST} has 3 ranks" in str(check_of(view, "placed").actual)


@pytest.mark.parametrize("key", ["affinity", "network", "near"])
@pytest.mark.parametrize(
    "value", [3, "x", [1, {}], {"cpus": None}, {"cpus": 3}, {"cpus": {"value": 3}}, {"cpus": {"value": "z-"}}]
)
def test_a_fact_of_another_form_is_refused_with_its_file(good: View, key: str, value: Any) -> None:
    odd = both(on_gpus(good, H200), lambda facts: facts.update({"near": {"cpus": {"value": "0"}}, key: value}))
    if key == "network" and isinstance(value, dict):
        return  # an object, of which nothing is asked that is not there
    with pytest.raises(EvidenceError, match=rf"trail-1\.json.*facts\.{key}"):
        RUNG.read(odd)
