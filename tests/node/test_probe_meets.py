"""The probe meets the nodes of its own execution of the job, not those of an earlier one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from surefoot.node import probe
from surefoot.node.rank import Rank
from surefoot.node.reach import Limits, Meeting


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[Meeting]:
    """The meetings that the probe goes to."""
    went: list[Meeting] = []

    def meet(meeting: Meeting, _interfaces: Any, _limits: Limits) -> dict[str, Any]:
        went.append(meeting)
        return {}

    monkeypatch.setattr(probe, "meet", meet)
    for name, value in {
        "SUREFOOT_NONCE": "n",
        "SUREFOOT_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURMD_NODENAME": "n2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    return went


def rank(folder: Path) -> Rank:
    request = {"meet_timeout_s": 1.0}
    return Rank("surefoot.node.probe", 1, 0, 2, folder, request, time.time())


def test_a_job_that_was_requeued_does_not_take_its_earlier_lifes_files_for_nodes(
    tmp_path: Path, met: list[Meeting], monkeypatch: pytest.MonkeyPatch
) -> None:
    for life in (None, "1", "2"):
        if life:
            monkeypatch.setenv("SLURM_RESTART_COUNT", life)
        probe.reach(rank(tmp_path), [])
    assert len({meeting.execution for meeting in met}) == 3
    assert met[0].everyone == ("n1", "n2")
    assert met[0].me == "n2"


def test_a_node_that_does_not_know_its_interfaces_meets_nobody_and_says_so(tmp_path: Path, met: list[Meeting]) -> None:
    with pytest.raises(LookupError, match="not known"):
        probe.reach(rank(tmp_path), None)
    assert met == []
