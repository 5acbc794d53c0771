"""Digests of code and configuration as the rank sees them where it runs, and where Python imports it from.

Standard library only. ``request.json``: ``{"trees": {NAME: FOLDER}}``.
"""

from __future__ import annotations

import os
from pathlib import Path

import surefoot
from surefoot.files import tree_digest, tree_files
from surefoot.node.rank import Rank


def main() -> None:
    """Report path → sha256 of every file of each tree, and its tree digest."""
    rank = Rank.current("surefoot.node.verify_tree")
    trees = {}
    for name, folder in rank.request["trees"].items():
        files = tree_files(Path(folder), skip=())  # a stale .pyc would be run, too
        print(f"rank {rank.rank}: {len(files)} files of the {name} below {folder}")
        trees[name] = {
            "folder": folder,
            "real": os.path.realpath(folder),
            "files": files,
            "digest": tree_digest(files),
        }
    rank.report({"rank": rank.rank, "trees": trees, "imported_from": os.path.realpath(surefoot.__file__)})


if __name__ == "__main__":
    main()
