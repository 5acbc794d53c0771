"""A rank takes what the pre-check found for its own node, and nothing that is set already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from surefoot.node.found_network import take_environment
from surefoot.node.rank import Rank

FOUND = {"n1": {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, "n2": {"NCCL_SOCKET_IFNAME": "=eno1"}}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is n1, and nothing is set: what a test sets is taken away after it."""
    environment = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "n1"}
    monkeypatch.setattr(os, "environ", environment)


def taken(environment: Any, rank: int = 0) -> dict[str, Any]:
    return take_environment(Rank("p", rank, 0, 2, Path(), {"environment": environment}, 0.0))


@pytest.mark.usefixtures("here")
def test_a_rank_sets_what_was_found_for_its_own_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert taken(FOUND) == {"source": "precheck", "node": "n1", "set": FOUND["n1"], "kept": {}}
    assert (os.environ["NCCL_SOCKET_IFNAME"], os.environ["NCCL_IB_HCA"]) == ("=eth0", "=mlx5_0,mlx5_1")
    assert "NCCL_SOCKET_IFNAME==eth0 as the pre-check found" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_a_value_that_is_set_already_wins_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["NCCL_IB_HCA"] = "mlx5_7"
    told = taken(FOUND)
    assert told["set"] == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert told["kept"] == {"NCCL_IB_HCA": "mlx5_7"}
    assert os.environ["NCCL_IB_HCA"] == "mlx5_7"
    assert "NCCL_IB_HCA=mlx5_7 as it was set before" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_without_a_precheck_nothing_is_set_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    before = dict(os.environ)
    assert taken(None) == {"source": None, "node": "n1", "set": {}, "kept": {}}
    assert os.environ == before
    assert "no pre-check stands below" in capsys.readouterr().out
    assert taken({"n2": FOUND["n2"]})["set"] == {}
    assert "found nothing for this node" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_only_the_first_rank_writes_into_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    taken(FOUND, rank=1)
    assert capsys.readouterr().out == ""
