"""The facts of a node: one probe a node, in a job. What it looks for stands in `surefoot.node.facts`."""

from __future__ import annotations

import shutil

from surefoot.node.facts import Fact, clock, fact, gpus, limits, machine, mounts, software
from surefoot.node.pci import gpus_on_bus
from surefoot.node.rank import Rank, say


def facts(root: str) -> dict[str, Fact]:
    """All facts of this node; `root` is the shared root. Sizes in bytes.

    GPUs are asked before torch is loaded: what computes on them then is somebody else's.
    """
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
        **driver,
        **software.facts(),
    }


def main() -> None:
    """One probe a node."""
    rank = Rank.current("surefoot.node.probe")
    rank.report({"rank": rank.rank, "root": rank.request["root"], "facts": facts(rank.request["root"])})
    say(f"rank {rank.rank}: facts of this node are reported")


if __name__ == "__main__":
    main()
