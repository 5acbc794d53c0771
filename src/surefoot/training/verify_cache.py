"""``surefoot.training.verify_cache``: read what was staged again, on every node, and say what is there.

One rank a node. Request: ``{"staged": PATH of the staging rank's report}``. It trusts that report
for the folders' places only; digests, rows and prompts are computed from what storage gives now.
Rank 0 also writes ``prompts.json``, the prompt keys of both data sets, from which anyone can
recompute that they do not overlap.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from surefoot.errors import EvidenceError, StorageError
from surefoot.files import sha256_file, write_atomic
from surefoot.node import program
from surefoot.node.rank import Rank, say
from surefoot.training.assets import KINDS
from surefoot.training.tasks import keys_digest, prompt_key, read_tasks

PROGRAM = "surefoot.training.verify_cache"
PROMPTS_FILE = "prompts.json"


def _forget_pages(path: Path) -> None:
    """Ask the kernel to drop its cached copy, so that reading means storage. Advice only."""
    if hasattr(os, "posix_fadvise"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def read_files(folder: Path) -> dict[str, str]:
    """Path in the folder → sha256, read from storage. Raises StorageError."""
    try:
        found = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            _forget_pages(path)
            found[path.relative_to(folder).as_posix()] = sha256_file(path)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read: {error.strerror or error}", next_action="check the mount of the shared root on this node") from error  # fmt: skip
    return found


def main(rank: Rank) -> None:
    """Report digests, row counts and overlap as this node sees them."""
    account = Path(rank.request["staged"])
    try:
        staged: dict[str, Any] = json.loads(account.read_text())["data"]
    except (OSError, ValueError, KeyError) as error:
        raise EvidenceError(f"the staging job's report cannot be read here: {error}", file=str(account)) from error
    seen: dict[str, Any] = {}
    keys: dict[str, list[tuple[str, str]]] = {}
    for name, kind in KINDS.items():
        folder = Path(staged[name]["path"])
        files = read_files(folder)
        size = sum((folder / file).stat().st_size for file in files)
        seen[name] = {"path": str(folder), "files": files, "size_bytes": size}
        if kind == "data":
            keys[name] = [(task.id, prompt_key(task.prompt)) for task in read_tasks(folder)]
            seen[name] |= {"rows": len(keys[name]), "prompts_digest": keys_digest(keys[name])}
    held = {key for _, key in keys["evaluate"]}
    overlap = [name for name, key in keys["train"] if key in held]
    if rank.rank == 0:
        content = {"nonce": os.environ["SUREFOOT_NONCE"], **keys}
        write_atomic(rank.folder / PROMPTS_FILE, json.dumps(content, indent=0) + "\n")
    say(f"rank {rank.rank}: " + ", ".join(f"{n} {len(s['files'])} files" for n, s in seen.items()))
    rank.report({"rank": rank.rank, "assets": seen, "overlap": overlap})


if __name__ == "__main__":
    program.run(PROGRAM, main)
