"""Telling one process from another that has its number. Standard library only."""

from __future__ import annotations

from pathlib import Path


def start_ticks(pid: int) -> int | None:
    """Kernel's start time of a process in clock ticks since boot; None when there is no such process.

    Field 22 of /proc/PID/stat (proc(5)); the command name before it may hold spaces and brackets.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] == b"Z" else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """True when process `pid` runs and is the one that started at `started` ticks."""
    ticks = start_ticks(pid)
    return ticks is not None and ticks == started
