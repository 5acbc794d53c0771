"""The facts of a node: one probe a node, in a job. What it looks for stands in `surefoot.node.facts`.

``request.json``: ``{"root", "meet_timeout_s"}``.
"""

from __future__ import annotations

import os
import shutil
import socket
from typing import Any

from surefoot.hostlist import expand
from surefoot.node.facts import Fact, clock, fabric, fact, gpus, limits, machine, mounts, network, software
from surefoot.node.pci import gpus_on_bus
from surefoot.node.rank import Rank, say
from surefoot.node.reach import Limits, Meeting, meet


def facts(root: str) -> dict[str, Fact]:
    """What this node finds by itself without torch; `root` is the shared root. Sizes in bytes."""
    driver = {
        "pci_gpus": fact(lambda: len(gpus_on_bus())),
        "driver_versions": fact(gpus.driver_versions),
        "gpus": fact(gpus.gpus),
        "xids": fact(gpus.xids),
    }
    return {
        **machine.facts(),
        **limits.facts(),
        "disk_free": fact(lambda: shutil.disk_usage(root).free),
        "root_mount": fact(lambda: mounts.below(root)),
        "mounts": fact(mounts.data_mounts),
        "clock": fact(clock.clock),
        **network.facts(),
        **fabric.facts(),
        **driver,
    }


def nodes_of_job() -> tuple[str, ...]:
    """All nodes of this job as the scheduler calls them, in its order; this one where it says nothing."""
    listed = os.environ.get("SLURM_JOB_NODELIST")
    return tuple(expand(listed)) if listed else (socket.gethostname(),)


def own_node() -> str:
    """This node as the scheduler calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def reach(rank: Rank, interfaces: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Meet the other nodes of the job. Raises OSError, LookupError where that cannot be tried."""
    if interfaces is None:
        raise LookupError("the interfaces of this node are not known")
    # A job that Slurm requeues keeps its number and its folder, with what its earlier life wrote there.
    life = os.environ.get("SLURM_RESTART_COUNT") or "0"
    execution = f"{os.environ['SUREFOOT_NONCE']}-{os.environ['SUREFOOT_JOB_ID']}-{life}"
    meeting = Meeting(rank.folder, own_node(), nodes_of_job(), execution)
    return meet(meeting, interfaces, Limits(others_s=rank.request["meet_timeout_s"]))


def main() -> None:
    """One probe a node. torch comes last: what computes on GPUs before is somebody else's, and nobody waits for its import."""
    rank = Rank.current("surefoot.node.probe")
    found = facts(rank.request["root"])
    found["reach"] = fact(lambda: reach(rank, found["interfaces"]["value"]))
    found |= software.facts()
    rank.report({"rank": rank.rank, "node": own_node(), "root": rank.request["root"], "facts": found})
    say(f"rank {rank.rank}: facts of this node are reported")


if __name__ == "__main__":
    main()
