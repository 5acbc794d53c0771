"""A rank computes on the GPU of its number, or on the only one that it is shown; otherwise on none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from surefoot.node.group import device_of
from surefoot.node.rank import Rank

pytestmark = pytest.mark.slow  # imports torch


def rank(local: int, device: str = "cuda") -> Rank:
    return Rank("program", local, local, 8, Path(), {"device": device}, 0.0)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """What was made the current device; nothing here has one."""
    made: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    return made


@pytest.mark.parametrize(("seen", "local", "index"), [(2, 0, 0), (2, 1, 1), (8, 5, 5), (1, 0, 0), (1, 1, 0), (1, 7, 0)])
def test_the_gpu_of_its_number_or_the_only_one(
    seen: int, local: int, index: int, chosen: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    assert device_of(rank(local)) == torch.device("cuda", index)
    assert chosen == [torch.device("cuda", index)]


@pytest.mark.parametrize(("seen", "local"), [(0, 0), (0, 1), (2, 2), (4, 7)])
def test_no_gpu_and_too_few_are_refused(
    seen: int, local: int, chosen: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    with pytest.raises(RuntimeError, match=f"local rank {local} .* this process sees {seen}"):
        device_of(rank(local))
    assert chosen == []


def test_the_cpu_is_used_where_it_is_asked_for(chosen: list[torch.device]) -> None:
    assert device_of(rank(1, "cpu")) == torch.device("cpu")
    assert chosen == []
