"""One real Slurm, and labs to climb on, for all tests of this folder."""

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
    """A head and two nodes of their own, with the Python that runs the tests. Tests leave it as it was.

    SUITE in the environment names another Debian; LAB_UP holds more words for ``surefoot lab up`` (``--plain``).
    Files that use it stand in `TOGETHER` (tests/conftest.py): one lab is enough for them.
    """
    with lab_here(held, "c", *_words()) as paths:
        yield paths


@pytest.fixture(scope="module")
def breaking_lab(held: Held) -> Iterator[LabPaths]:
    """The same, for what is broken on purpose: mended it works, but a file's time may be another."""
    with lab_here(held, "k", *_words()) as paths:
        yield paths


def _words() -> list[str]:
    return ["--suite", os.environ.get("SUITE", DEFAULT_SUITE), *shlex.split(os.environ.get("LAB_UP", ""))]
