"""A rank's trail: how far it came, on disk before each step, so that one that hangs or dies is still told of.

``trail-<rank>.json`` in the job's folder, written anew at each step. Standard library only: it begins
before torch is imported.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from surefoot.benchmarks.mesh_steps import Phase
from surefoot.files import write_atomic
from surefoot.node.rank import Rank


class Trail:
    """Seconds are those of this node's clock for `began`, of its monotonic one for `took_s`."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._phases: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}
        self._write()

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """A step: on disk as begun, then as ended, or with the error that ended it."""
        entry: dict[str, Any] = {"name": name.name, "began": time.time(), "took_s": None, "problem": None}
        self._phases.append(entry)
        self._write()
        begun = time.monotonic()
        try:
            yield
        except BaseException as error:
            entry["problem"] = f"{type(error).__name__}: {error}"[:1000]
            raise
        finally:
            entry["took_s"] = time.monotonic() - begun
            self._write()

    def tell(self, **facts: Any) -> None:
        """Facts that are worth knowing of a rank which comes no further; written with the next step."""
        self._facts.update(facts)

    def took(self) -> dict[str, float]:
        """Seconds of each step that has ended."""
        return {entry["name"]: entry["took_s"] for entry in self._phases if entry["took_s"] is not None}

    def _write(self) -> None:
        account = {
            "rank": self._rank.rank, "local_rank": self._rank.local_rank, "world_size": self._rank.world_size,
            "nonce": os.environ["SUREFOOT_NONCE"], "job_id": os.environ["SUREFOOT_JOB_ID"], "host": socket.gethostname(),
            "slurm_node": os.environ.get("SLURMD_NODENAME"), "pid": os.getpid(), "facts": self._facts, "phases": self._phases,
        }  # fmt: skip
        write_atomic(self._rank.folder / f"trail-{self._rank.rank}.json", json.dumps(account) + "\n")
