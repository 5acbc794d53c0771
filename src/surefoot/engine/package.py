"""What jobs run from: this code, with the run's configuration beside it, under one digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import surefoot
from surefoot.files import tree_digest, tree_files
from surefoot.model.base import Record


@dataclass(frozen=True)
class Package:
    """Files to push to ``<root>/jobs/<digest>``: ``src/surefoot/**`` and ``config/*.json``."""

    files: Mapping[str, Path | bytes]
    digests: Mapping[str, str]
    code_digest: str

    @property
    def digest(self) -> str:
        """Tree digest of all of it."""
        return tree_digest(dict(self.digests))


def _code() -> dict[str, str]:
    source = Path(surefoot.__file__).parent
    return {f"src/surefoot/{name}": digest for name, digest in tree_files(source).items()}


@cache
def code_digest() -> str:
    """Tree digest of the code that runs now."""
    return tree_digest(_code())


def build(configuration: Mapping[str, Record]) -> Package:
    """The running code and this configuration (name → record)."""
    source = Path(surefoot.__file__).parent
    code = _code()
    files: dict[str, Path | bytes] = {name: source / name.removeprefix("src/surefoot/") for name in code}
    config = {
        f"config/{name}.json": (json.dumps(record.canonical(), indent=1, sort_keys=True) + "\n").encode()
        for name, record in configuration.items()
    }
    digests = {**code, **{name: hashlib.sha256(data).hexdigest() for name, data in config.items()}}
    return Package(files={**files, **config}, digests=digests, code_digest=tree_digest(code))
