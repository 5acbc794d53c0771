"""A host's reads from the disk below the shared root, held to a rate: by the kernel's own throttling, for its cgroup.

Reads alone, and only those that reach the disk. A write that is held would hold up the file system's journal,
and with it every other host and this machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from surefoot.errors import MachineryError, RequestError
from surefoot.lab.machine import CGROUP, cgroup_folders

RATES = r"[1-9]\d{0,4}(kB|MB)"
"""A second, decimal."""
_UNITS = {"kB": 1000, "MB": 1000**2}
_RULE = {1: "blkio.throttle.read_bps_device", 2: "io.max"}
"""File of a cgroup that holds a device and a rate, by the version of cgroups."""
_MOVE_S = 10.0


def disk_of(folder: Path, blocks: Path = Path("/sys/dev/block")) -> str:
    """``254:0``: the whole disk that a folder lies on. Raises RequestError where that is no disk of this machine's."""
    device = folder.stat().st_dev
    entry = blocks / f"{os.major(device)}:{os.minor(device)}"
    if not entry.exists():
        raise RequestError(
            f"{folder} lies on no disk that the kernel could hold to a rate (device {entry.name})",
            next_action="a lab whose --home is on a disk of its own: ext4 or XFS, no overlay",
        )
    part = entry.resolve()
    return ((part.parent if (part / "partition").exists() else part) / "dev").read_text().strip()


def groups(lab: str, host: str, top: Path = CGROUP) -> list[Path]:
    """The cgroup of version 1 that holds a host's reads; none where the host's own one does, or the kernel has neither."""
    return [top / "blkio" / "surefoot-lab" / lab / host] if (top / "blkio" / _RULE[1]).exists() else []


def hold(lab: str, host: str, shared: Path, rate: str, top: Path = CGROUP) -> None:
    """Hold a host's reads from the disk below `shared` to a rate, those of whatever starts there later too.

    Raises RequestError where nothing can be held, MachineryError where the kernel refuses.
    """
    bytes_a_second = int(rate[:-2]) * _UNITS[rate[-2:]]
    disk = disk_of(shared)
    try:
        for group in groups(lab, host, top):
            group.mkdir(parents=True, exist_ok=True)
            _write(group / _RULE[1], f"{disk} {bytes_a_second}")
            _move_out(cgroup_folders(lab, host, top), group)
            return
        group = cgroup_folders(lab, host, top)[0]
        if "io" not in _words(group.parents[2] / "cgroup.controllers"):
            raise RequestError(
                "this machine's cgroups cannot hold reads to a rate: neither blkio (version 1) nor io (version 2) is there",
                next_action="another fault, or a kernel with CONFIG_BLK_DEV_THROTTLING",
            )
        for above in reversed(group.parents[:3]):
            if "io" not in _words(above / "cgroup.subtree_control"):
                _write(above / "cgroup.subtree_control", "+io")
        _write(group / _RULE[2], f"{disk} rbps={bytes_a_second}")
    except OSError as error:
        raise MachineryError(
            f"the kernel does not hold {host}'s reads: {error}", next_action=f"surefoot lab mend --name {lab}"
        ) from error


def let_go(lab: str, host: str, shared: Path, top: Path = CGROUP) -> None:
    """Give a host its disk's full rate again. Raises MachineryError where the kernel refuses."""
    disk = disk_of(shared)
    try:
        for group in groups(lab, host, top):
            if group.exists():
                _write(group / _RULE[1], f"{disk} 0")
                _move_out([group], top / "blkio")
                for folder in sorted([path for path in group.rglob("*") if path.is_dir()], reverse=True):
                    folder.rmdir()
                group.rmdir()
            for above in group.parents[:2]:
                with contextlib.suppress(OSError):  # another host is held
                    above.rmdir()
            return
        for group in cgroup_folders(lab, host, top)[:1]:
            if (group / _RULE[2]).exists():
                _write(group / _RULE[2], f"{disk} rbps=max")
    except OSError as error:
        raise MachineryError(
            f"the kernel still holds {host}'s reads: {error}", next_action=f"surefoot lab down --name {lab}"
        ) from error


def is_held(lab: str, host: str, top: Path = CGROUP) -> bool:
    """Whether a host's reads are held to a rate."""
    files = [group / _RULE[1] for group in groups(lab, host, top)]
    files += [group / _RULE[2] for group in cgroup_folders(lab, host, top)[:1]]
    rules = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return any("rbps=max" not in rule for rule in rules)


def _move_out(sources: list[Path], target: Path) -> None:
    """Every process of some cgroups, and of those below them, into `target`; its children follow by themselves."""
    deadline = time.monotonic() + _MOVE_S
    # Sources of another hierarchy keep their processes: what is in `target` by now has moved.
    while outside := _pids(sources) - (_pids([target]) if target not in sources[0].parents else set()):
        if time.monotonic() > deadline:
            raise MachineryError(f"processes that will not move to {target}: {', '.join(sorted(outside)[:8])}")
        for pid in outside:
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                _write(target / "cgroup.procs", pid)


def _pids(folders: list[Path]) -> set[str]:
    return {pid for folder in folders for file in folder.rglob("cgroup.procs") for pid in _words(file)}


def _words(file: Path) -> list[str]:
    """What a file of the kernel says; nothing where it is not there."""
    try:
        return file.read_text().split()
    except FileNotFoundError:
        return []


def _write(file: Path, text: str) -> None:
    """One write, as the kernel wants it."""
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
