"""The mesh: every rank says where it is and what it got, meets the others, computes a step with them and adds up known data.

``request.json``: ``{"device", "backend", "init_timeout_s", "meet_timeout_s", "seed"}``. Each rank leaves a
trail (`surefoot.node.trail`) from its first moment on, so that one which hangs or dies is told of by
others than itself. The first rank of a node meets the other nodes over TCP before there is a process
group (``reach-<node>.json``). torch is imported as one of the steps: how long that takes from shared
storage is part of the diagnosis.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from surefoot.benchmarks.mesh_steps import Phase
from surefoot.hostlist import expand
from surefoot.node import program
from surefoot.node.facts import fact, limits, machine, network
from surefoot.node.rank import Rank, say
from surefoot.node.reach import Limits, Meeting, meet
from surefoot.node.trail import Trail

PROGRAM = "surefoot.node.mesh"
BINDING = (
    "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_LOCALID", "SLURM_PROCID", "SLURM_CPU_BIND",
    "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""What a scheduler tells a rank of what is its own."""


def nodes() -> tuple[str, ...]:
    """All nodes of this job as the scheduler calls them, in its order; this one where it says nothing."""
    listed = os.environ.get("SLURM_JOB_NODELIST")
    return tuple(expand(listed)) if listed else (socket.gethostname(),)


def placed() -> dict[str, Any]:
    """What this rank got: CPUs and their NUMA nodes, limits, and the variables that say so."""
    return {
        "affinity": machine.affinity(),
        "limits": limits.facts(),
        "binding": {name: os.environ[name] for name in BINDING if name in os.environ},
    }


def meet_nodes(rank: Rank) -> None:
    """Write what this node's interfaces are, and which other nodes it reaches over which."""
    everyone = nodes()
    me = os.environ.get("SLURMD_NODENAME", everyone[0])
    token = f"{os.environ['SUREFOOT_NONCE']}-{os.environ['SUREFOOT_JOB_ID']}"
    meet(
        Meeting(rank.folder, me, everyone, token), network.interfaces(), Limits(others_s=rank.request["meet_timeout_s"])
    )


def main(rank: Rank) -> None:
    """All steps in order; each is on disk before it begins."""
    trail = Trail(rank)
    trail.tell(**placed())
    with trail.phase(Phase.NETWORK):
        if rank.local_rank == 0:
            trail.tell(met=fact(lambda: meet_nodes(rank)))
    with trail.phase(Phase.IMPORT):
        from surefoot.node import mesh_steps
    data = mesh_steps.go(rank, trail)
    rank.report({"rank": rank.rank, "took_s": trail.took(), **placed(), **data})
    say(f"rank {rank.rank}: mesh complete on {data['step']['device']['kind']}")


if __name__ == "__main__":
    program.run(PROGRAM, main)
