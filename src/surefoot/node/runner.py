"""What the machine behind the connection says of itself, and its Slurm of itself. One JSON document on stdout.

``python3 - '{"nonce": …, "root": …}' <runner.py``: it runs where nothing has been pushed yet, so it
is one file and uses the standard library alone, as Python 3.7 had it: an interpreter that is too old is
to be named, not to crash. It reports raw values; whether they are good enough
is judged elsewhere. With ``"commands": {NAME: ARGV}`` it runs those too, all at once, and with
``"nodes": NAME`` it knocks at the slurmd of every node in the output of that command; where one login
host can ask several slurmds for their state, it asks each.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COMMAND_S = 25.0
"""One command's longest; Slurm's own patience with its controller is 10 s and more."""
KNOCK_S = 3.0
SLURMD_PORT = 6818


def first_text(path: str) -> str:
    """A file's first line; empty where it cannot be read."""
    try:
        return Path(path).read_text().strip().split("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""


def user() -> str:
    """The login name; the number of a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def surefoot_version() -> str | None:
    """Of the surefoot that is installed there; None where there is none, as on a host that nothing was pushed to."""
    try:
        import surefoot
    except ImportError:
        return None
    return str(surefoot.__version__)


def probe_root(root: Path, nonce: str) -> dict[str, Any]:
    """Write, rename and read one file below `root`; leaves nothing behind.

    `read` is what came back, None with an `error` when the root refused.
    """
    file = root / f".surefoot-runner-{nonce}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=root, prefix=f"{file.name}.")
        with os.fdopen(handle, "w") as stream:
            stream.write(f"{nonce}\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(file)
        read = file.read_text()
        file.unlink()
    except OSError as error:
        return {"path": str(root), "read": None, "error": f"{error.strerror or error}: {error.filename or root}"}
    return {"path": str(root), "read": read, "error": ""}


def answer(argv: list[str], *, stdin: str = "", env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One command, how it ended and what it printed, line by line. `error`: why it could not be run to its end."""
    said: dict[str, Any] = {"argv": argv, "exit_code": None, "stdout": [], "stderr": [], "error": ""}
    said["started_at"] = time.time()
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8", **(env or {})}
    try:
        done = subprocess.run(
            argv, input=stdin.encode(), capture_output=True, timeout=COMMAND_S, check=False, env=environment
        )
    except FileNotFoundError:
        said["error"] = f"{argv[0]}: not found"
    except OSError as error:
        said["error"] = f"{argv[0]}: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        said["error"] = f"{argv[0]}: no answer within {COMMAND_S:g} s"
    else:
        said["exit_code"] = done.returncode
        said["stdout"] = done.stdout.decode(errors="replace").splitlines()
        said["stderr"] = done.stderr.decode(errors="replace").splitlines()
    said["ended_at"] = time.time()
    return said


def knock(address: str, port: int) -> str:
    """Whether something listens there: empty, or why not."""
    try:
        socket.create_connection((address, port), KNOCK_S).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def ask_slurmd(row: dict[str, Any]) -> str:
    """Whether the slurmd of a node answers this host, whose munge key and clock it must share: empty, or what was said.

    ``scontrol show slurmd`` asks the local slurmd, which a build for several on one host takes from
    SLURMD_NODENAME.
    """
    said = answer(["scontrol", "show", "slurmd"], env={"SLURMD_NODENAME": row["node"]})
    if said["exit_code"] == 0:
        return ""
    return said["error"] or "; ".join(said["stderr"]) or f"exit code {said['exit_code']}"


def knock_at_nodes(rows: list[str], port: int, *, ask_each: bool) -> list[dict[str, Any]]:
    """One row for each ``NodeName=… NodeAddr=…`` line of ``scontrol show node``.

    `error` is empty where slurmd listens, `refused` where it answered, None where it was not asked.
    """
    found = []
    for row in rows:
        values = dict(re.findall(r"(?:^|\s)(NodeName|NodeAddr|Port)=(\S+)", row))
        if "NodeName" in values:
            address = values.get("NodeAddr", values["NodeName"])
            found.append({"node": values["NodeName"], "address": address, "port": int(values.get("Port", port))})

    def visit(row: dict[str, Any]) -> dict[str, Any]:
        error = knock(row["address"], row["port"])
        return {**row, "error": error, "refused": ask_slurmd(row) if ask_each and not error else None}

    with ThreadPoolExecutor(64) as pool:
        return list(pool.map(visit, found))


def slurmd_port(rows: list[str]) -> int:
    """From ``scontrol show config``; Slurm's default where it doesn't say."""
    for row in rows:
        match = re.match(r"SlurmdPort\s*=\s*(\d+)\s*$", row)
        if match:
            return int(match.group(1))
    return SLURMD_PORT


def ask(commands: Mapping[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Every command's answer, all run at once."""
    with ThreadPoolExecutor(max(1, len(commands))) as pool:
        asked = {name: pool.submit(answer, argv) for name, argv in commands.items()}
        return {name: answering.result() for name, answering in asked.items()}


def account(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything that the runner rung judges."""
    answers = ask(asked.get("commands", {}))
    listed = answers.get(asked.get("nodes", ""), {}).get("stdout", [])
    config = answers.get("config", {}).get("stdout", [])
    several = any(re.match(r"MULTIPLE_SLURMD\s*=\s*yes", row, re.IGNORECASE) for row in config)
    return {
        "nonce": asked["nonce"],
        "host": socket.gethostname(),
        "machine_id": first_text("/etc/machine-id"),
        "boot_id": first_text("/proc/sys/kernel/random/boot_id"),
        "user": user(),
        "pid": os.getpid(),
        "ssh_connection": os.environ.get("SSH_CONNECTION", ""),
        "terminal": sys.stdin.isatty() or sys.stdout.isatty(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "surefoot": surefoot_version(),
        "root": probe_root(Path(asked["root"]), asked["nonce"]),
        "programs": {name: shutil.which(name) for name in asked.get("programs", [])},
        "answers": answers,
        "slurmds": knock_at_nodes(listed, slurmd_port(config), ask_each=several),
        "clock": time.time(),
    }


def main() -> None:
    """Print the account of this machine."""
    sys.stdout.write(json.dumps(account(json.loads(sys.argv[1])), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
