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

    `python`: a path, or a name that is looked for on the PATH; empty for the one that runs this. Never
    what happens to lie in the working directory.
    """
    interpreter = python or sys.executable
    if "/" not in interpreter:
        interpreter = shutil.which(interpreter) or ""
    beside = Path(interpreter).parent / name
    if interpreter and beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which(name)
