"""The contract between a job and its ranks. Standard library (and `surefoot.files`) only: it runs before anything is proved.

A scheduler gives each rank the variables that torchrun and Slurm give (RANK, LOCAL_RANK,
WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and SUREFOOT_JOB_FOLDER, SUREFOOT_JOB_ID,
SUREFOOT_JOB_NAME, SUREFOOT_RUN and SUREFOOT_NONCE. Each rank says from where its code came and what
that code is (`running_code`), so that a job which ran other code than was pushed proves nothing.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import surefoot
from surefoot.files import tree_digest, tree_files, write_atomic


def running_code() -> tuple[str, str]:
    """Folder that ``surefoot`` was imported from, as Python names it, and the tree digest of what is in it now.

    The digest is that of ``src/surefoot/**``, as the engine computes it of what it pushes; some
    200 small files, about 10 ms.
    """
    folder = Path(surefoot.__file__).parent
    return str(folder), tree_digest(
        {f"src/surefoot/{name}": digest for name, digest in tree_files(folder, skip=()).items()}
    )


def say(text: str, stream: TextIO | None = None) -> None:
    """One line of a job's log (stdout unless `stream` is given), in one write.

    The ranks of a job share the file, unbuffered, and ``print`` writes a line's end on its own:
    two ranks at the same moment would tear each other's lines.
    """
    stream = sys.stdout if stream is None else stream
    stream.write(f"{text}\n")
    stream.flush()


@dataclass(frozen=True)
class Rank:
    """Who this process is, what it was asked, and where its evidence goes."""

    program: str
    rank: int
    local_rank: int
    world_size: int
    folder: Path
    request: dict[str, Any]
    started_at: float

    @classmethod
    def current(cls, program: str) -> Rank:
        """From the environment and ``request.json``. Raises KeyError outside a job."""
        folder = Path(os.environ["SUREFOOT_JOB_FOLDER"])
        return cls(
            program=program,
            rank=int(os.environ["RANK"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            folder=folder,
            request=json.loads((folder / "request.json").read_text()),
            started_at=time.time(),
        )

    def report(self, data: dict[str, Any]) -> None:
        """Write ``rank-<r>.json``: the last thing a rank does. NaN is refused (ValueError)."""
        imported_from, code_digest = running_code()
        account = {
            "program": self.program, "run": os.environ["SUREFOOT_RUN"], "nonce": os.environ["SUREFOOT_NONCE"],
            "job": os.environ["SUREFOOT_JOB_NAME"], "job_id": os.environ["SUREFOOT_JOB_ID"],
            "rank": self.rank, "local_rank": self.local_rank, "world_size": self.world_size,
            "host": socket.gethostname(), "pid": os.getpid(),
            "imported_from": imported_from, "code_digest": code_digest,
            "started_at": self.started_at, "ended_at": time.time(), "data": data,
        }  # fmt: skip
        write_atomic(self.folder / f"rank-{self.rank}.json", json.dumps(account, indent=1, allow_nan=False) + "\n")

    def progress(self, done: float, total: float, text: str = "") -> None:
        """Tell people how far the job is (rank 0 only). Not evidence: a missing file changes nothing."""
        if self.rank == 0:
            state = {"done": done, "total": total, "text": text, "at": time.time()}
            write_atomic(self.folder / "progress.json", json.dumps(state))
