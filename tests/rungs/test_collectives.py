"""Collectives: every size, every rank, every element, and figures that follow from the times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_written import Job
from rungs_harness import collect, collected, edited, failed, judged, planned, status_of, with_files
from surefoot.model.check import Check
from surefoot.model.run import JobsStep
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.collectives import RUNG

FIRST, SECOND = "raw/collectives/rank-0.json", "raw/collectives/rank-1.json"
ALL = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    asked = {"collectives": ALL, "max_size": "64KiB", "factor": 16, "min_busbw_gb_s": {"all_reduce": 1e-6}}
    return collected(RUNG, asked, tmp_path_factory.mktemp("collectives"))


def data(view: View, name: str, **change: Any) -> View:
    return edited(view, name, lambda report: report["data"].update(change))


def point(view: View, name: str, number: int, **change: Any) -> View:
    return edited(view, name, lambda report: report["data"]["points"][number].update(change))


def test_six_collectives_pass_over_gloo_with_a_curve_for_each(good: View) -> None:
    judgement = judged(RUNG, good)
    assert status_of(RUNG, good) is Status.PASSED
    assert list(judgement.details["curves"]) == ALL
    assert len(judgement.measurements) == 3 * sum(len(rows) for rows in judgement.details["curves"].values())


def test_bandwidth_follows_from_the_slowest_rank_and_not_from_what_a_program_says(good: View) -> None:
    times = [1000.0] * 8
    slow = point(point(good, FIRST, 0, times_us=times, block_us=8000.0), SECOND, 0, times_us=[1.0] * 8, block_us=8.0)
    row = judged(RUNG, slow).details["curves"]["all_reduce"][0]
    assert row["time_us"] == 1000.0
    assert row["busbw_gb_s"] == pytest.approx(row["size_bytes"] / 1000.0 / 1e3)


def test_one_wrong_element_on_one_rank_fails(good: View) -> None:
    assert failed(RUNG, point(good, SECOND, 1, wrong=1)) == {"collectives.all_reduce.correct"}


def test_a_fall_back_to_another_backend_fails(good: View) -> None:
    assert failed(RUNG, data(good, SECOND, backend="mpi")) == {"collectives.backend"}


@pytest.mark.parametrize(
    "change",
    [
        {"times_us": [0.0] * 8},
        {"times_us": [1.0] * 7},
        {"times_us": []},
        {"times_us": [1e12] * 8},
        {"times_us": [0.001] * 8, "block_us": 0.008},
        {"times_us": [1.0] * 8, "block_us": 80_000.0},
        {"times_us": [1000.0] * 7 + [0.9], "block_us": 7000.0},
        {"checked": 1},
        {"size_bytes": 12},
        {"collective": "broadcast"},
        {"block_us": 0.0},
    ],
)
def test_a_point_that_cannot_be_proves_nothing(good: View, change: dict[str, Any]) -> None:
    assert status_of(RUNG, point(good, SECOND, 0, **change)) is Status.INCONCLUSIVE


@pytest.mark.parametrize("damage", ["drop", "double"])
def test_a_point_that_is_missing_or_doubled_proves_nothing(good: View, damage: str) -> None:
    def change(report: dict[str, Any]) -> None:
        points = report["data"]["points"]
        points.pop() if damage == "drop" else points.append(points[0])

    assert status_of(RUNG, edited(good, FIRST, change)) is Status.INCONCLUSIVE


def test_a_sweep_that_memory_cut_short_is_inconclusive_and_names_the_cap(good: View) -> None:
    def cut(report: dict[str, Any]) -> None:
        report["data"].update(free_bytes=40_000, cap_bytes=10_000)
        report["data"]["points"] = [p for p in report["data"]["points"] if p["size_bytes"] <= 10_000]

    view = edited(edited(good, FIRST, cut), SECOND, cut)
    bad = [check for check in judged(RUNG, view).checks if check.status is not Status.PASSED]
    assert {check.status for check in bad} == {Status.INCONCLUSIVE}
    assert {check.id for check in bad} == {f"collectives.{name}.reached" for name in ALL} | {
        "collectives.all_reduce.busbw"
    }
    assert all("9.8 KiB" in check.next_action for check in bad if check.id.endswith("reached"))
    unmeasured = judged(RUNG, view).details["curves"]["all_reduce"][-1]
    assert (unmeasured["time_us"], unmeasured["busbw_gb_s"]) == (None, None)


def test_a_cap_that_ranks_did_not_agree_on_proves_nothing(good: View) -> None:
    assert status_of(RUNG, data(good, SECOND, cap_bytes=1)) is Status.INCONCLUSIVE
    assert status_of(RUNG, data(good, SECOND, free_bytes=1)) is Status.INCONCLUSIVE


def test_a_floor_above_what_was_measured_fails_with_its_derivation(good: View) -> None:
    plan = good.plan.model_copy(update={"expect": {**good.expect, "min_busbw_gb_s": {"all_reduce": 1e6}}})
    view = replace(good, evidence=replace(good.evidence, plan=plan))
    (check,) = (c for c in judged(RUNG, view).checks if c.id == "collectives.all_reduce.busbw")
    assert check.status is Status.FAILED
    assert "µs" in check.derivation


def test_a_floor_for_a_collective_that_was_not_asked_for_is_inconclusive(good: View) -> None:
    plan = good.plan.model_copy(update={"expect": {**good.expect, "min_busbw_gb_s": {"gather": 1.0}}})
    assert status_of(RUNG, replace(good, evidence=replace(good.evidence, plan=plan))) is Status.INCONCLUSIVE


@pytest.mark.parametrize("world", [1, 3])
def test_a_world_of_another_size_proves_nothing(good: View, world: int) -> None:
    assert status_of(RUNG, data(good, SECOND, world_size=world)) is Status.INCONCLUSIVE


def test_figures_carry_the_fingerprint_of_what_they_were_measured_on(good: View) -> None:
    judgement = judged(RUNG, good)
    assert judgement.fingerprint is not None
    assert {m.fingerprint for m in judgement.measurements} == {judgement.fingerprint.content_digest()}


TWO_GPUS = {"name": "g", "count": 1, "gpus_per_node": 2}
LOG = (Path(__file__).parents[1] / "golden" / "nccl_log" / "h200-x2" / "collectives.out").read_text()


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Two ranks that really ran on the CPU; what two GPUs would report is written over it, with a real log of NCCL."""
    root = tmp_path_factory.mktemp("gpus")
    view = planned(RUNG, {"max_size": "64KiB", "factor": 64}, root, node_groups=[TWO_GPUS])
    (asked,) = view.plan.jobs
    cpu = {"gpus_per_node": 0, "request": {**asked.request, "device": "cpu", "backend": "gloo"}}
    view = collect(view, (JobsStep(jobs=(asked.model_copy(update=cpu),)),), root)
    view = edited(view, "raw/collectives/job.json", lambda d: d.update(spec=asked.canonical()))
    view = edited(view, "raw/collectives/request.json", lambda d: d.update(asked.request))
    log = LOG
    for rank, name in enumerate((FIRST, SECOND)):

        def on_gpu(report: dict[str, Any], rank: int = rank) -> None:
            device = {"kind": "cuda", "index": rank, "name": "NVIDIA H200", "uuid": f"u{rank}", "pci_bus_id": f"{rank}"}
            report["data"]["backend"] = "nccl"
            report["data"]["device"].update(device, memory_bytes=1, cuda="13.0", nccl="2.28.9")

        view = edited(view, name, on_gpu)
        report = json.loads(view.evidence.blob(name).read())
        log = log.replace(f"vm:{657 + rank}:", f"{report['host'].split('.')[0]}:{report['pid']}:")
    return with_files(view, {log_name(view): log.encode()})


def log_name(view: View) -> str:
    return next(blob.name for blob in view.evidence.under("raw/collectives") if blob.name.endswith(".out"))


def logged(view: View, old: str, new: str) -> View:
    """The view with another log."""
    text = view.evidence.blob(log_name(view)).text()
    assert old in text
    return with_files(view, {log_name(view): text.replace(old, new).encode()})


def later(view: View, points: int, late_us: float) -> View:
    """The host saw that much later that the device was done, at the first so many points of rank 1."""
    for number in range(points):
        view = point(view, SECOND, number, times_us=[100.0] * 8, block_us=800.0 + late_us)
    return view


def test_a_host_that_saw_a_device_late_once_or_twice_proves_as_much(two_gpus: View, good: View) -> None:
    assert status_of(RUNG, later(two_gpus, 2, 5_000.0)) is Status.PASSED
    assert status_of(RUNG, later(two_gpus, 3, 5_000.0)) is Status.INCONCLUSIVE
    assert status_of(RUNG, later(two_gpus, 1, 200_000.0)) is Status.INCONCLUSIVE
    assert status_of(RUNG, later(good, 1, 5_000.0)) is Status.INCONCLUSIVE  # a CPU rank has one clock


def test_ranks_share_the_cpus_that_the_cluster_file_promises(tmp_path: Path) -> None:
    view = planned(RUNG, {}, tmp_path, node_groups=[{**TWO_GPUS, "min_cpus": 16}])
    assert [job.cpus_per_rank for job in view.plan.jobs] == [8]  # bound to one, NCCL's threads wait for each other


def test_two_gpus_pass_and_say_over_what_they_talk(two_gpus: View) -> None:
    judgement = judged(RUNG, two_gpus)
    assert failed(RUNG, two_gpus) == set()
    (check,) = (c for c in judgement.checks if c.id == "collectives.transport")
    assert check.actual == "8 × P2P/CUMEM"
    assert "via P2P/CUMEM" in check.evidence[0].text
    assert check.evidence[0].line is not None
    assert judgement.details["transports"] == {"P2P/CUMEM": 8}


def test_a_fall_back_to_tcp_fails_unless_the_cluster_file_asks_for_it(two_gpus: View) -> None:
    tcp = logged(two_gpus, "via P2P/CUMEM", "[send] via NET/Socket/0")
    assert failed(RUNG, tcp) == {"collectives.transport"}
    expect = {**tcp.expect, "sockets": True}
    plan = tcp.plan.model_copy(update={"expect": expect})
    assert failed(RUNG, replace(tcp, evidence=replace(tcp.evidence, plan=plan))) == set()


def test_rails_are_claimed_once_ranks_are_on_two_nodes(two_gpus: View) -> None:
    tcp = logged(two_gpus, "via P2P/CUMEM", "[send] via NET/Socket/0")
    here = json.loads(tcp.evidence.blob(SECOND).read())
    own = f"{here['host'].split('.')[0]}:{here['pid']}:"
    moved = edited(tcp, "raw/collectives/done.json", lambda done: done["ranks"][1].update(host="n2"))
    apart = logged(edited(moved, SECOND, lambda report: report.update(host="n2")), own, f"n2:{here['pid']}:")
    assert "collectives.rails" not in {check.id for check in judged(RUNG, tcp).checks}
    (check,) = (check for check in judged(RUNG, apart).checks if check.id == "collectives.rails")
    assert check.status is Status.FAILED
    assert "n2: TCP sockets carry, no rail does" in (check.actual or "")


def test_counters_of_rdma_ports_are_asked_for_on_several_nodes_only(tmp_path: Path) -> None:
    two = planned(RUNG, {}, tmp_path, node_groups=[{**TWO_GPUS, "count": 2}]).plan.jobs[0]
    one = planned(RUNG, {}, tmp_path, node_groups=[TWO_GPUS]).plan.jobs[0]
    assert (two.request["counters"], one.request["counters"]) == (True, False)


def test_a_nodes_first_rank_reads_counters_around_the_sweep_or_says_why_not(tmp_path: Path) -> None:
    view = planned(RUNG, {"max_size": "64", "collectives": ["all_reduce"]}, tmp_path)
    (job,) = view.plan.jobs
    asked = job.model_copy(update={"request": {**job.request, "counters": True}})
    plan = view.plan.model_copy(update={"steps": (JobsStep(jobs=(asked,)),)})
    view = replace(view, evidence=replace(view.evidence, plan=plan))
    view = collect(view, view.plan.steps, tmp_path)
    first, second = (json.loads(view.evidence.blob(name).read())["data"]["ports"] for name in (FIRST, SECOND))
    assert set(first) == {"before", "after"}
    assert all(reading.get("value") or reading["unknown"] for reading in first.values())
    assert second is None
    assert status_of(RUNG, view) is Status.PASSED
    assert status_of(RUNG, data(view, FIRST, ports=None)) is Status.INCONCLUSIVE


MERGED = Job(
    per_node=1,
    using=" [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
    virtual=("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=200000 ndevs=2 rail=-1 plane=16385",),
    devices=("IB/2", "IB/2"),
)
"""Two nodes of one GPU, each with two ports made one NIC: DGX Spark."""


def readings(*moved: int) -> dict[str, Any]:
    """Ports mlx5_0 and mlx5_1 before, and after they moved so many bytes each way."""
    first = {"port_xmit_data": 7, "port_rcv_data": 9, "symbol_error": 0}
    last = [{**first, "port_xmit_data": 7 + amount // 4, "port_rcv_data": 9 + amount // 4} for amount in moved]
    return {
        "before": {"value": {f"mlx5_{port}:1": {"value": first} for port in range(len(moved))}},
        "after": {"value": {f"mlx5_{port}:1": {"value": counted} for port, counted in enumerate(last)}},
    }


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> View:
    """Two ranks that really ran on this machine's CPU; what GPUs of two nodes would report is written over it."""
    root = tmp_path_factory.mktemp("nodes")
    group = {"name": "sparks", "count": 2, "gpus_per_node": 1}
    view = planned(RUNG, {"max_size": "64KiB", "factor": 64}, root, node_groups=[group])
    (asked,) = view.plan.jobs
    asked = asked.model_copy(update={"request": {**asked.request, "links": None}})
    plan = view.plan.model_copy(update={"steps": (JobsStep(jobs=(asked,)),), "expect": {**view.expect, "links": None}})
    view = replace(view, evidence=replace(view.evidence, plan=plan))
    cpu = {"nodes": 1, "ranks_per_node": 2, "gpus_per_node": 0}
    request = {**asked.request, "device": "cpu", "backend": "gloo"}
    view = collect(view, (JobsStep(jobs=(asked.model_copy(update={**cpu, "request": request}),)),), root)
    view = edited(view, "raw/collectives/job.json", lambda d: d.update(spec=asked.canonical()))
    view = edited(view, "raw/collectives/request.json", lambda d: d.update(asked.request))
    view = edited(view, "raw/collectives/done.json", lambda d: [r.update(host=f"n{r['rank'] + 1}") for r in d["ranks"]])
    log = MERGED.text()
    for rank, name in enumerate((FIRST, SECOND)):

        def on_node(report: dict[str, Any], rank: int = rank) -> None:
            device = {"kind": "cuda", "index": 0, "name": "NVIDIA GB10", "uuid": f"u{rank}", "pci_bus_id": "f"}
            report.update(host=f"n{rank + 1}", local_rank=0)
            report["data"].update(backend="nccl", ports=readings(2**30, 2**30))
            report["data"]["device"].update(device, memory_bytes=1, cuda="13.0", nccl="2.28.9")

        view = edited(view, name, on_node)
        pid = json.loads(view.evidence.blob(name).read())["pid"]
        log = log.replace(f"n{rank + 1}:{100 + rank}:", f"n{rank + 1}:{pid}:")
    return with_files(view, {log_name(view): log.encode()})


def check_of(view: View, name: str) -> Check:
    (found,) = (check for check in judged(RUNG, view).checks if check.id == f"collectives.{name}")
    return found


def test_two_nodes_whose_ports_are_made_one_pass_by_what_each_port_moved(two_nodes: View) -> None:
    assert failed(RUNG, two_nodes) == set()
    assert check_of(two_nodes, "rails").actual == "4 ports of 2 nodes, sending and receiving"
    assert check_of(two_nodes, "rail_errors").actual == "0 on 4 ports"
    assert "bounce through the host" in judged(RUNG, two_nodes).details["gpudirect"]


def declaring(view: View, **group: Any) -> View:
    """The same evidence under a cluster file whose group says this, as the rung plans what to expect of it."""
    whole = {"name": "sparks", "count": 2, "gpus_per_node": 1, **group}
    asked = {"max_size": "64KiB", "factor": 64}
    root = Path(view.inputs.cluster.root)
    network = planned(RUNG, asked, root, node_groups=[whole], scheduler={"kind": "slurm"}).plan.expect["network"]
    plan = view.plan.model_copy(update={"expect": {**view.plan.expect, "network": network}})
    return replace(view, evidence=replace(view.evidence, plan=plan))


def rails(*hcas: str) -> list[dict[str, Any]]:
    return [{"name": hca, "rate_gbit_s": 200, "hca": hca} for hca in hcas]


def test_rails_and_gpudirect_that_the_cluster_file_declares_are_what_the_log_is_held_to(two_nodes: View) -> None:
    assert failed(RUNG, declaring(two_nodes, rails=rails("mlx5_0", "mlx5_1"))) == set()
    absent = declaring(two_nodes, rails=rails("mlx5_0", "mlx5_7"))
    assert "collectives.rails" in failed(RUNG, absent)
    assert "NCCL did not find mlx5_7:1" in str(check_of(absent, "rails").actual)
    # A port that is no declared rail may idle and count errors.
    other = readings(2**31, 0)
    other["after"]["value"]["mlx5_1:1"]["value"]["symbol_error"] = 3
    beside = data(two_nodes, SECOND, ports=other)
    assert failed(RUNG, beside) == {"collectives.rails", "collectives.rail_errors"}
    assert failed(RUNG, declaring(beside, rails=rails("mlx5_0"))) == set()
    assert failed(RUNG, declaring(two_nodes, gpudirect="expected")) == {"collectives.gdr"}
    assert "GPUDirect, which is not judged: " in check_of(declaring(two_nodes), "rails").derivation


@pytest.mark.parametrize("moved", [(2**31, 0), (4096, 4096)])
def test_a_port_that_was_idle_or_moved_less_than_the_sweep_must_fails(two_nodes: View, moved: tuple[int, int]) -> None:
    idle = data(two_nodes, SECOND, ports=readings(*moved))
    assert failed(RUNG, idle) == {"collectives.rails"}
    assert f"n2: mlx5_1:1 sends {moved[1]} B" in str(check_of(idle, "rails").actual)


def test_an_error_that_a_port_counted_meanwhile_fails(two_nodes: View) -> None:
    bad = readings(2**30, 2**30)
    bad["after"]["value"]["mlx5_0:1"]["value"]["symbol_error"] = 3
    view = data(two_nodes, FIRST, ports=bad)
    assert failed(RUNG, view) == {"collectives.rail_errors"}
    assert check_of(view, "rail_errors").actual == "n1: mlx5_0:1 symbol_error rose by 3"


def test_a_node_whose_counters_cannot_be_read_leaves_ports_made_one_open(two_nodes: View) -> None:
    unread = {"before": {"value": None, "unknown": "LookupError: x"}, "after": {"value": None, "unknown": "y"}}
    view = data(two_nodes, SECOND, ports=unread)
    assert failed(RUNG, view) == {"collectives.rails", "collectives.rail_errors"}
    assert check_of(view, "rails").status is Status.INCONCLUSIVE
    assert "n2: counters not read before: LookupError: x" in check_of(view, "rails").derivation


@pytest.mark.parametrize(
    ("env", "allowed"), [({}, False), ({"NCCL_NET": "Socket"}, True), ({"NCCL_IB_DISABLE": "1"}, True)]
)
def test_only_the_cluster_file_allows_tcp(env: dict[str, str], allowed: bool, tmp_path: Path) -> None:
    assert planned(RUNG, {}, tmp_path, node_groups=[TWO_GPUS], env=env).expect["sockets"] is allowed


@pytest.mark.parametrize("log", ["", "nothing of NCCL\n"])
def test_without_a_line_on_connections_the_transport_is_not_proved(two_gpus: View, log: str) -> None:
    bare = with_files(two_gpus, {log_name(two_gpus): log.encode()})
    bad = {c.id: c.status for c in judged(RUNG, bare).checks if c.status is not Status.PASSED}
    assert bad == {"collectives.transport": Status.INCONCLUSIVE}
    assert status_of(RUNG, with_files(two_gpus, {log_name(two_gpus): None})) is Status.INCONCLUSIVE


def test_the_log_of_another_job_proves_nothing(two_gpus: View) -> None:
    other = with_files(two_gpus, {log_name(two_gpus): LOG.encode()})
    assert status_of(RUNG, other) is Status.INCONCLUSIVE


def test_one_gpu_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    group = {**TWO_GPUS, "gpus_per_node": 1}
    view = collected(RUNG, {"max_size": "64KiB", "factor": 64}, tmp_path, node_groups=[group])
    judgement = judged(RUNG, view)
    assert failed(RUNG, view) == set()
    assert judgement.summary.endswith("2 ranks over gloo on the CPU: one GPU has no other to talk to")
    assert "nothing is shown about it here" in next(c.claim for c in judgement.checks if c.id == "collectives.devices")


def test_two_gpus_are_asked_for_over_nccl_with_its_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    group = {"name": "g", "count": 1, "gpus_per_node": 2}
    job = planned(RUNG, {}, tmp_path_factory.mktemp("gpu"), node_groups=[group]).plan.jobs[0]
    assert (job.request["backend"], job.request["device"], job.gpus_per_node) == ("nccl", "cuda", 2)
    assert job.env["NCCL_DEBUG_SUBSYS"] == "INIT,NET,BOOTSTRAP,ENV"
    assert job.request["init_timeout_s"] < job.time_limit_s
