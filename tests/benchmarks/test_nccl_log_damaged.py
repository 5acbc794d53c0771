"""A damaged log of NCCL is an error with its line or fewer facts: never a crash, never a connection that was not there."""

from __future__ import annotations

import pytest

from nccl_damage import run


@pytest.mark.parametrize("seed", range(3))
def test_no_damage_crashes_or_invents_a_connection(seed: int) -> None:
    outcomes = run(150, seed)
    assert outcomes["read"] > 20
    assert outcomes["error"] > 20
