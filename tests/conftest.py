"""Fixtures that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from climbed import Climbed, climb_local
from held import Held, sweep


@pytest.fixture(scope="session")
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    """What this session holds of the machine, after what killed sessions left has been taken away."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    for line in sweep():
        if reporter is not None:
            reporter.write_line(f"left by a test session that was killed, removed now: {line}")
    mine = Held()
    yield mine
    mine.close()


@pytest.fixture(scope="session")
def two_climbs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Climbed, Climbed]:
    """Two real climbs of the shipped local ladder: one to damage, one to take stale files from."""
    root: Path = tmp_path_factory.mktemp("root")
    return climb_local(root), climb_local(root)
