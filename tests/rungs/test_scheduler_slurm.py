"""Scheduler smoke on Slurm: every check sees what a real lab answered, and is seen to fail when that is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rungs_harness import edited, failed, judged, status_of, with_files
from slurm_views import GROUP, scheduler_view, site
from surefoot.model.check import Check
from surefoot.model.job import JobState
from surefoot.model.run import CommandStep, JobsStep
from surefoot.model.status import Status, combine
from surefoot.rungs.base import View
from surefoot.rungs.endings import ending_checks
from surefoot.rungs.scheduler_smoke import RUNG

HEAD = "raw/head.stdout"
DECODED = "raw/decoded.stdout"
NODE = ("raw/nodes/rank-0.json", "raw/nodes/rank-1.json")
SITE = "scheduler.slurm."


@pytest.fixture(scope="module")
def good() -> View:
    return scheduler_view()


def check(view: View, identifier: str) -> Check:
    return next(each for each in judged(RUNG, view).checks if each.id == identifier)


def on_node(view: View, rank: int, change: Callable[[dict[str, Any]], Any]) -> View:
    """The view with one node's data changed."""
    return edited(view, NODE[rank], lambda report: change(report["data"]))


def test_a_whole_lab_passes_and_every_check_names_its_evidence(good: View) -> None:
    judgement = judged(RUNG, good)
    assert failed(RUNG, good) == set()
    assert combine(each.status for each in ending_checks(good.evidence)) is Status.PASSED
    assert all(each.evidence for each in judgement.checks)
    assert judgement.summary.endswith("told apart; Slurm 22.05.8, 2 nodes configured alike")


# --- what is asked --------------------------------------------------------------------------------


def test_the_plan_looks_from_the_head_ends_jobs_in_every_way_then_looks_at_every_node() -> None:
    head, jobs, nodes, decoded = site(RUNG).plan.steps
    assert isinstance(head, CommandStep)
    assert isinstance(decoded, CommandStep)
    assert isinstance(jobs, JobsStep)
    assert isinstance(nodes, JobsStep)
    states = {job.name: job.expect.final_state for job in jobs.jobs}
    assert states["cancelled"] is JobState.CANCELLED
    assert states["limit"] is JobState.TIMEOUT
    assert jobs.cancel == ("cancelled",)
    (looking,) = nodes.jobs
    assert (looking.nodes, looking.ranks_per_node, looking.hosts) == (2, 1, "n[1-2]")
    assert {host for job in jobs.jobs for host in (job.hosts,)} == {"n1", "n2", "n[1-2]"}, "every node has its turn"


def test_hosts_are_left_to_slurm_where_the_cluster_file_names_none_or_fewer_are_asked_for() -> None:
    unnamed = site(RUNG, {"name": "any", "count": 3})
    assert {job.hosts for job in unnamed.plan.jobs} == {""}
    assert unnamed.evidence.job("nodes").nodes == 3
    some = site(RUNG, nodes=1)
    assert {job.hosts for job in some.plan.jobs} == {""}


# --- placement, array, limit, cancel --------------------------------------------------------------


def test_a_declared_host_that_no_rank_ran_on_is_named(good: View) -> None:
    assert failed(RUNG, on_node(good, 1, lambda d: d.update(node="n7"))) == {f"{SITE}placed"}
    words = str(check(on_node(good, 1, lambda d: d.update(node="n7")), f"{SITE}placed").actual)
    assert "no rank ran on n2" in words
    assert "n7 is not among the hosts" in words


def test_two_ranks_that_say_one_node_prove_nothing(good: View) -> None:
    assert status_of(RUNG, on_node(good, 1, lambda d: d.update(node="n1"))) is Status.INCONCLUSIVE


def test_an_array_that_ran_as_one_process_fails(good: View) -> None:
    report = json.loads(good.evidence.blob("raw/array/array-0/rank-0.json").read())
    same = edited(good, "raw/array/array-1/rank-0.json", lambda d: d.update(pid=report["pid"]))
    assert failed(RUNG, same) == {"scheduler.array"}


@pytest.mark.parametrize("key", ["run", "nonce", "job", "job_id", "program", "code_digest", "imported_from", "rank"])
@pytest.mark.parametrize("file", ["raw/array/array-2/rank-0.json", "raw/limit/rank-0.json"])
def test_a_report_of_another_element_run_or_code_proves_nothing(good: View, file: str, key: str) -> None:
    other = edited(good, file, lambda d: d.update({key: 1 if key == "rank" else "other"}))
    assert status_of(RUNG, other) is Status.INCONCLUSIVE


@pytest.mark.parametrize(("seconds", "passes"), [(2, False), (9.5, True), (20, True), (40, False)])
def test_a_limit_that_comes_early_or_late_fails(good: View, seconds: float, passes: bool) -> None:
    moved = edited(good, "raw/limit/done.json", lambda d: d.update(ended_at=d["started_at"] + seconds))
    assert failed(RUNG, moved) == (set() if passes else {"scheduler.limit"})


def test_a_job_that_could_not_tell_when_it_ended_leaves_its_limit_open(good: View) -> None:
    silent = with_files(good, {"raw/limit/done.json": None})
    assert check(silent, "scheduler.limit").status is Status.INCONCLUSIVE


def test_a_job_that_ran_to_its_own_end_was_not_cancelled(good: View) -> None:
    late = edited(good, "raw/cancelled/done.json", lambda d: d.update(ended_at=d["started_at"] + 700))
    assert "scheduler.cancelled" in failed(RUNG, late)


def test_a_process_that_is_left_on_a_node_is_named(good: View) -> None:
    left = {"pid": 4711, "job": "cancelled", "command": "python3 -m surefoot.node.waiting"}
    broken = on_node(good, 1, lambda d: d["left_behind"].append(left))
    assert failed(RUNG, broken) == {"scheduler.gone"}
    assert "pid 4711 of job cancelled on n2" in str(check(broken, "scheduler.gone").actual)


# --- the site -------------------------------------------------------------------------------------


def test_a_controller_with_another_slurm_conf_fails(good: View) -> None:
    def other(document: Any) -> None:
        rows = document["answers"]["config"]["stdout"]
        index = next(i for i, row in enumerate(rows) if row.startswith("HASH_VAL"))
        rows[index] = "HASH_VAL                = Different Ours=0x3d1 Slurmctld=0x3d2"

    assert failed(RUNG, edited(good, HEAD, other)) == {f"{SITE}config"}


def test_a_controller_that_does_not_say_whether_its_slurm_conf_is_this_one_proves_nothing(good: View) -> None:
    def silent(document: Any) -> None:
        rows = document["answers"]["config"]["stdout"]
        rows[:] = [row for row in rows if not row.startswith("HASH_VAL")]

    broken = edited(good, HEAD, silent)
    assert check(broken, f"{SITE}config").status is Status.INCONCLUSIVE


def test_a_node_that_was_drained_meanwhile_is_told_with_slurms_reason(good: View) -> None:
    def drain(document: Any) -> None:
        rows = document["answers"]["nodes"]["stdout"]
        rows[1] = rows[1].replace("State=IDLE", "State=IDLE+DRAIN") + " Reason=bad rail [root@1795980000]"

    broken = edited(good, HEAD, drain)
    assert failed(RUNG, broken) == {f"{SITE}nodes"}
    assert "bad rail [said root]" in str(check(broken, f"{SITE}nodes").actual)


def test_fewer_gpus_in_slurm_than_declared_fail_with_the_node_and_more_are_told() -> None:
    assert "which this cluster file leaves alone" in str(check(scheduler_view(), f"{SITE}gpus").actual)
    assert failed(RUNG, scheduler_view({**GROUP, "gpus_per_node": 8})) == set()


@pytest.mark.parametrize(("gres", "count"), [("gpu:h100:7", 7), ("gpu:7", 7), ("(null)", 0)])
def test_a_gpu_that_slurm_does_not_have_fails(gres: str, count: int) -> None:
    declared = scheduler_view({**GROUP, "gpus_per_node": 8})

    def change(document: Any) -> None:
        rows = document["answers"]["nodes"]["stdout"]
        rows[0] = rows[0].replace("Gres=gpu:h100:8", f"Gres={gres}")

    broken = edited(declared, HEAD, change)
    assert failed(RUNG, broken) == {f"{SITE}gpus"}
    assert str(check(broken, f"{SITE}gpus").actual).startswith(f"n1 has {count} of 8")


# --- slurm.conf -----------------------------------------------------------------------------------


def conf(data: dict[str, Any]) -> dict[str, Any]:
    file: dict[str, Any] = data["configuration"]["files"]["slurm.conf"]
    return file


def test_a_slurm_conf_edited_on_one_node_is_named_with_its_lines(good: View) -> None:
    lines = ["-KillWait=5", "+KillWait=31"]
    broken = on_node(good, 0, lambda d: conf(d).update(sha256="0" * 64, differing=lines))
    assert failed(RUNG, broken) == {f"{SITE}conf"}
    found = check(broken, f"{SITE}conf")
    assert found.actual == "n1: /etc/slurm/slurm.conf is not as on the login host: -KillWait=5 / +KillWait=31"
    assert found.status is Status.FAILED
    assert found.evidence[0].file == NODE[0]


def test_a_slurm_conf_that_a_node_cannot_read_leaves_it_open_with_the_reason(good: View) -> None:
    broken = on_node(good, 1, lambda d: conf(d).update(sha256=None, error="Permission denied"))
    found = check(broken, f"{SITE}conf")
    assert found.status is Status.INCONCLUSIVE
    assert found.actual == "n2: slurm.conf cannot be read at /etc/slurm/slurm.conf: Permission denied"


def test_an_included_file_that_is_missing_on_a_node_fails(good: View) -> None:
    file = {"path": "/etc/slurm/nodes.conf", "sha256": "1" * 64, "lines": [], "error": ""}
    broken = edited(good, HEAD, lambda d: d["configuration"]["files"].update({"nodes.conf": file}))
    mine = {"path": "/etc/slurm/nodes.conf", "sha256": "1" * 64, "differing": [], "error": ""}
    for rank in (0, 1):
        assert failed(RUNG, broken) == {f"{SITE}conf"}
        broken = on_node(broken, rank, lambda d: d["configuration"]["files"].update({"nodes.conf": mine}))
    assert failed(RUNG, broken) == set()


def test_gres_conf_may_differ_between_groups_and_not_within_one() -> None:
    def other(data: dict[str, Any]) -> None:
        data["configuration"]["files"]["gres.conf"]["sha256"] = "2" * 64

    broken = on_node(scheduler_view(), 1, other)
    assert str(check(broken, f"{SITE}conf").actual) == "n2: /etc/slurm/gres.conf is not as on the login host"
    two = [{**GROUP, "name": name, "count": 1, "hosts": name} for name in ("n1", "n2")]
    assert failed(RUNG, on_node(scheduler_view(*two), 1, other)) == set()


def test_nodes_are_compared_with_each_other_where_the_login_host_has_no_slurm_conf(good: View) -> None:
    def none(document: Any) -> None:
        document["configuration"]["files"]["slurm.conf"].update(sha256=None, lines=[], error="not found")

    alone = edited(good, HEAD, none)
    assert failed(RUNG, alone) == set()
    assert failed(RUNG, on_node(alone, 1, lambda d: conf(d).update(sha256="0" * 64))) == {f"{SITE}conf"}


# --- munge ----------------------------------------------------------------------------------------

INVALID = {"exit_code": 14, "stdout": [], "stderr": ["unmunge: Error: Invalid credential"]}


def another_key(view: View, rank: int) -> View:
    """What all hosts say when one node has another key."""
    broken = on_node(view, rank, lambda d: d["munge"]["head"].update(INVALID))
    broken = on_node(broken, rank, lambda d: [a.update(INVALID) for a in d["munge"]["others"].values()])
    broken = edited(broken, DECODED, lambda d: d["decoded"][str(rank)].update(INVALID))
    other = 1 - rank
    return on_node(broken, other, lambda d: d["munge"]["others"][str(rank)].update(INVALID))


@pytest.mark.parametrize("rank", [0, 1])
def test_the_node_with_another_munge_key_is_named_and_not_those_that_it_was_tried_with(good: View, rank: int) -> None:
    found = check(another_key(good, rank), f"{SITE}munge")
    assert failed(RUNG, another_key(good, rank)) == {f"{SITE}munge"}
    assert str(found.actual).startswith(f"not as the others: n{rank + 1}; ")
    assert "Invalid credential: another munge key" in str(found.actual)
    assert found.evidence[0].file == NODE[rank]


def test_a_credential_that_is_expired_tells_how_far_the_clocks_are_apart(good: View) -> None:
    rows = [
        "STATUS:          Expired credential (15)",
        "ENCODE_TIME:     2026-11-29 19:07:13 +0000 (1795979233)",
        "DECODE_TIME:     2026-11-29 19:17:13 +0000 (1795979833)",
    ]
    broken = on_node(good, 1, lambda d: d["munge"]["head"].update(exit_code=15, stdout=rows))
    assert "n2 cannot decode the head's: Expired credential (15): the clocks are 600 s apart" in str(
        check(broken, f"{SITE}munge").actual
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["munge"].update(head=None),
        lambda d: d["munge"]["others"].update({"0": None}),
        lambda d: d["munge"]["head"].update(exit_code=None, error="unmunge: not found", stdout=[]),
    ],
)
def test_a_credential_that_never_came_or_was_not_tried_leaves_it_open(good: View, change: Any) -> None:
    found = check(on_node(good, 1, change), f"{SITE}munge")
    assert found.status is Status.INCONCLUSIVE
    assert "n2" in str(found.actual)


def test_a_node_that_cannot_make_a_credential_fails(good: View) -> None:
    def dead(data: dict[str, Any]) -> None:
        for answer in data["munge"]["made"].values():
            answer.update(exit_code=6, stdout=[], stderr=["munge: Error: Failed to access munged socket"])
        data["munge"].update(head=None, others={})

    broken = edited(on_node(good, 1, dead), DECODED, lambda d: d["decoded"].update({"1": None}))
    broken = on_node(broken, 0, lambda d: d["munge"]["others"].update({"1": None}))
    found = check(broken, f"{SITE}munge")
    assert found.status is Status.FAILED
    assert "n2 cannot make one: Failed to access munged socket" in str(found.actual)


def test_a_credential_that_holds_something_else_fails(good: View) -> None:
    def stale(data: dict[str, Any]) -> None:
        data["munge"]["head"]["stdout"][-1] = "another attempt"

    assert failed(RUNG, on_node(good, 1, stale)) == {f"{SITE}munge"}


def test_a_site_without_munge_says_so_and_passes(good: View) -> None:
    def slurm_key(document: Any) -> None:
        rows = document["answers"]["config"]["stdout"]
        index = next(i for i, row in enumerate(rows) if row.startswith("AuthType "))
        rows[index] = "AuthType                = auth/slurm"

    found = check(edited(another_key(good, 1), HEAD, slurm_key), f"{SITE}munge")
    assert (found.status, found.actual) == (Status.PASSED, "this site does without munge: AuthType = auth/slurm")


# --- clocks ---------------------------------------------------------------------------------------


def shifted(seconds: float) -> Callable[[dict[str, Any]], Any]:
    def change(data: dict[str, Any]) -> None:
        for key in ("started_at", "ended_at"):
            data["config"][key] += seconds

    return change


@pytest.mark.parametrize(("seconds", "words"), [(60, "n2 is 59 s ahead of"), (-60, "n2 is 60 s behind")])
def test_a_clock_that_is_off_is_named_with_its_offset(good: View, seconds: float, words: str) -> None:
    broken = on_node(good, 1, shifted(seconds))
    assert failed(RUNG, broken) == {f"{SITE}clocks"}
    assert words in str(check(broken, f"{SITE}clocks").actual)


@pytest.mark.parametrize("seconds", [-4, 4])
def test_a_clock_that_is_off_by_less_than_matters_passes(good: View, seconds: float) -> None:
    assert failed(RUNG, on_node(good, 1, shifted(seconds))) == set()


def test_the_heads_clock_is_compared_too(good: View) -> None:
    broken = edited(good, HEAD, lambda d: shifted(60)(d["answers"]))
    assert "the head (head) is 59 s ahead" in str(check(broken, f"{SITE}clocks").actual)


@pytest.mark.parametrize(
    "change",
    [{"stdout": []}, {"stdout": ["Configuration data as of 2026-11-29T19:29:19"]}, {"exit_code": 1}, {"ended_at": 2e9}],
)
def test_an_answer_without_a_time_or_that_took_long_leaves_the_clock_open(good: View, change: dict[str, Any]) -> None:
    broken = on_node(good, 0, lambda d: d["config"].update(change))
    found = check(broken, f"{SITE}clocks")
    assert found.status is Status.INCONCLUSIVE
    assert "n1" in str(found.actual)


# --- evidence that is not there -------------------------------------------------------------------


@pytest.mark.parametrize("file", [HEAD, DECODED, *NODE, "raw/array/array-1/rank-0.json", "raw/cancelled/rank-0.json"])
@pytest.mark.parametrize("content", [None, b"", b"{", b"{}"])
def test_missing_or_broken_evidence_proves_nothing(good: View, file: str, content: bytes | None) -> None:
    assert status_of(RUNG, with_files(good, {file: content})) is Status.INCONCLUSIVE


@pytest.mark.parametrize("file", [HEAD, DECODED])
def test_an_answer_to_another_attempt_proves_nothing(good: View, file: str) -> None:
    assert status_of(RUNG, edited(good, file, lambda d: d.update(nonce="other"))) is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["munge"]["others"].clear(),
        lambda d: d["munge"]["made"].popitem(),
        lambda d: d["munge"]["head"].update(argv=["echo"]),
        lambda d: d["config"].update(argv=["echo"]),
        lambda d: d["configuration"]["files"].clear(),
    ],
)
def test_a_node_that_left_something_out_proves_nothing(good: View, change: Any) -> None:
    assert status_of(RUNG, on_node(good, 1, change)) is Status.INCONCLUSIVE
