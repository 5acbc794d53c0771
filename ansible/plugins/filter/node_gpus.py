"""How many GPUs Slurm gives a node, from what ``scontrol show node NAME -o`` prints. Pure."""

from __future__ import annotations

import re
from typing import Any

DOCUMENTATION = """
name: node_gpus
short_description: how many GPUs Slurm gives a node
"""


def node_gpus(shown: str) -> int:
    """GPUs by ``CfgTRES=…gres/gpu=8``; where accounting does not count them, by ``Gres=gpu:h100:8(S:0-1)``.

    Without ``AccountingStorageTRES=gres/gpu`` a node's TRES has none. ``Gres=`` is what slurm.conf says of a
    node: one that brings fewer is INVALID_REG or drained, which its state says. Raises ValueError where
    neither word is there: that is no answer, and not a node without GPUs.
    """
    words = dict(re.findall(r"(?:^|\s)(Gres|CfgTRES)=(\S*)", shown))
    if counted := re.search(r"(?:^|,)gres/gpu=(\d+)(?:,|$)", words.get("CfgTRES", "")):
        return int(counted[1])
    if "Gres" not in words:
        raise ValueError(f"scontrol says neither Gres= nor gres/gpu in CfgTRES= of this node: {shown.strip()!r}")
    # Several types are several entries; what stands in brackets are sockets: gpu:a100:4(S:0,2),gpu:8,shard:4
    return sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)(?=[(,]|$)", words["Gres"]))


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Any]:
        return {"node_gpus": node_gpus}
