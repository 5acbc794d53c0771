"""Digests of the package as the rank sees it where it runs, and where Python imports it from.

Standard library only. ``request.json``: ``{"package": FOLDER}``.
"""

from __future__ import annotations

import os
from pathlib import Path

import surefoot
from surefoot.files import tree_digest, tree_files
from surefoot.node.rank import Rank


def main() -> None:
    """Report path → sha256 of every file of the package, and their tree digest."""
    rank = Rank.current("surefoot.node.verify_tree")
    package = Path(rank.request["package"])
    files = tree_files(package)
    print(f"rank {rank.rank}: {len(files)} files below {package}")
    rank.report(
        {
            "rank": rank.rank,
            "package": str(package),
            "package_real": os.path.realpath(package),
            "imported_from": os.path.realpath(surefoot.__file__),
            "files": files,
            "tree_digest": tree_digest(files),
        }
    )


if __name__ == "__main__":
    main()
