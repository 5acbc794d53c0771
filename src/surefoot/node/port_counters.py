"""Counters of all RDMA ports of this node, read now. Standard library only.

``counters`` below each port in sysfs, as Documentation/ABI/stable/sysfs-class-infiniband of the kernel
describes them; `port_xmit_data` and `port_rcv_data` count in units of 4 octets. What follows from two
readings is for `surefoot.hardware.port_counters`.
"""

from __future__ import annotations

from pathlib import Path

from surefoot.node.facts import Fact, fact
from surefoot.node.facts.fabric import counters
from surefoot.node.facts.network import SYSFS


def read(sysfs: Path = SYSFS) -> Fact:
    """``mlx5_0:1`` → its counters, each port a fact of its own. Unknown where the node shows no RDMA device."""
    return fact(lambda: _ports(sysfs))


def _ports(sysfs: Path) -> dict[str, Fact]:
    folder = sysfs / "class" / "infiniband"
    ports = sorted(folder.glob("*/ports/*"))
    if not ports:
        raise LookupError(f"{folder} shows no port of an RDMA device")
    return {f"{port.parents[1].name}:{port.name}": _counters(port / "counters") for port in ports}


def _counters(folder: Path) -> Fact:
    return fact(lambda: counters(folder))
