"""One real Slurm for all tests of this folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_here


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_here.SlurmHere]:
    """Four nodes on this machine. Its folder has a short name: sockets lie in it."""
    if not slurm_here.available():
        pytest.skip("wants root, and Debian's slurm-wlm and munge")
    folder = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    folder.chmod(0o755)  # munged runs as a user of its own
    try:
        with slurm_here.running(folder / "c") as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
