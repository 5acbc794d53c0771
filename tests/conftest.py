"""Fixtures that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from climbed import Climbed, climb_local


@pytest.fixture(scope="session")
def two_climbs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Climbed, Climbed]:
    """Two real climbs of the shipped local ladder: one to damage, one to take stale files from."""
    root: Path = tmp_path_factory.mktemp("root")
    return climb_local(root), climb_local(root)
