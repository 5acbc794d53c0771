"""Slurm as the login host sees it. One JSON document on stdout. Standard library only, from the pushed package.

    python -m surefoot.node.slurm_head '{"nonce": …, "commands": {…}, "leave": FILE}'
    python -m surefoot.node.slurm_head '{"nonce": …, "commands": {}, "decode": FOLDER, "ranks": N, "remove": FILE}'

The first leaves for the nodes, in FILE on shared storage, what they compare theirs with: this
host's configuration files and a munge credential. The second decodes the credentials that the
nodes left, and removes that file with its folder.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.node.runner import answer, ask
from surefoot.node.slurm_site import configuration, decode, encode, munge_socket


def left_credential(folder: Path, name: str) -> str:
    """A credential that a node left; empty where there is none."""
    try:
        return (folder / name).read_text().strip()
    except OSError:
        return ""


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything that is asked."""
    answers = ask(asked["commands"])
    said: dict[str, Any] = {"nonce": asked["nonce"], "host": socket.gethostname(), "answers": answers}
    if "leave" in asked:
        said["configuration"] = configuration(answers["config"]["stdout"])
        said["munge"] = encode(asked["nonce"], munge_socket(answers["config"]["stdout"]))
        credential = "".join(said["munge"]["stdout"])
        files = said["configuration"]["files"]
        write_atomic(Path(asked["leave"]), json.dumps({"files": files, "credential": credential}))
    if "decode" in asked:
        folder, socket_file = Path(asked["decode"]), munge_socket(answer(["scontrol", "show", "config"])["stdout"])
        left = {str(rank): left_credential(folder, f"munge-{rank}-head") for rank in range(asked["ranks"])}
        with contextlib.suppress(OSError):
            Path(asked["remove"]).unlink()
            Path(asked["remove"]).parent.rmdir()
        said["decoded"] = {rank: decode(text, socket_file) if text else None for rank, text in left.items()}
    said["clock"] = time.time()
    return said


def main() -> None:
    """Print what this host sees."""
    sys.stdout.write(json.dumps(look(json.loads(sys.argv[1])), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
