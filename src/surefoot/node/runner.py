"""What the machine behind the connection says of itself. One JSON document on stdout.

``python -m surefoot.node.runner '{"nonce": …, "root": …}'``. Standard library only. It reports
raw values; whether they are good enough is judged elsewhere.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

import surefoot
from surefoot.files import write_atomic


def probe_root(root: Path, nonce: str) -> dict[str, Any]:
    """Write, rename and read one file below `root`; leaves nothing behind.

    `read` is what came back, None with an `error` when the root refused.
    """
    file = root / f".surefoot-runner-{nonce}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_atomic(file, f"{nonce}\n")
        read = file.read_text()
        file.unlink()
    except OSError as error:
        return {"path": str(root), "read": None, "error": f"{error.strerror or error}: {error.filename or root}"}
    return {"path": str(root), "read": read, "error": ""}


def account(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything that the runner rung judges, for ``asked = {"nonce": …, "root": …}``."""
    return {
        "nonce": asked["nonce"],
        "host": socket.gethostname(),
        "user": getpass.getuser(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "surefoot": surefoot.__version__,
        "root": probe_root(Path(asked["root"]), asked["nonce"]),
        "clock": time.time(),
    }


def main() -> None:
    """Print the account of this machine."""
    json.dump(account(json.loads(sys.argv[1])), sys.stdout, indent=1, allow_nan=False)
    print()


if __name__ == "__main__":
    main()
