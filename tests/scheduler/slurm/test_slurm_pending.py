"""Waiting jobs, jobs that can never run, and jobs that are tried again."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from surefoot.model.job import EndCause, JobDone, JobSpec, JobState, JobStatus, RankExit
from surefoot.model.ladder import Pending
from surefoot.scheduler.base import Waiting
from surefoot.scheduler.slurm.parse import Holder, NodeRow, Partition
from surefoot.scheduler.slurm.pending import (
    NEVER,
    UNAVAILABLE,
    WORDS,
    Overdue,
    explain,
    never_runs,
    overdue,
    stranded,
    waits_for,
    what_then,
    word_of,
)
from surefoot.scheduler.slurm.retry import not_launched, retry

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
    assert never_runs(asked, "", nodes, PARTITIONS) == ["n1 is down (bad rail), and was asked for by name"]


@pytest.mark.parametrize(
    "reason",
    [
        "Priority", "QOSMaxGRESPerUser", "AssocGrpNodeLimit", "ReqNodeNotAvail, UnavailableNodes:n3",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "ReqNodeNotAvail,_UnavailableNodes:n3",
    ],
)  # fmt: skip
def test_a_reason_is_explained_and_shown(reason: str) -> None:
    assert explain(reason).endswith(f"[{reason}]")
    assert len(explain(reason)) > len(reason) + 10


def test_a_reason_that_nobody_knows_is_shown_as_it_is() -> None:
    assert explain("SomethingNew") == "SomethingNew"
    assert word_of("ReqNodeNotAvail, UnavailableNodes:n3") == "ReqNodeNotAvail"
    assert NEVER - {"x"} <= WORDS.keys()
    assert WORDS.keys() >= UNAVAILABLE


HELD = JobStatus(state=JobState.PENDING, reason=explain("Resources"), word="Resources", expected_start=7500)
CANCEL = Pending(wait_at_most_s=60)
MOVE = Pending(wait_at_most_s=60, then="move", partition="fast")
SHRINK = Pending(wait_at_most_s=60, then="shrink", min_nodes=2)


def then(policy: Pending | None, *, free: int = 0, moved: bool = False, status: JobStatus = HELD) -> Overdue:
    seen = Waiting(held_by="n1 by job 7 of ann (train, 3 h 0 min left)", free=free)
    return what_then(SPEC, policy, 61, status, seen, moved=moved, now=0)


def test_waiting_is_over_when_the_policy_says_and_never_without_one() -> None:
    assert not overdue(CANCEL, 60, "Priority")
    assert overdue(CANCEL, 61, "Priority")
    assert not overdue(None, 1e9, "Priority")
    assert overdue(None, 0, "DependencyNeverSatisfied")


def test_a_job_that_waited_too_long_says_how_long_for_what_who_holds_it_and_until_when() -> None:
    reason = then(CANCEL).reason
    assert reason.startswith("waited 61 s of at most 60 for 4 nodes: it is next")
    assert "held: n1 by job 7 of ann (train, 3 h 0 min left)" in reason
    assert "in 2 h 5 min" in reason
    never = then(None, status=HELD.model_copy(update={"word": "BadConstraints", "reason": explain("BadConstraints")}))
    assert never.reason.startswith("can never start: no node has what it asks for")


def test_the_policy_says_what_becomes_of_it() -> None:
    assert then(CANCEL).then == "cancel"
    assert then(MOVE).then == "move"
    assert then(MOVE, moved=True).then == "cancel"
    assert (then(SHRINK).then, then(SHRINK).nodes) == ("shrink", 2)
    assert then(SHRINK, free=3).nodes == 3
    assert then(SHRINK, free=9).nodes == 3  # fewer than it waited for in any case
    small = SPEC.model_copy(update={"nodes": 2})
    assert what_then(small, SHRINK, 61, HELD, Waiting(), moved=False, now=0).then == "cancel"


def test_fewer_nodes_do_not_help_a_job_that_can_never_start_and_another_partition_may() -> None:
    never = HELD.model_copy(update={"word": "PartitionTimeLimit"})
    assert then(SHRINK, status=never).then == "cancel"
    assert then(MOVE, status=never).then == "move"


def test_what_holds_the_nodes_is_named_the_job_with_least_time_left_first() -> None:
    holders = [
        Holder("7", "ann", "train", "n[1-2]", 11_400),
        Holder("8", "bob", "eval", "n3", 90),
        Holder("9", "eve", "other", "x9", 5),
        Holder("10", "eve", "endless", "n4", None),
    ]
    nodes = [replace(node, state="allocated") for node in NODES]
    seen = waits_for(SPEC, "", nodes, holders)
    assert seen.held_by == (
        "n3 by job 8 of bob (eval, 1 min left), n[1-2] by job 7 of ann (train, 3 h 10 min left), "
        "n4 by job 10 of eve (endless, no time limit)"
    )
    assert (seen.down, seen.free) == ("", 0)


def test_of_many_holders_some_are_named_and_the_rest_counted() -> None:
    holders = [Holder(str(i), "ann", "t", "n1", float(i)) for i in range(9)]
    assert waits_for(SPEC, "gpu", NODES, holders).held_by.endswith(" and 5 more jobs")


def test_nodes_that_are_down_are_told_and_free_ones_counted() -> None:
    nodes = [replace(NODES[0], state="down", reason="bad rail"), NODES[1], replace(NODES[2], state="planned")]
    nodes.append(replace(NODES[3], state="allocated"))
    seen = waits_for(SPEC, "", nodes, [])
    assert "n1 is down (bad rail)" in seen.down
    assert seen.free == 2


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


REFUSED = """srun: cluster configuration lacks support for cpu binding
srun: error: Task launch for StepId=25.0 failed on node n3: Communication connection failure
srun: error: Task launch for StepId=25.0 failed on node n1: Communication connection failure
srun: error: Application launch failed: Communication connection failure
"""


def failed(ranks: int) -> JobStatus:
    told = tuple(RankExit(rank=n, host="n2", exit_code=1) for n in range(ranks))
    done = JobDone(id="25", name="j", state=JobState.FAILED, started_at=1, ended_at=2, ranks=told)
    return JobStatus(state=JobState.FAILED, done=done, cause=EndCause.EXIT, nodes="n[1-4]")


def test_nodes_that_would_not_start_the_ranks_are_at_fault() -> None:
    found = not_launched(SPEC, failed(2), REFUSED)
    assert found is not None
    assert found[1] == "n[1,3]"
    again = retry(SPEC, found[0], 1, found[1])
    assert again is not None
    assert again.reason.startswith("Slurm could not start its ranks on n3: Communication connection failure; n1")


def test_a_job_all_of_whose_ranks_ran_was_launched_whatever_it_printed() -> None:
    assert not_launched(SPEC, failed(8), REFUSED) is None
    assert not_launched(SPEC, failed(2), "rank 0 failed\n") is None
    assert not_launched(SPEC, ended(EndCause.MEMORY), REFUSED) is None
