"""Records that would make a claim empty cannot be built."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import Collectives
from surefoot.model.status import Status


def test_evidence_names_a_file() -> None:
    with pytest.raises(ValidationError, match="file"):
        Evidence(file="")


def test_a_check_that_passed_has_evidence() -> None:
    with pytest.raises(ValidationError, match="without evidence"):
        Check(id="a.b", claim="c", status=Status.PASSED)


def test_a_ladder_that_names_no_collective_is_refused() -> None:
    with pytest.raises(ValidationError, match="collectives"):
        Collectives(rung="collectives", collectives=())
