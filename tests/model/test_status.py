"""What a whole is, from its parts: absence is never a pass."""

from __future__ import annotations

from itertools import product

import pytest

from surefoot.model.check import Check, Evidence
from surefoot.model.status import ExitCode, Status, combine, exit_code, whole


def test_nothing_proves_nothing() -> None:
    assert combine([]) is Status.INCONCLUSIVE
    assert combine([Status.SKIPPED]) is Status.INCONCLUSIVE
    assert exit_code([]) is ExitCode.UNPROVED


@pytest.mark.parametrize("statuses", list(product(Status, repeat=3)))
def test_a_pass_needs_a_pass_and_nothing_against_it(statuses: tuple[Status, ...]) -> None:
    passed = Status.PASSED in statuses and set(statuses) <= {Status.PASSED, Status.SKIPPED}
    assert (combine(statuses) is Status.PASSED) == passed
    assert (exit_code(statuses) is ExitCode.PROVED) == passed
    assert (whole(statuses) is Status.PASSED) == (set(statuses) == {Status.PASSED})
    if Status.FAILED in statuses:
        assert exit_code(statuses) is ExitCode.DISPROVED


def test_a_passed_check_without_evidence_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="PASSED without evidence"):
        Check(id="x", claim="it works", status=Status.PASSED)
    Check(id="x", claim="it works", status=Status.PASSED, evidence=(Evidence(file="raw/x"),))
