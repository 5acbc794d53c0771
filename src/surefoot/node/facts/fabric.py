"""RDMA devices of a node, InfiniBand and RoCE, as sysfs tells of them. Standard library only.

Files and their form: Documentation/ABI/stable/sysfs-class-infiniband of the kernel. What sysfs does not
tell: the active MTU of a port, which only ``ibv_query_port`` has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from surefoot.node.facts import Fact, fact
from surefoot.node.facts.network import SYSFS, link_name, numa_node

NOTHING = "0000:0000:0000:0000:0000:0000:0000:0000"
"""A GID index that is not in use."""
EMPTY_LINK_LOCAL = "fe80:0000:0000:0000:0000:0000:0000:0000"
"""What a port shows in index 0 before it has an address."""
_NUMBERED = re.compile(r"(\d+): ?(\w+)")
_RATE = re.compile(r"([\d.]+) Gb/sec")
MTU_UNKNOWN = "sysfs does not tell the active MTU of an RDMA port; ibv_devinfo does"


def facts(sysfs: Path = SYSFS) -> dict[str, Fact]:
    """RDMA devices; an empty list where the kernel has none."""
    return {"hcas": fact(lambda: hcas(sysfs))}


def hcas(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Every RDMA device with its ports. Raises OSError where sysfs cannot be read."""
    if not (sysfs / "class" / "net").is_dir():
        raise LookupError(f"no {sysfs / 'class' / 'net'}: sysfs is not there, so RDMA devices cannot be seen")
    folder = sysfs / "class" / "infiniband"
    if not folder.is_dir():
        return []  # no RDMA driver is loaded
    return [hca(device) for device in sorted(folder.iterdir(), key=lambda entry: entry.name)]


def hca(folder: Path) -> dict[str, Any]:
    """One device. Its ports are whole, or the fact says why not."""
    return {
        "name": folder.name,
        "pci": fact(lambda: link_name(folder / "device")),
        "driver": fact(lambda: link_name(folder / "device" / "driver")),
        "numa_node": fact(lambda: numa_node(folder / "device")),
        "type": fact(lambda: _text(folder / "hca_type")),
        "board": fact(lambda: _text(folder / "board_id")),
        "firmware": fact(lambda: _text(folder / "fw_ver")),
        "node_guid": fact(lambda: _text(folder / "node_guid")),
        "ports": fact(lambda: ports(folder)),
    }


def ports(folder: Path) -> list[dict[str, Any]]:
    """Ports of a device, by number."""
    return [port(entry) for entry in sorted((folder / "ports").iterdir(), key=lambda entry: int(entry.name))]


def port(folder: Path) -> dict[str, Any]:
    """One port. `rate_gbit_s` is what it runs at now, or the slowest there is while it is down."""
    return {
        "number": int(folder.name),
        "link_layer": fact(lambda: _text(folder / "link_layer")),
        "state": fact(lambda: numbered(folder / "state")),
        "physical_state": fact(lambda: numbered(folder / "phys_state")),
        "rate_gbit_s": fact(lambda: rate(folder / "rate")),
        "rate": fact(lambda: _text(folder / "rate")),
        "lid": fact(lambda: int(_text(folder / "lid"), 16)),
        "subnet_manager_lid": fact(lambda: int(_text(folder / "sm_lid"), 16)),
        "active_mtu": {"value": None, "unknown": MTU_UNKNOWN},
        "gids": fact(lambda: gids(folder)),
        "counters": fact(lambda: counters(folder / "counters")),
        "hw_counters": fact(lambda: counters(folder / "hw_counters")),
    }


def _text(file: Path) -> str:
    """One line of text. Raises LookupError where the file is empty."""
    text = file.read_text().strip()
    if not text:
        raise LookupError(f"{file} is empty")
    return text


def numbered(file: Path) -> str:
    """``ACTIVE`` of ``4: ACTIVE``. Raises LookupError for another form."""
    match = _NUMBERED.fullmatch(_text(file))
    if match is None:
        raise LookupError(f"{file} says {_text(file)!r}, not NUMBER: STATE")
    return match.group(2)


def rate(file: Path) -> float:
    """400.0 of ``400 Gb/sec (4X NDR)``. Raises LookupError for another form."""
    match = _RATE.match(_text(file))
    if match is None:
        raise LookupError(f"{file} says {_text(file)!r}, not N Gb/sec (…)")
    return float(match.group(1))


def gids(folder: Path) -> list[dict[str, Any]]:
    """Indices of the GID table that are in use: value, type (``RoCE v2``, ``IB/RoCE v1``) and network interface.

    A driver without types or interfaces (InfiniBand proper has no interface) leaves them None.
    """
    found = []
    for entry in sorted((folder / "gids").iterdir(), key=lambda entry: int(entry.name)):
        value = entry.read_text().strip()
        if value in (NOTHING, EMPTY_LINK_LOCAL):
            continue
        attributes = folder / "gid_attrs"
        found.append({
            "index": int(entry.name), "gid": value,
            "type": _attribute(attributes / "types" / entry.name),
            "netdev": _attribute(attributes / "ndevs" / entry.name),
        })  # fmt: skip
    return found


def _attribute(file: Path) -> str | None:
    """An attribute of a GID; None where it has none: the kernel then refuses to read the file."""
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def counters(folder: Path) -> dict[str, int]:
    """Every counter of a port that is a number. Raises LookupError where there is none.

    Drivers without a performance management agent write ``N/A (no PMA)`` into each (iWARP); such a
    counter is left out, and where all are like that, the whole is unknown. ``lifespan`` is a setting.
    """
    found, others = {}, []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "lifespan":
            continue
        text = entry.read_text().strip()
        if text.isdigit():
            found[entry.name] = int(text)
        else:
            others.append(f"{entry.name}: {text}")
    if not found:
        raise LookupError(f"{folder} holds no counter" + (f" ({others[0]})" if others else ""))
    return found
