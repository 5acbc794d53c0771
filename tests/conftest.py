"""Fixtures that several tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from climbed import Climbed, climb_local
from held import Held, sweep


def pytest_configure() -> None:
    """Signals are heard, however the tests were started: a shell lets what it starts with ``&`` ignore
    SIGINT, processes hand that on, and commands of ours that are interrupted here would go on.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where workers share tests by ``--dist loadgroup``, those of a file stay together, as they share its fixtures.

    A file that says ``xdist_group`` is of that group: files with one lab, say.
    """
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))


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
