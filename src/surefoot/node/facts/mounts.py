"""File systems of a node: what is mounted where, how, and what room it has. Standard library only.

Format: ``/proc/self/mountinfo`` as proc(5) describes it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

MOUNTINFO = Path("/proc/self/mountinfo")
SHOWN = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "9p",
    "virtiofs",
    "xfs",
    "ext4",
    "btrfs",
    "zfs",
    "tmpfs",
    "overlay",
)
"""File systems that hold data of people; the rest are the kernel's own."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def mounts(path: Path = MOUNTINFO) -> list[dict[str, Any]]:
    """Every mount: ``place``, ``kind``, ``source``, ``options`` (the mount's and the file system's). A later one hides an earlier."""
    found = []
    # Whoever may mount something may give it any name: the kernel escapes blank, tab, line feed and backslash alone, and
    # a source may be empty. So nothing but a blank parts fields, and nothing but a line feed parts rows.
    for row in filter(None, path.read_bytes().decode(errors="backslashreplace").split("\n")):
        left, _, right = row.partition(" - ")
        fields, (kind, source, options) = left.split(" "), right.split(" ", 2)
        both = dict.fromkeys([*fields[5].split(","), *options.split(",")])
        found.append({"place": _plain(fields[4]), "kind": kind, "source": _plain(source), "options": sorted(both)})
    return found


def below(folder: str, path: Path = MOUNTINFO) -> dict[str, Any]:
    """The mount that `folder` lies on, with its room in bytes and inodes. Raises LookupError, OSError."""
    real = os.path.realpath(folder)
    holding = [m for m in mounts(path) if real == m["place"] or real.startswith(m["place"].rstrip("/") + "/")]
    if not holding:
        raise LookupError(f"{path} has no mount that holds {real}")
    longest = max(len(mount["place"]) for mount in holding)
    mount = [mount for mount in holding if len(mount["place"]) == longest][-1]
    room = os.statvfs(real)
    return {
        **mount,
        "free_bytes": room.f_bavail * room.f_frsize,
        "total_bytes": room.f_blocks * room.f_frsize,
        "free_inodes": room.f_favail,
    }


def data_mounts(path: Path = MOUNTINFO) -> list[dict[str, Any]]:
    """Mounts of file systems that hold data of people, without those that containers bring."""
    return [
        m
        for m in mounts(path)
        if m["kind"] in SHOWN
        and not m["place"].startswith(("/proc", "/sys", "/run", "/var/lib/docker", "/var/lib/containers"))
    ]


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
