"""Fixtures that several tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


TOGETHER = {
    f"tests/cluster/{name}.py": "one lab to climb on"
    for name in ("test_climb_on_lab", "test_environment_on_lab", "test_other_control_host", "test_site_on_lab")
}
"""Files that one worker runs, one after the other, as they share a fixture that takes long."""


LONG = (
    "tests/honesty/test_mutations.py", "tests/drills/test_interruptions.py", "tests/drills/test_many_processes.py",
    "tests/cluster/test_climb_on_lab.py", "tests/cluster/test_interrupted_site.py", "tests/cluster/test_lab_real.py",
    "tests/cluster/test_drift_on_lab.py",
)  # fmt: skip
"""Files that take minutes: they begin first, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first; the others keep their order."""
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(LONG)))


def group_of(test: str) -> str:
    """What a test, named by its node id, is run together with: the tests of its file, or of a group of files."""
    file = test.partition("::")[0]
    return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadgroup``: each group stays with one worker, in its order.

    xdist's own hands every test out by itself, as it does not find its groups in the node ids of this pytest.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


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
