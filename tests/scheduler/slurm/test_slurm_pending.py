"""Waiting jobs, jobs that can never run, and jobs that are tried again."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from surefoot.model.job import EndCause, JobSpec, JobState, JobStatus
from surefoot.scheduler.slurm.parse import NodeRow, Partition
from surefoot.scheduler.slurm.pending import NEVER, WORDS, PendingPolicy, explain, never_runs, overdue, stranded
from surefoot.scheduler.slurm.retry import retry

SPEC = JobSpec(name="j", argv=("x",), folder="/f", nodes=4, ranks_per_node=2)
NODE = NodeRow(name="n1", partition="gpu", default=True, state="idle", cpus=8, memory_mib=1000, gpus=2, reason="")
NODES = [replace(NODE, name=f"n{n}") for n in range(1, 5)]
PARTITIONS = [Partition("gpu", "UP", 600, 4), Partition("old", "DRAIN", inf, inf)]


def never(**changes: object) -> str:
    return "; ".join(never_runs(SPEC.model_copy(update=changes), str(changes.get("partition", "")), NODES, PARTITIONS))


def test_a_request_that_fits_is_let_through() -> None:
    assert never() == ""
    assert never(gpus_per_node=2, cpus_per_rank=4, memory_mib_per_node=1000, time_limit_s=600) == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": 5}, "5 nodes are above the 4"),
        ({"gpus_per_node": 3}, "too little for 3 GPUs a node (has 2): n[1-4]"),
        ({"cpus_per_rank": 5}, "too little for 10 CPUs a node (has 8): n[1-4]"),
        ({"memory_mib_per_node": 1001}, "too little for 1001 MiB a node (has 1000)"),
        ({"time_limit_s": 601}, "601 s is above the 600 s"),
        ({"partition": "none"}, "does not exist; there are gpu, old"),
        ({"partition": "old"}, "is DRAIN"),
        ({"hosts": "n[4-5]", "nodes": 2}, "node 'n5' is not in partition 'gpu'"),
        ({"exclude_hosts": "n2"}, "4 nodes are asked for, and 3 of the 4"),
    ],
)
def test_a_request_that_can_never_run_says_why(changes: dict[str, object], says: str) -> None:
    assert says in never(**changes)


def test_a_node_that_is_down_counts_only_where_it_is_asked_for() -> None:
    nodes = [replace(NODES[0], state="down", reason="bad rail"), *NODES[1:]]
    assert never_runs(SPEC, "", nodes, PARTITIONS) == []
    asked = SPEC.model_copy(update={"hosts": "n[1-4]"})
    assert never_runs(asked, "", nodes, PARTITIONS) == ["node 'n1' was asked for and is down: bad rail"]


@pytest.mark.parametrize(
    "reason", ["Priority", "QOSMaxGRESPerUser", "AssocGrpNodeLimit", "ReqNodeNotAvail, UnavailableNodes:n3"]
)
def test_a_reason_is_explained_and_shown(reason: str) -> None:
    assert explain(reason).endswith(f"[{reason}]")
    assert len(explain(reason)) > len(reason) + 10


def test_a_reason_that_nobody_knows_is_shown_as_it_is_and_the_expected_start_is_told() -> None:
    assert explain("SomethingNew") == "SomethingNew"
    assert "in 2 h 5 min" in explain("Priority", 7500, 0)
    assert "in 3 min" in explain("Priority", 200, 0)
    assert "start" not in explain("Priority", None, 0)
    assert NEVER - {"x"} <= WORDS.keys()


def test_waiting_too_long_ends_as_the_policy_says() -> None:
    policy = PendingPolicy(max_wait_s=60)
    assert overdue(SPEC, policy, 60, "Priority") is None
    cancelled = overdue(SPEC, policy, 61, "Priority")
    assert cancelled is not None
    assert (cancelled.again, "waited 61 s of 60" in cancelled.reason) == (None, True)
    moved = overdue(SPEC, replace(policy, then="move", partition="fast"), 61, "Priority")
    assert moved is not None
    assert moved.again is not None
    assert moved.again.partition == "fast"
    shrunk = overdue(SPEC, replace(policy, then="shrink", min_nodes=3), 61, "Priority")
    assert shrunk is not None
    assert shrunk.again is not None
    assert shrunk.again.nodes == 3
    assert overdue(SPEC, PendingPolicy(), 1e9, "Priority") is None


def test_a_job_that_can_never_start_is_not_waited_for() -> None:
    step = overdue(SPEC, PendingPolicy(), 0, "DependencyNeverSatisfied")
    assert step is not None
    assert "never starts" in step.reason


def ended(cause: EndCause | None) -> JobStatus:
    return JobStatus(state=JobState.FAILED, reason="a node failed", cause=cause, nodes="n[1-4]")


def test_a_node_s_failure_is_tried_again_without_it_and_only_so_often() -> None:
    again = retry(SPEC, ended(EndCause.NODE), 1, "n3,n1")
    assert again is not None
    assert (again.exclude_hosts, again.reason) == ("n[1,3]", "a node failed: try 2 of 3 without n[1,3]")
    assert retry(SPEC, ended(EndCause.NODE), 3, "n3") is None
    unknown = retry(SPEC, ended(EndCause.NODE), 1)
    assert unknown is not None
    assert unknown.exclude_hosts == ""


@pytest.mark.parametrize("cause", [c for c in EndCause if c is not EndCause.NODE] + [None])
def test_nothing_else_is_tried_again(cause: EndCause | None) -> None:
    assert retry(SPEC, ended(cause), 1, "n3") is None


def test_a_job_that_asked_for_the_bad_node_is_not_moved_off_it() -> None:
    assert retry(SPEC.model_copy(update={"hosts": "n[1-4]"}), ended(EndCause.NODE), 1, "n3") is None


def test_a_waiting_job_is_stranded_where_too_few_of_the_nodes_that_fit_take_jobs() -> None:
    nodes = [replace(NODES[0], state="down", reason="Not responding"), *NODES[1:]]
    out, why = stranded(SPEC, "", nodes)
    assert out == "n1"
    assert why == "it wants 4 nodes, and 3 of the 4 that fit take jobs: n1 is down (Not responding)"
    asked = SPEC.model_copy(update={"hosts": "n[1-2]", "nodes": 2})
    assert stranded(asked, "gpu", nodes)[0] == "n1"


def test_a_job_that_waits_for_others_is_not_stranded() -> None:
    nodes = [replace(NODES[0], state="down"), *NODES[1:]]
    assert stranded(SPEC.model_copy(update={"nodes": 3}), "", nodes) == ("", "")
    assert stranded(SPEC, "", [replace(node, state="allocated") for node in NODES]) == ("", "")
    assert stranded(SPEC.model_copy(update={"exclude_hosts": "n1", "nodes": 3}), "", nodes) == ("", "")
