"""Which nodes are drained, with which words, and above all which are not."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import SchedulerError
from surefoot.model.check import Check, Evidence
from surefoot.model.run import Judgement, RungResult
from surefoot.model.status import Status
from surefoot.scheduler.slurm.drain import LONGEST, OURS, Fault, faults, proposals, reason_of
from surefoot.scheduler.slurm.parse import NodeRow

RUN = "20261130-200101-ab12"
FILE = "rungs/precheck/attempt-001/raw/precheck/rank-1.json"


def check(identifier: str = "precheck.node1.driver", actual: Any = "580.65.06", **more: Any) -> Check:
    fields = {"claim": "its driver is the declared one", "status": Status.FAILED, "evidence": (Evidence(file=FILE),)}
    return Check.model_validate({"id": identifier, "actual": actual, **fields, **more})


def result(*checks: Check, status: Status = Status.FAILED) -> RungResult:
    return RungResult(rung="precheck", title="", proves="", status=status, judgement=Judgement(checks=checks))


def row(name: str, state: str = "idle", reason: str = "", partition: str = "gpu", **more: Any) -> NodeRow:
    return NodeRow(name, partition, partition == "gpu", state, 64, 1000, 8, reason, **more)


def fault(node: str, reason: str = f"{OURS}x: y {RUN}") -> Fault:
    return Fault(node, ("x",), reason)


def fleet(count: int) -> list[NodeRow]:
    return [row(f"n{i}") for i in range(1, count + 1)]


def names(found: Any) -> list[str]:
    return [node for proposal in found.commands for node in proposal.nodes]


def test_a_node_that_a_failed_check_names_is_proposed_with_check_words_run_and_evidence() -> None:
    found = proposals(faults([result(check(nodes=("n2",)))], RUN), fleet(2), "gpu", 0.1)
    (proposal,) = found.commands
    assert proposal.argv == [
        "scontrol", "update", "nodename=n2", "state=drain",
        f"reason=surefoot: precheck.node1.driver: 580.65.06 {RUN}/{FILE}",
    ]  # fmt: skip
    assert shlex.split(proposal.shell) == proposal.argv


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.FAILED])
def test_nothing_but_a_failed_check_of_a_failed_rung_blames_a_node(status: Status) -> None:
    """A check of another status cannot name nodes; one that claims to all the same is not believed."""
    failed = result(check(nodes=("n2",)))
    forged = check(nodes=("n2",)).model_copy(update={"status": status})
    judged = failed.judgement.model_copy(update={"checks": (forged,)})
    assert faults([failed.model_copy(update={"judgement": judged})], RUN) == []
    assert faults([failed.model_copy(update={"status": status})], RUN) == []
    assert [each.node for each in faults([failed], RUN)] == ["n2"]


def test_a_failed_check_that_names_nobody_blames_nobody() -> None:
    assert faults([result(check())], RUN) == []


def test_a_node_of_several_checks_is_told_of_once_with_their_number() -> None:
    (found,) = faults([result(check(nodes=("n2",)), check("precheck.node1.nccl", "2.26.2", nodes=("n2",)))], RUN)
    assert found.checks == ("precheck.node1.driver", "precheck.node1.nccl")
    assert ": 580.65.06 (and 1 more) " in found.reason


def test_nodes_of_one_reason_are_one_command_in_slurm_s_notation_and_others_their_own() -> None:
    alike = check("precheck.alike.driver", "580.65.06 on n[2-4]", nodes=("n4", "n2", "n3"))
    found = proposals(faults([result(alike, check(nodes=("n9",)))], RUN), fleet(10), "", 0.5)
    assert [proposal.argv[2] for proposal in found.commands] == ["nodename=n[2-4]", "nodename=n9"]


@pytest.mark.parametrize(
    ("nodes", "share", "most"),
    [(1, 0.1, 1), (2, 0.1, 1), (19, 0.1, 1), (20, 0.1, 2), (30, 0.1, 3), (1000, 0.1, 100), (8, 0.25, 2), (3, 1, 3), (100, 0.29, 29)],
)  # fmt: skip
def test_the_share_is_rounded_down_but_one_node_may_always_be_out(nodes: int, share: float, most: int) -> None:
    found = proposals([fault("n1")], fleet(nodes), "gpu", share)
    assert (found.most, found.count, found.withheld) == (most, nodes, False)


def test_over_the_limit_nothing_at_all_is_drained() -> None:
    found = proposals([fault("n1"), fault("n2"), fault("n3")], fleet(20), "gpu", 0.1)
    assert found.withheld
    assert found.commands == ()
    assert (found.would_be_out, found.most, found.share_needed) == (3, 2, 0.15)
    assert not proposals([fault("n1"), fault("n2"), fault("n3")], fleet(20), "gpu", found.share_needed).withheld


@pytest.mark.parametrize(
    "away",
    [row("n9", "drained"), row("n9", "draining"), row("n9", "down"), row("n9", "failing"), row("n9", responds=False)],
    ids=lambda each: each.told,
)
def test_nodes_that_are_out_already_count(away: NodeRow) -> None:
    rows = [*fleet(8), away]
    assert not proposals([fault("n1")], fleet(9), "gpu", 0.1).withheld
    assert proposals([fault("n1")], rows, "gpu", 0.1).withheld


def test_a_node_that_is_out_in_another_partition_does_not_count() -> None:
    rows = [*fleet(2), row("c1", "down", partition="cpu")]
    assert names(proposals([fault("n1")], rows, "gpu", 0.1)) == ["n1"]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (row("n1", "drained", "bad rail"), "out of service already: n1 is drained (bad rail)"),
        (row("n1", "drained", f"{OURS}x"), "out of service already"),
        (row("n1", "down", "Not responding"), "out of service already"),
        (row("n1", "idle", "watched by jo"), "somebody gave it a reason: n1 is idle (watched by jo)"),
        (row("n1", partition="cpu"), "it is in another partition"),
        (row("n10"), "sinfo shows no such node"),
    ],
    ids=lambda each: each.told if isinstance(each, NodeRow) else "",
)
def test_what_somebody_set_and_what_slurm_does_not_show_is_left_as_it_is(there: NodeRow, why: str) -> None:
    found = proposals([fault("n1"), fault("n2")], [there, row("n2"), *[row(f"m{i}") for i in range(30)]], "gpu", 0.1)
    assert found.left_alone["n1"].startswith(why)
    assert names(found) == ["n2"]


def test_a_reason_of_ours_that_outlived_its_drain_is_no_person_s() -> None:
    assert names(proposals([fault("n1")], [row("n1", "idle", f"{OURS}x: y")], "gpu", 0.1)) == ["n1"]


@pytest.mark.parametrize("name", ["ALL", "all", "n[1-9]", "n1,n2", "n1 state=down", ""])
def test_no_name_reaches_scontrol_that_means_more_than_one_node(name: str) -> None:
    """Not even where sinfo shows it."""
    for rows in (fleet(2), [*fleet(20), row(name)]):
        assert proposals([fault(name)], rows, "gpu", 1).commands == ()


def test_an_unknown_partition_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(SchedulerError, match="no node in partition 'x'; it shows: gpu"):
        proposals([fault("n1")], fleet(2), "x", 0.1)
    with pytest.raises(SchedulerError, match="a default partition; it shows: cpu"):
        proposals([fault("n1")], [row("n1", partition="cpu")], "", 0.1)
    with pytest.raises(SchedulerError, match="it shows: none"):
        proposals([fault("n1")], [], "", 0.1)


def test_of_several_partitions_all_nodes_count_once() -> None:
    rows = [row("n1"), row("n2", partition="b"), row("n1", partition="b"), row("n3", partition="c")]
    assert proposals([fault("n1")], rows, "gpu,b", 0.5).count == 2


HOSTILE = "\"; scontrol update nodename=ALL state=down #\n`reboot` $(x) 'y' a|b=c \x1b[31m\x00 ☃"


@pytest.mark.parametrize("part", ["actual", "id", "file", "claim"])
def test_hostile_text_stays_one_plain_word_list_within_the_reason(part: str) -> None:
    said: dict[str, Any] = {"nodes": ("n2",)}
    if part == "file":
        said["evidence"] = (Evidence(file=HOSTILE),)
    elif part == "claim":
        said |= {"claim": HOSTILE, "actual": None}
    else:
        said["identifier" if part == "id" else part] = HOSTILE
    (proposal,) = proposals(faults([result(check(**said))], RUN), fleet(2), "gpu", 0.1).commands
    assert len(proposal.argv) == 5
    assert shlex.split(proposal.shell) == proposal.argv
    assert not set(proposal.reason) & set("\"'`$;|=\n\x1b\x00\\") - {";"}
    assert "scontrol update" in proposal.reason


@given(st.text(max_size=600), st.text(max_size=300), st.text(min_size=1, max_size=400))
def test_a_reason_is_short_printable_ascii_and_names_its_run(actual: str, identifier: str, file: str) -> None:
    found = reason_of([check(identifier, actual, evidence=(Evidence(file=file),))] * 3, RUN)
    assert found.startswith(OURS)
    assert RUN in found
    assert len(found) <= LONGEST
    assert found.isascii()
    assert found.isprintable()
    assert found == " ".join(found.split())


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (8, 7, "7, expected 8 GPUs"),
        ("580.95.05", "580.65.06", "580.65.06, expected 580.95.05 GPUs"),
        ("", "n2 → 127.0.1.1", "n2 -> 127.0.1.1"),
        ("x" * 41, "y", "y"),
        (None, False, "False"),
        (0, None, "its driver is the declared one"),
    ],
)
def test_words_are_what_was_found_and_what_should_have_been(expected: Any, actual: Any, words: str) -> None:
    found = reason_of([check(expected=expected, actual=actual, unit="GPUs")], RUN)
    assert found == f"{OURS}precheck.node1.driver: {words} {RUN}/{FILE}"


def test_a_long_word_is_cut_and_the_path_stays_whole() -> None:
    found = reason_of([check(actual="x" * 900)], RUN)
    assert found.endswith(f"... {RUN}/{FILE}")
    assert len(found) == LONGEST
    assert reason_of([replaced(check(), "f" * 300)], RUN).endswith(f" 580.65.06 {RUN}")


def replaced(one: Check, file: str) -> Check:
    return one.model_copy(update={"evidence": (Evidence(file=file),)})


def test_a_node_that_does_not_answer_may_be_drained_and_counts_once() -> None:
    rows = [replace(row("n1"), responds=False), row("n2")]
    assert names(proposals([fault("n1")], rows, "gpu", 0.1)) == ["n1"]
