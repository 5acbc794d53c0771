"""What jobs run from: this code, and the run's configuration, each under its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import surefoot
from surefoot.files import tree_digest, tree_files
from surefoot.model.base import Record

CONFIGURATION = ("cluster", "ladder", "recipe", "policy")
"""Names of the records that are pushed beside the code, as a run's inputs have them."""


@dataclass(frozen=True)
class Tree:
    """Files that are pushed together: relative name → source, and their digests."""

    files: Mapping[str, Path | bytes]
    digests: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Tree digest of all of it."""
        return tree_digest(dict(self.digests))


@dataclass(frozen=True)
class Package:
    """What is pushed to ``<root>/jobs/<digest>``, as two trees.

    ``src/surefoot/**`` is the code that every job imports. ``config/*.json`` stands apart, so that
    another recipe doesn't move the code and with it everything that ran from it.
    """

    code: Tree
    configuration: Tree

    def tree(self, digest: str) -> Tree:
        """The tree of this digest. Raises KeyError."""
        return {tree.digest: tree for tree in (self.code, self.configuration)}[digest]


def _code() -> dict[str, str]:
    source = Path(surefoot.__file__).parent
    return {f"src/surefoot/{name}": digest for name, digest in tree_files(source).items()}


@cache
def code_digest() -> str:
    """Tree digest of the code that runs now."""
    return tree_digest(_code())


def build(configuration: Mapping[str, Record]) -> Package:
    """The running code and this configuration (name → record).

    The code is read once (a few MB): what is sent is what has the digest, also where somebody
    edits it while a climb is going on.
    """
    source = Path(surefoot.__file__).parent
    files = {name: (source / name.removeprefix("src/surefoot/")).read_bytes() for name in _code()}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return Package(
        code=Tree(dict(files), digests),
        configuration=configuration_tree({name: record.canonical() for name, record in configuration.items()}),
    )


def configuration_tree(configuration: Mapping[str, Any]) -> Tree:
    """``config/NAME.json`` for each of `CONFIGURATION`, from its canonical data."""
    files: dict[str, Path | bytes] = {}
    digests = {}
    for name, content in configuration.items():
        data = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
        files[f"config/{name}.json"] = data
        digests[f"config/{name}.json"] = hashlib.sha256(data).hexdigest()
    return Tree(files, digests)
