"""The mesh: every rank says where it is and what it got, meets the others, computes a step with them and adds up known data.

``request.json``: ``{"device", "backend", "init_timeout_s", "seed", "environment"}``, the last for
`surefoot.node.found_network`. Each rank leaves a trail (`surefoot.node.trail`) from its first moment on, so
that one which hangs or dies is told of by others than itself. torch is imported as one of the steps: how
long that takes from shared storage is part of the diagnosis.
"""

from __future__ import annotations

import os
from typing import Any

from surefoot.benchmarks.mesh_steps import Phase
from surefoot.node import program
from surefoot.node.facts import limits, machine
from surefoot.node.found_network import take_environment
from surefoot.node.rank import Rank, say
from surefoot.node.trail import Trail

PROGRAM = "surefoot.node.mesh"
BINDING = (
    "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_LOCALID", "SLURM_PROCID", "SLURM_CPU_BIND",
    "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""What a scheduler tells a rank of what is its own."""


def placed() -> dict[str, Any]:
    """What this rank got: CPUs and their NUMA nodes, limits, and the variables that say so."""
    return {
        "affinity": machine.affinity(),
        "limits": limits.facts(),
        "binding": {name: os.environ[name] for name in BINDING if name in os.environ},
    }


def main(rank: Rank) -> None:
    """All steps in order; each is on disk before it begins."""
    trail = Trail(rank)
    found = {**placed(), "network": take_environment(rank)}
    trail.tell(**found)
    with trail.phase(Phase.IMPORT):
        from surefoot.node import mesh_steps
    data = mesh_steps.go(rank, trail)
    rank.report({"rank": rank.rank, "took_s": trail.took(), **found, **data})
    say(f"rank {rank.rank}: mesh complete on {data['step']['device']['kind']}")


if __name__ == "__main__":
    program.run(PROGRAM, main)
