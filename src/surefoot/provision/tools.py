"""Where Ansible's commands are on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NOT_FOUND_ACTION = (
    "install it beside Surefoot: pip install 'surefoot[ansible]' (ansible-core 2.19 or newer); or name an "
    "interpreter that has both, ansible.python in the cluster file"
)


def find_tool(name: str, python: str = "") -> str | None:
    """Path of one of Ansible's commands: beside that interpreter, else on the PATH; None where there is none.

    `python`: empty for the one that runs this.
    """
    beside = Path(python or sys.executable).parent / name
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which(name)
