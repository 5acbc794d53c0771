"""Nodes at fault are drained, by what Slurm tells at each step, and what came of it is told."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_to_drain import SlurmToDrain
from surefoot.engine.draining import Draining, drain
from surefoot.model.check import Check, Evidence
from surefoot.model.cluster import Cluster
from surefoot.model.run import Judgement, RungResult
from surefoot.model.status import Status

RUN = "20261130-200101-ab12"
CLUSTER = Cluster.model_validate(
    {"name": "c", "root": "/r", "scheduler": {"kind": "slurm"}, "node_groups": [{"name": "g", "count": 2}]}
)
REFUSED = b"slurm_update error: Invalid user id"


def failed(*nodes: str, name: str = "driver") -> Check:
    return Check(
        id=f"precheck.alike.{name}", claim="alike", status=Status.FAILED, actual=f"other {name}",
        evidence=(Evidence(file="rungs/precheck/x.json"),), nodes=nodes,
    )  # fmt: skip


def reason(name: str = "driver") -> str:
    return f"surefoot: precheck.alike.{name}: other {name} {RUN}/rungs/precheck/x.json"


def drained(
    slurm: SlurmToDrain, monkeypatch: pytest.MonkeyPatch, *checks: Check, act: bool = True, share: float = 0.1
) -> Draining:
    monkeypatch.setattr("surefoot.engine.draining.connect", lambda *_, **__: (slurm, None))
    results = [
        RungResult(rung="precheck", title="", proves="", status=Status.FAILED, judgement=Judgement(checks=checks))
    ]
    return drain(CLUSTER, results, RUN, share, act=act)


def fleet(count: int, **more: Any) -> SlurmToDrain:
    return SlurmToDrain({f"n{i}": ("idle", "") for i in range(1, count + 1)}, **more)


def test_without_act_it_is_proposed_and_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(2)
    found = drained(slurm, monkeypatch, failed("n2"), act=False)
    assert [each.nodes for each in found.to_do] == [("n2",)]
    assert (found.stands, slurm.updates, slurm.closed) == ((), [], True)


def test_with_act_it_is_drained_and_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(2)
    slurm.nodes["n2"] = ("mixed", "")
    found = drained(slurm, monkeypatch, failed("n2"))
    assert slurm.nodes == {"n1": ("idle", ""), "n2": ("draining", reason())}
    assert [(each.node, each.drained, each.told) for each in found.stands] == [
        ("n2", True, f"n2 is draining ({reason()})")
    ]
    assert (found.to_do, found.problems, slurm.closed) == ((), (), True)


def test_where_nobody_is_at_fault_slurm_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(2)
    assert drained(slurm, monkeypatch, failed()) == Draining(())
    assert slurm.looks == 0


def test_each_reason_is_set_by_itself_after_a_new_look(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(40)
    found = drained(slurm, monkeypatch, failed("n2", "n3"), failed("n4", name="nccl"))
    assert [update[2] for update in slurm.updates] == ["nodename=n[2-3]", "nodename=n4"]
    assert slurm.looks == 4  # before each, once more, and what stands there
    assert [each.drained for each in found.stands] == [True] * 3


def test_over_the_limit_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(20)
    found = drained(slurm, monkeypatch, failed("n1", "n2"), failed("n3", name="nccl"))
    assert (found.withheld, found.stands, found.to_do, slurm.updates) == (True, (), (), [])


def test_a_node_that_a_person_took_between_two_commands_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def person(slurm: SlurmToDrain, look: int) -> None:
        if look == 2:
            slurm.nodes["n4"] = ("drained", "mine, jo")

    slurm = fleet(40, before_look=person)
    found = drained(slurm, monkeypatch, failed("n2"), failed("n4", name="nccl"))
    assert slurm.nodes["n4"] == ("drained", "mine, jo")
    assert dict(found.left_alone) == {"n4": "out of service already: n4 is drained (mine, jo)"}
    assert [each.node for each in found.stands] == ["n2"]
    assert found.to_do == ()


def test_it_stops_where_others_went_out_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def others(slurm: SlurmToDrain, look: int) -> None:
        if look == 2:
            slurm.nodes |= {"n8": ("down", ""), "n9": ("down", "")}

    slurm = fleet(20, before_look=others)
    found = drained(slurm, monkeypatch, failed("n2"), failed("n4", name="nccl"))
    assert [update[2] for update in slurm.updates] == ["nodename=n2"]
    assert slurm.nodes["n4"] == ("idle", "")
    assert found.withheld
    assert "stopped: others went out of service meanwhile" in found.problems[0]


def test_a_refusal_is_told_with_what_to_hand_to_an_admin_and_nothing_more_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm = fleet(40, refusal=REFUSED)
    found = drained(slurm, monkeypatch, failed("n2"), failed("n4", name="nccl"))
    assert len(slurm.updates) == 1
    assert "scontrol did not drain n2: slurm_update error: Invalid user id" in found.problems[0]
    assert "Administrator" in found.problems[0]
    assert [(each.node, each.drained) for each in found.stands] == [("n2", False)]
    assert [each.nodes for each in found.to_do] == [("n2",), ("n4",)]


def test_scontrol_is_not_believed_but_what_stands_there_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    def undone(slurm: SlurmToDrain, look: int) -> None:
        if look > 1:
            slurm.nodes["n2"] = ("idle", "")

    found = drained(fleet(2, before_look=undone), monkeypatch, failed("n2"))
    assert [(each.drained, each.told) for each in found.stands] == [(False, "n2 is idle")]
    assert [each.nodes for each in found.to_do] == [("n2",)]


def test_whoever_drained_it_in_between_is_told_and_nothing_is_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def person(slurm: SlurmToDrain, look: int) -> None:
        if look > 1:
            slurm.nodes["n2"] = ("drained", "mine, jo")

    found = drained(fleet(2, refusal=REFUSED, before_look=person), monkeypatch, failed("n2"))
    assert [(each.drained, each.told) for each in found.stands] == [(True, "n2 is drained (mine, jo)")]
    assert (found.to_do, len(found.problems)) == ((), 1)


def test_a_link_that_breaks_is_not_tried_again_and_what_stands_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = fleet(2, broken=True)
    found = drained(slurm, monkeypatch, failed("n2"))
    assert len(slurm.updates) == 1
    assert found.problems == ("head: the connection broke",)
    assert [each.told for each in found.stands] == ["n2 is idle"]


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_slurm_that_does_not_answer_is_told_and_never_taken_for_done(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    slurm = fleet(2, silent_after=answers)
    found = drained(slurm, monkeypatch, failed("n2"))
    assert len(slurm.updates) == (answers > 0)
    assert not any(each.drained for each in found.stands)
    assert bool(found.to_do) == (answers > 0)
    said = [*found.problems, *(each.told for each in found.stands)]
    assert any("Invalid protocol" in text for text in said)
