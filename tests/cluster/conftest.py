"""One real Slurm, and one lab to climb on, for all tests of this folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import pytest

import slurm_here
from held import Held, remove_folder
from lab_drill import lab_here
from surefoot.lab.places import LabPaths
from surefoot.lab.spec import DEFAULT_SUITE


@pytest.fixture(scope="session")
def slurm(held: Held) -> Iterator[slurm_here.SlurmHere]:
    """Four nodes on this machine."""
    if missing := slurm_here.problems():
        pytest.fail("this machine cannot hold a Slurm for tests: " + "; ".join(missing), pytrace=False)
    folder = held.folder("sl-")
    folder.chmod(0o755)  # munged runs as a user of its own
    try:
        with slurm_here.running(folder / "c") as cluster:
            yield cluster
    finally:
        remove_folder(str(folder))


@pytest.fixture(scope="session")
def climbing_lab(held: Held) -> Iterator[LabPaths]:
    """A head and two nodes of their own, with the Python that runs the tests.

    SUITE in the environment names another Debian; LAB_UP holds more words for ``surefoot lab up`` (``--plain``).
    """
    more = shlex.split(os.environ.get("LAB_UP", ""))
    with lab_here(held, "c", "--suite", os.environ.get("SUITE", DEFAULT_SUITE), *more) as paths:
        yield paths
