"""The Python environment that runs ``surefoot``, for the lab's hosts: a climb on the lab then needs no other."""

from __future__ import annotations

import sys
from pathlib import Path

_OF_THE_SYSTEM = (Path("/usr"), Path("/"))


def running_environment() -> tuple[str, tuple[str, ...]]:
    """(interpreter, folders that hosts must see for it). A part that is the system's own is the hosts' own there."""
    folders = dict.fromkeys((sys.prefix, sys.base_prefix))
    return sys.executable, tuple(folder for folder in folders if Path(folder) not in _OF_THE_SYSTEM)
