"""Running this machine's own tools: one way, with one kind of error."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from surefoot.errors import MachineryError

ALONE = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--mount", "--propagation", "private", "--"),
)
"""Before a command: it has mount and process namespaces of its own, and dies with the process that started it, with
all that it started. Nothing stays mounted and nothing goes on in the background, however that ends."""
_SHOWN = 600
"""Characters of a failed command's output that its error quotes: the end of it."""


def run(
    argv: Sequence[str], *, timeout_s: float = 60, check: bool = True, name: str = "", next_action: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end. Raises MachineryError when it can't, takes too long, or fails and `check` is set.

    `name` stands for the command in errors, where the whole of it would tell people less.
    """
    shown = name or _shown(argv)
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise MachineryError(f"cannot run {argv[0]!r}: {error.strerror or error}", next_action=next_action) from error
    except subprocess.TimeoutExpired as error:
        raise MachineryError(f"{shown}: no end after {timeout_s:.0f} s", next_action=next_action) from error
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-_SHOWN:]
        raise MachineryError(
            f"{shown}: exit {done.returncode}" + (f": {said}" if said else ""), next_action=next_action
        )
    return done


def _shown(argv: Sequence[str]) -> str:
    """A command for people: scripts that are passed along are cut."""
    return " ".join(word if len(word) <= 60 and "\n" not in word else f"{word.splitlines()[0][:40]}…" for word in argv)


def remove_tree(path: object, *, timeout_s: float = 300) -> None:
    """Remove a folder of a lab without ever leaving its file system: what is mounted below stays whole."""
    assert len(str(path)) > len("/var/lib/")
    run(["rm", "-rf", "--one-file-system", "--", str(path)], timeout_s=timeout_s)


def found(program: str) -> bool:
    """Whether a program is on PATH, or where system programs lie (not on every user's PATH)."""
    return shutil.which(program) is not None or shutil.which(program, path="/usr/sbin:/sbin") is not None
