"""Slurm as a node sees it, one rank on each. Standard library only.

``request.json``: ``{"head": FILE, "jobs": [NAMES that have ended], "wait_s": s}``. FILE is what
``surefoot.node.slurm_head`` left. Ranks hand each other munge credentials through files in the
job's folder: rank 0 one for all, everybody one for rank 0 and one for the head.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.node.rank import Rank, say
from surefoot.node.runner import answer
from surefoot.node.slurm_head import left_credential
from surefoot.node.slurm_site import configuration, decode, differing, encode, munge_socket


def wait_for(folder: Path, names: list[str], wait_s: float) -> dict[str, str]:
    """Content of these files, of those that came in time.

    A file made and removed in the folder makes a network file system forget the listing it has cached.
    """
    found: dict[str, str] = {}
    deadline = time.monotonic() + wait_s
    pause = 0.05
    while True:
        for name in names:
            if name not in found and (text := left_credential(folder, name)):
                found[name] = text
        if len(found) == len(names) or time.monotonic() > deadline:
            return found
        refresh = folder / f".listing-{os.environ['RANK']}"
        refresh.touch()
        refresh.unlink(missing_ok=True)
        time.sleep(pause)
        pause = min(pause * 1.5, 2.0)


def exchange(rank: Rank, config: list[str]) -> dict[str, Any]:
    """Credentials made and decoded: of the head, of rank 0, and by rank 0 of all others. None: it never came."""
    nonce, wait_s, at = os.environ["SUREFOOT_NONCE"], rank.request["wait_s"], munge_socket(config)
    targets = ["head", "all" if rank.rank == 0 else "first"]
    made = {target: encode(f"{nonce} {rank.rank}", at) for target in targets}
    for target, said in made.items():
        if said["exit_code"] == 0:
            write_atomic(rank.folder / f"munge-{rank.rank}-{target}", "".join(said["stdout"]) + "\n")
    if any(said["exit_code"] != 0 for said in made.values()):
        return {"made": made, "head": None, "others": {}}
    others = range(1, rank.world_size) if rank.rank == 0 else range(1)
    files = {str(other): f"munge-{other}-{'first' if rank.rank == 0 else 'all'}" for other in others}
    came = wait_for(rank.folder, list(files.values()), wait_s)
    head = left_by_head(rank).get("credential", "")
    return {
        "made": made,
        "head": decode(head, at) if head else None,
        "others": {other: decode(came[file], at) if file in came else None for other, file in files.items()},
    }


def left_by_head(rank: Rank) -> dict[str, Any]:
    """What the head left for the nodes; empty where it cannot be read."""
    try:
        left: dict[str, Any] = json.loads(Path(rank.request["head"]).read_text())
    except (OSError, ValueError):
        return {}
    return left


def compared(rank: Rank, config: list[str]) -> dict[str, Any]:
    """This node's configuration files, with the lines that are not as on the head."""
    mine, head = configuration(config), left_by_head(rank).get("files", {})
    files = {}
    for name, file in mine["files"].items():
        theirs = head.get(name, {})
        lines = differing(file["lines"], theirs["lines"]) if theirs and file["sha256"] != theirs["sha256"] else []
        files[name] = {"path": file["path"], "sha256": file["sha256"], "error": file["error"], "differing": lines}
    return {"found": mine["found"], "files": files}


def left_behind(jobs: list[str], nonce: str, proc: Path = Path("/proc")) -> list[dict[str, Any]]:
    """Processes here that belong to these jobs of this attempt, by their environment."""
    marks = {f"SUREFOOT_JOB_NAME={name}".encode(): name for name in jobs}
    mine = f"SUREFOOT_NONCE={nonce}".encode()
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # another user's, or gone
        job = next((name for mark, name in marks.items() if mark in environment), None)
        if job is not None and mine in environment and command:
            found.append({"pid": int(folder.name), "job": job, "command": command[:200]})
    return found


def main() -> None:
    """Report this node."""
    rank = Rank.current("surefoot.node.slurm_node")
    config = answer(["scontrol", "show", "config"])
    rank.report(
        {
            "rank": rank.rank,
            "node": os.environ.get("SLURMD_NODENAME", ""),
            "config": {**config, "stdout": config["stdout"][:1]},  # its first line is the controller's clock
            "configuration": compared(rank, config["stdout"]),
            "munge": exchange(rank, config["stdout"]),
            "left_behind": left_behind(rank.request["jobs"], os.environ["SUREFOOT_NONCE"]),
        }
    )
    say(f"surefoot rank {rank.rank} of {os.environ['SUREFOOT_NONCE']} looked at its node")


if __name__ == "__main__":
    main()
