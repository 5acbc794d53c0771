"""Training without training: sleeps, writes ``metadata.json``, ends. Standard library only.

``request.json``: ``{"steps": int, "seconds": float, "fail": bool}``. With `fail` it ends with 1
half-way and writes no metadata, as a training job that died would.
"""

from __future__ import annotations

import json
import os
import sys
import time

from surefoot.files import write_atomic
from surefoot.node.rank import Rank, say


def main() -> None:
    """Sleep `seconds` in `steps` steps on every rank; rank 0 writes the metadata."""
    rank = Rank.current("surefoot.node.fake_trainer")
    steps, seconds, fail = rank.request["steps"], rank.request["seconds"], rank.request["fail"]
    begun = time.monotonic()
    done = 0
    for step in range(1, steps + 1):
        time.sleep(seconds / steps)
        done = step
        rank.progress(step, steps, "pretending to train")
        if rank.rank == 0:
            say(f"step {step}/{steps}")
        if fail and step >= steps / 2:
            break
    rank.report({"rank": rank.rank, "steps": done, "slept_s": time.monotonic() - begun, "fail": fail})
    if fail:
        say(f"rank {rank.rank}: failing on purpose, because the request says fail: true", sys.stderr)
        sys.exit(1)
    if rank.rank == 0:
        metadata = {
            "run": os.environ["SUREFOOT_RUN"], "nonce": os.environ["SUREFOOT_NONCE"], "job_id": os.environ["SUREFOOT_JOB_ID"],
            "world_size": rank.world_size, "steps": done, "seconds": seconds,
        }  # fmt: skip
        write_atomic(rank.folder / "metadata.json", json.dumps(metadata, indent=1) + "\n")


if __name__ == "__main__":
    main()
