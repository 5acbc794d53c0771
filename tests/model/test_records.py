"""Records that would make a claim empty cannot be built."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Collectives, Ddp, Pending
from surefoot.model.status import Status


def test_evidence_names_a_file() -> None:
    with pytest.raises(ValidationError, match="file"):
        Evidence(file="")


def test_a_check_that_passed_has_evidence() -> None:
    with pytest.raises(ValidationError, match="without evidence"):
        Check(id="a.b", claim="c", status=Status.PASSED)


def test_a_check_that_names_no_node_is_written_as_before_and_one_that_does_keeps_them() -> None:
    fields = {"id": "a.b", "claim": "c", "status": "FAILED"}
    plain, blaming = Check.model_validate(fields), Check.model_validate({**fields, "nodes": ["n1"]})
    assert "nodes" not in plain.canonical()
    assert blaming.canonical()["nodes"] == ["n1"]
    for check in (plain, blaming):
        assert Check.model_validate(check.canonical()) == check
        assert Check.model_validate_json(check.model_dump_json()) == check


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.FAILED])
def test_only_a_check_that_failed_shows_nodes_to_be_at_fault(status: Status) -> None:
    with pytest.raises(ValidationError, match="names nodes at fault: n1"):
        Check(id="a.b", claim="c", status=status, evidence=(Evidence(file="x"),), nodes=("n1",))


def test_a_ladder_that_names_no_collective_is_refused() -> None:
    with pytest.raises(ValidationError, match="collectives"):
        Collectives(rung="collectives", collectives=())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"then": "shrink"}, "wants min_nodes"),
        ({"then": "move"}, "wants partition"),
        ({"min_nodes": 2}, "min_nodes goes with then: shrink, not with cancel"),
        ({"then": "shrink", "min_nodes": 2, "partition": "low"}, "partition goes with then: move"),
        ({"then": "move", "partition": "a b"}, "partition"),
        ({"wait_at_most_s": 0}, "wait_at_most_s"),
        ({"then": "wait"}, "'cancel', 'shrink' or 'move'"),
    ],
)
def test_a_policy_for_waiting_that_contradicts_itself_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Pending.model_validate({"wait_at_most_s": 60, **fields})


def test_a_rung_cannot_shrink_to_as_many_nodes_as_it_asks_for() -> None:
    pending = Pending(wait_at_most_s=60, then="shrink", min_nodes=2)
    with pytest.raises(ValidationError, match="is not below nodes 2"):
        Ddp(rung="ddp", nodes=2, pending=pending)
    assert Ddp(rung="ddp", nodes=3, pending=pending).pending == pending


def test_how_long_a_job_may_wait_is_no_part_of_what_its_evidence_is() -> None:
    spec, patient = Ddp(rung="ddp"), Ddp(rung="ddp", pending=Pending(wait_at_most_s=60))
    assert spec.evidence_digest() == patient.evidence_digest()
    assert spec.evidence_digest() != Ddp(rung="ddp", nodes=2).evidence_digest()
