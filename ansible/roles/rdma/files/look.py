"""Looks at the RDMA ports of a host, changes nothing, prints one JSON document. Standard library, Python 3.9 or newer.

    look.py [ROOT]

    {"ports":      [{"device", "port", "state", "phys_state", "rate_gbit_s", "link_layer", "firmware", "board",
                     "netdev", "mtu", "gids": [{"index", "gid", "type", "address", "netdev"}], "pfc"}, …],
     "interfaces": [{"name", "addresses": ["192.168.177.1/24"], "mtu", "up"}, …]}

Both are ``{"value": …, "from": …}``, or ``{"value": null, "unknown": "because …", "from": …}``; so is each
port's ``pfc``, the priorities with flow control. A GID whose table entry is empty is left out; a file that
should be there and cannot be read makes the whole list unknown. ROOT is another root folder than ``/``:
tools are then taken from its ``usr/bin`` and ``usr/sbin`` alone.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

TIMEOUT_S = 30
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


class UnknownError(Exception):
    """Something could not be found out: why."""


class Host:
    """A host as it is seen below one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """`name` (absolute) below the root."""
        return self.root / name.lstrip("/")

    def shown(self, path: Path) -> str:
        """A path as the host itself names it."""
        return "/" + str(path.relative_to(self.root))

    def tool(self, name: str) -> str | None:
        """A tool's place; None where it is not there."""
        places = [str(self.path(folder)) for folder in ("usr/bin", "usr/sbin", "sbin", "bin")]
        if self.root == Path("/"):
            places.insert(0, os.environ.get("PATH", ""))
        return shutil.which(name, path=os.pathsep.join(places))

    def read(self, path: Path) -> str:
        """A file's text. Raises UnknownError that names it."""
        try:
            return path.read_text().strip()
        except OSError as error:
            raise UnknownError(f"{self.shown(path)}: {error.strerror or error}") from error

    def call(self, name: str, *arguments: str) -> str:
        """What a tool prints. Raises UnknownError with what it said where it is missing or fails."""
        place = self.tool(name)
        if place is None:
            raise UnknownError(f"{name} is not there")
        try:
            done = subprocess.run(
                [place, *arguments], capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UnknownError(f"{name}: {error}") from error
        if done.returncode != 0:
            said = " ".join((done.stderr.strip() or done.stdout.strip() or "says nothing").split())
            raise UnknownError(f"{name} {' '.join(arguments)} ends with {done.returncode}: {said[:200]}")
        return done.stdout


def fact(source: str, find: Callable[[], Any]) -> dict[str, Any]:
    """What `find` gives, or why there is nothing."""
    try:
        return {"value": find(), "from": source}
    except (UnknownError, OSError, ValueError, LookupError, TypeError) as error:
        why = str(error) if isinstance(error, UnknownError) else f"{type(error).__name__}: {error}"
        return {"value": None, "unknown": why, "from": source}


def rate(text: str, file: str) -> float:
    """``200 Gb/sec (4X HDR)`` → 200.0. Raises UnknownError."""
    match = re.match(r"(\d+(?:\.\d+)?) Gb/sec\b", text)
    if match is None:
        raise UnknownError(f"{file}: '{text[:60]}' is no rate in Gb/sec")
    return float(match.group(1))


def named(text: str) -> str:
    """``4: ACTIVE`` → ``ACTIVE``."""
    return text.split(":", 1)[-1].strip()


def gids(host: Host, folder: Path) -> list[dict[str, Any]]:
    """GIDs of a port that are set: index, type, interface, and the IPv4 address that one stands for."""
    found = []
    for file in sorted((folder / "gids").iterdir(), key=lambda entry: int(entry.name)):
        gid = host.read(file)
        if gid == EMPTY_GID or re.fullmatch(r"fe80:0000:0000:0000:0000:0000:0000:0000", gid):
            continue
        kind, netdev = (optional(folder / "gid_attrs" / name / file.name) for name in ("types", "ndevs"))
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
        address = str(mapped) if mapped else None
        found.append({"index": int(file.name), "gid": gid, "type": kind, "address": address, "netdev": netdev})
    return found


def optional(file: Path) -> str:
    """A file's text; empty where there is none (the kernel answers EINVAL for entries without)."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def pfc(host: Host, netdev: str) -> list[int]:
    """Priorities with flow control, by ``dcb`` (iproute2) or ``mlnx_qos`` (MLNX_OFED, DOCA). Raises UnknownError."""
    if not netdev:
        raise UnknownError("this port has no network interface")
    if host.tool("dcb") is not None:
        said = json.loads(host.call("dcb", "-j", "pfc", "show", "dev", netdev))
        rows = said[0] if isinstance(said, list) else said
        states = rows["prio_pfc"]
        return [number for number, state in enumerate(states) if state in (True, "on", 1)]
    if host.tool("mlnx_qos") is not None:
        #   PFC configuration:
        #           priority    0   1   2   3   4   5   6   7
        #           enabled     0   0   0   1   0   0   0   0
        match = re.search(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", host.call("mlnx_qos", "-i", netdev), re.MULTILINE)
        if match is None:
            raise UnknownError(f"mlnx_qos -i {netdev} has no row 'enabled' of eight priorities")
        return [number for number, state in enumerate(match.group(1).split()) if state == "1"]
    raise UnknownError("neither dcb nor mlnx_qos is there")


def netdev_of(device: Path, port: int, known: list[dict[str, Any]]) -> str:
    """The network interface of a port: what its GIDs say, else the card's own with that port number."""
    for gid in known:
        if gid["netdev"]:
            return str(gid["netdev"])
    names = sorted(entry.name for entry in (device / "device" / "net").glob("*"))
    fitting = [name for name in names if optional(device / "device" / "net" / name / "dev_port") == str(port - 1)]
    return (fitting or names or [""])[0]


def ports(host: Host) -> list[dict[str, Any]]:
    """Every port of every RDMA device."""
    found = []
    for device in sorted(host.path("/sys/class/infiniband").glob("*")):
        for folder in sorted((device / "ports").iterdir(), key=lambda entry: int(entry.name)):
            known = gids(host, folder)
            netdev = netdev_of(device, int(folder.name), known)
            mtu = optional(host.path(f"/sys/class/net/{netdev}/mtu")) if netdev else ""
            file = folder / "rate"
            found.append(
                {
                    "device": device.name,
                    "port": int(folder.name),
                    "state": named(host.read(folder / "state")),
                    "phys_state": named(host.read(folder / "phys_state")),
                    "rate_gbit_s": rate(host.read(file), host.shown(file)),
                    "link_layer": host.read(folder / "link_layer"),
                    "firmware": optional(device / "fw_ver"),
                    "board": optional(device / "board_id"),
                    "netdev": netdev,
                    "mtu": int(mtu) if mtu else None,
                    "gids": known,
                    "pfc": fact(f"dcb or mlnx_qos, {netdev}", partial(pfc, host, netdev)),
                }
            )
    return found


def interfaces(host: Host) -> list[dict[str, Any]]:
    """Network interfaces with their IPv4 addresses, as ``ip`` tells them."""
    return [
        {
            "name": row["ifname"],
            "addresses": [f"{one['local']}/{one['prefixlen']}" for one in row.get("addr_info", [])],
            "mtu": row["mtu"],
            "up": "UP" in row["flags"],
        }
        for row in json.loads(host.call("ip", "-j", "-4", "address", "show") or "[]")
        if row  # older releases print {} for interfaces that have no such address
    ]


def look(root: Path) -> dict[str, Any]:
    """All facts."""
    host = Host(root)
    return {
        "ports": fact("/sys/class/infiniband", lambda: ports(host)),
        "interfaces": fact("ip -j -4 address show", lambda: interfaces(host)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(Path(sys.argv[1] if len(sys.argv) > 1 else "/"))) + "\n")
