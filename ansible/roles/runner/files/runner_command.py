#!/usr/bin/env python3
"""Holds an ssh key to some programs: ``command="runner_command.py sbatch squeue …"`` in authorized_keys.

What was asked for is started without a shell, so that ``;``, ``|`` and ``$(…)`` are but arguments. Each call is
told to the journal, also one that is refused (exit 126). ``true`` is always allowed: it proves that the way is open.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import syslog


def chosen(asked: str, allowed: list[str]) -> tuple[str, list[str]]:
    """The program's path, and the command as a list. Raises ValueError, whose text says why it is refused."""
    if not asked.strip():
        raise ValueError("no command: this key opens no shell")
    words = shlex.split(asked)  # raises ValueError itself, where quotes are open
    if not words or words[0] not in (*allowed, "true"):
        raise ValueError(f"{words[0] if words else asked!r} is not among: {', '.join(allowed)}")
    program = shutil.which(words[0])
    if program is None:
        raise ValueError(f"{words[0]} is not on this host")
    return program, words


def main(allowed: list[str]) -> int:
    """Start what ssh was asked for, or refuse."""
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    syslog.openlog("surefoot-runner", facility=syslog.LOG_AUTH)
    try:
        program, words = chosen(asked, allowed)
    except ValueError as error:
        syslog.syslog(syslog.LOG_WARNING, f"refused: {asked!r}: {error}")
        sys.stderr.write(f"{os.uname().nodename}: refused: {error}\n")
        return 126
    syslog.syslog(syslog.LOG_INFO, f"started: {asked!r}")
    sys.stderr.flush()
    return os.execv(program, words)  # noqa: S606 - no shell is what this is for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
