"""The environment that a scheduler gives a rank, verbatim. Standard library only."""

from __future__ import annotations

import os
import socket

from surefoot.node.rank import Rank, say

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SUREFOOT_ECHO")


def main() -> None:
    """Report the variables in `NAMES` (None where one is not set), host, process and folder."""
    rank = Rank.current("surefoot.node.environment")
    rank.report(
        {
            "rank": rank.rank,
            "environment": {name: os.environ.get(name) for name in NAMES},
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cwd": os.getcwd(),  # noqa: PTH109 - a string is what is reported
            "cpus": sorted(os.sched_getaffinity(0)),
        }
    )
    say(f"surefoot rank {rank.rank} of {os.environ['SUREFOOT_NONCE']} has its environment")


if __name__ == "__main__":
    main()
