"""The demonstration that ships with the package: where it lies, and the digests it was shipped with. No torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from surefoot.errors import RequestError
from surefoot.files import tree_digest, tree_files, write_atomic
from surefoot.training.tasks import TASKS_FILE

FOLDER = Path(__file__).resolve().parent.parent / "shipped" / "demo"
MANIFEST = "MANIFEST.json"
MODELS = {"demo-base": "base"}
DATA = {"demo-train": "demo-train.jsonl", "demo-eval": "demo-eval.jsonl"}


@cache
def manifest() -> dict[str, str]:
    """Path relative to the demo folder → sha256, as shipped. Package data: as constant as this code."""
    files: dict[str, str] = json.loads((FOLDER / MANIFEST).read_text())["files"]
    return files


def write_manifest(folder: Path) -> None:
    """Write MANIFEST.json over every other file below `folder`."""
    files = {name: digest for name, digest in tree_files(folder).items() if name != MANIFEST}
    write_atomic(folder / MANIFEST, json.dumps({"files": files}, indent=1, sort_keys=True) + "\n")


def builtin_path(name: str, *, kind: str) -> Path:
    """Where a builtin model (folder) or data set (file) lies. Raises RequestError for an unknown name."""
    table = MODELS if kind == "models" else DATA
    if name not in table:
        raise RequestError(
            f"no builtin {'model' if kind == 'models' else 'data set'} is named {name!r}",
            next_action=f"use one of: {', '.join('builtin:' + known for known in table)}",
        )
    return FOLDER / table[name]


def builtin_digest(name: str, *, kind: str) -> str:
    """Tree digest that a builtin source must have, from MANIFEST. Raises RequestError for an unknown name."""
    path = builtin_path(name, kind=kind).relative_to(FOLDER).as_posix()
    if kind == "data":
        return tree_digest({TASKS_FILE: manifest()[path]})
    start = f"{path}/"
    return tree_digest({n.removeprefix(start): d for n, d in manifest().items() if n.startswith(start)})
