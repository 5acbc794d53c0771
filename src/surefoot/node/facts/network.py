"""Network interfaces of a node and its routes, as found: no conclusion of what they are good for. Standard library only.

Which there are, with their addresses and routes, comes from the kernel by netlink, which tells of this
process's own network namespace. Drivers, speeds and error counters stand in sysfs alone, and sysfs may
be another namespace's (a container with the host's /sys): what it says of an interface is believed
where it names the same number for it. `surefoot.hardware.network_facts` has the records that read this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.node.facts import Fact, fact, netlink

SYSFS = Path("/sys")

ERRORS = (
    "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "rx_frame_errors",
    "rx_fifo_errors", "rx_missed_errors", "rx_over_errors", "tx_carrier_errors", "collisions",
)  # fmt: skip
"""Counters below ``statistics/`` that tell of trouble; since the interface was made."""
TRAFFIC = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")


def facts(sysfs: Path = SYSFS) -> dict[str, Fact]:
    """Interfaces and routes."""
    return {"interfaces": fact(lambda: interfaces(sysfs)), "routes": fact(routes)}


def interfaces(sysfs: Path = SYSFS) -> list[dict[str, Any]]:
    """Every interface. MTU in bytes, speed in Mbit/s. Raises OSError, ValueError, LookupError where netlink does."""
    links = netlink.links()
    by_interface: dict[int, list[dict[str, Any]]] = {}
    for row in netlink.addresses():
        entry = {key: row[key] for key in ("address", "prefix", "scope")}
        by_interface.setdefault(row["index"], []).append(entry)
    return described(links, by_interface, sysfs)


def described(
    links: list[dict[str, Any]], addresses: dict[int, list[dict[str, Any]]], sysfs: Path
) -> list[dict[str, Any]]:
    """Links as netlink tells of them, with their addresses (by number) and what sysfs adds."""
    names = {row["index"]: row["name"] for row in links}
    found = []
    for row in sorted(links, key=lambda link: link["index"]):
        entry = {key: row[key] for key in ("name", "index", "arphrd", "up", "carrier", "state", "mtu", "mac", "kind")}
        found.append({
            **entry,
            "port_kind": row["port_kind"],
            # A master or a link below that this namespace does not have can't be named.
            "master": names.get(row["master"], f"interface {row['master']}") if row["master"] else None,
            "below": _below(row, names),
            "elsewhere": row["elsewhere"],
            "ports": sorted(other["name"] for other in links if other["master"] == row["index"]),
            "addresses": addresses.get(row["index"], []),
            **hardware(sysfs, row["name"], row["index"]),
        })  # fmt: skip
    return found


def _below(row: dict[str, Any], names: dict[int, str]) -> str | None:
    """The interface that this one lies on (a VLAN's), in this namespace; None where it lies on none."""
    if row["below"] is None or row["elsewhere"] or row["below"] == row["index"]:
        return None
    return names.get(row["below"])


def hardware(sysfs: Path, name: str, index: int) -> dict[str, Fact]:
    """What stands in sysfs about one interface; unknown where sysfs is of another network namespace."""
    folder = sysfs / "class" / "net" / name

    def own() -> Path:
        if not folder.exists():
            raise LookupError(f"no {folder}: this sysfs is of another network namespace")
        told = int((folder / "ifindex").read_text())
        if told != index:
            raise LookupError(f"{folder} is interface {told}, and {name} here is {index}: another network namespace's")
        return folder

    return {
        "device": fact(lambda: link_name(own() / "device")),
        "bus": fact(lambda: link_name(own() / "device" / "subsystem")),
        "driver": fact(lambda: link_name(own() / "device" / "driver")),
        "numa_node": fact(lambda: numa_node(own() / "device")),
        "wireless": fact(lambda: any((own() / part).exists() for part in ("wireless", "phy80211"))),
        "devtype": fact(lambda: devtype(own())),
        "speed_mbit_s": fact(lambda: speed(own())),
        "counters": fact(lambda: counters(own() / "statistics", (*ERRORS, *TRAFFIC))),
    }


def link_name(path: Path) -> str | None:
    """Last part of where a symbolic link leads to: a PCI address, a driver. None: there is none."""
    try:
        return path.readlink().name
    except FileNotFoundError:
        return None


def numa_node(device: Path) -> int | None:
    """NUMA node that a device is next to; None where the kernel knows none (-1), or there is no device."""
    file = device / "numa_node"
    if not file.exists():
        return None
    node = int(file.read_text())
    return node if node >= 0 else None


def devtype(folder: Path) -> str | None:
    """DEVTYPE of ``uevent`` (``wlan``, ``bridge``, ``vlan``, ``wwan``); None where the driver gives none."""
    for line in (folder / "uevent").read_text().splitlines():
        if line.startswith("DEVTYPE="):
            return line.split("=", 1)[1]
    return None


def speed(folder: Path) -> int:
    """Mbit/s that the link runs at. Raises LookupError where the driver does not say, OSError where it refuses."""
    text = (folder / "speed").read_text().strip()
    # -1 is SPEED_UNKNOWN; some drivers hand it out as an unsigned number.
    if int(text) <= 0 or int(text) >= (1 << 32) - 1:
        raise LookupError(f"{folder / 'speed'} says {text}: the driver does not know (no link, or a virtual device)")
    return int(text)


def counters(folder: Path, wanted: tuple[str, ...] | None = None) -> dict[str, int]:
    """Counters that are numbers, each a file; those of `wanted` that are there. Raises OSError, ValueError."""
    names = sorted(entry.name for entry in folder.iterdir()) if wanted is None else wanted
    return {name: int((folder / name).read_text()) for name in names if wanted is None or (folder / name).exists()}


def routes() -> list[dict[str, Any]]:
    """Unicast routes of the main table, with interfaces by name."""
    names = {row["index"]: row["name"] for row in netlink.links()}
    found = []
    for row in netlink.routes():
        used = [row["index"]] if row["index"] is not None else row["hops"]
        found.append({
            "to": row["to"], "interfaces": [names.get(index, f"interface {index}") for index in used],
            "gateway": row["gateway"], "source": row["source"], "metric": row["metric"],
        })  # fmt: skip
    return found
