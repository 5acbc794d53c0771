"""One real Slurm for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import slurm_here
from held import Held, remove_folder


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
