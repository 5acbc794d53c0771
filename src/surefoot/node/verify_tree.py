"""Digests of code and configuration as the rank sees them where it runs, and where Python imports it from.

Standard library only. ``request.json``: ``{"trees": {NAME: FOLDER}}``; where the cluster has an
environment for its jobs also ``"python"``, the interpreter that it is built on: then the rank says which
environment it runs in, and what is installed there.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import surefoot
from surefoot.files import tree_digest, tree_files
from surefoot.node.chooser import node_key
from surefoot.node.rank import Rank, say


def environment(base: str) -> dict[str, Any]:
    """Where this interpreter's packages lie, which kind of node this is, and every distribution that can be imported."""
    key, problem = node_key(base)
    try:
        ready = json.loads((Path(sys.prefix) / "ready.json").read_bytes())
    except (OSError, ValueError):
        ready = None
    found = [[str(d.metadata["Name"]), str(d.version)] for d in importlib.metadata.distributions()]
    return {
        "prefix": sys.prefix,
        "executable": sys.executable,
        "key": key or problem,
        "ready": ready,
        "distributions": sorted(found),
    }


def main() -> None:
    """Report path → sha256 of every file of each tree, and its tree digest."""
    rank = Rank.current("surefoot.node.verify_tree")
    trees = {}
    for name, folder in rank.request["trees"].items():
        files = tree_files(Path(folder), skip=())  # a stale .pyc would be run, too
        say(f"rank {rank.rank}: {len(files)} files of the {name} below {folder}")
        trees[name] = {
            "folder": folder,
            "real": os.path.realpath(folder),
            "files": files,
            "digest": tree_digest(files),
        }
    account = {"rank": rank.rank, "trees": trees, "imported_from": os.path.realpath(surefoot.__file__)}
    if "python" in rank.request:
        account["environment"] = environment(rank.request["python"])
    rank.report(account)


if __name__ == "__main__":
    main()
