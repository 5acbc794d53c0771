"""Writing the folder of a prolog: whole or not at all, and never over what somebody else put there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.engine.prolog_derived import Derived, derived
from surefoot.engine.prolog_files import RECORD, SCRIPT, folder_files, mode_of
from surefoot.errors import RequestError, StorageError
from surefoot.files import entries, write_atomic
from surefoot.model.cluster import Cluster
from surefoot.node.prolog import SHARE


@dataclass(frozen=True)
class WrittenProlog:
    """What was written where."""

    folder: Path
    groups: tuple[Derived, ...]
    changed: tuple[str, ...]
    """Files that are other than before, those that are gone included."""
    share: float


def write_prolog(
    cluster: Cluster, folder: Path, *, markers: str | None, enforce: bool, share: float | None
) -> WrittenProlog:
    """Write the prolog of `cluster` into `folder`. Nothing is touched where all of it is as it should be.

    `markers`: the folder in which nodes that fail at once count each other. `share`: of the nodes, at most.
    Raises RequestError where the cluster file claims nothing, nodes are not named, or `folder` holds something else;
    StorageError.
    """
    groups = derived(cluster)
    if not any(one.claims for one in groups):
        raise RequestError(
            f"the cluster file of {cluster.name} claims nothing that a node can decide about itself, and a prolog"
            " without claims proves nothing: nothing is written",
            next_action="say what its nodes are: gpus_per_node, gpu_model, rails with hca, software.driver, expect"
            " (surefoot preflight --learn FILE writes them from what the nodes tell)",
        )
    if enforce and not markers:
        raise RequestError(
            "--prolog-enforce without --prolog-markers: nodes that fail in the same second do not know of each other,"
            " so a file system that is gone would drain the whole cluster",
            next_action="name a folder on storage that all nodes share: --prolog-markers DIR",
        )
    most = share if share is not None else fitting_share(cluster.nodes)
    head: dict[str, Any] = {"enforce": enforce, "max_drain_share": most}
    files = folder_files(cluster.name, groups, head | ({"markers": markers} if markers else {}))
    return WrittenProlog(folder, groups, tuple(_put(folder, files)), most)


def fitting_share(nodes: int) -> float:
    """The prolog's own share, or what allows one of `nodes`; of a single node it allows none, as that would be the whole cluster."""
    return SHARE if nodes == 1 or nodes * SHARE >= 1 else math.ceil(100 / nodes) / 100


def _put(folder: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    """Names of what is other than before, as it is written."""
    gone = _refuse_others(folder, files)
    if not folder.exists():
        _put_new(folder, files)
        yield from files
        return
    # In use, maybe: each file is the old one or the new one at any moment, and there all the time. The record comes
    # last, so that a write that was interrupted can be told and done again.
    for name in sorted({*files, *gone}, key=lambda name: (name == RECORD, name in gone, name == SCRIPT, name)):
        path = folder / name
        if name in gone:
            path.unlink()
        elif path.exists() and path.read_bytes() == files[name] and path.stat().st_mode & 0o777 == mode_of(name):
            continue
        else:
            write_atomic(path, files[name], mode=mode_of(name))
        yield name


def _refuse_others(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Files of an earlier write that are none any more. Raises RequestError for any that this command did not write."""
    if not (folder.exists() or folder.is_symlink()):
        return []
    if not folder.is_dir():
        raise RequestError(f"--write-prolog {folder}: that is no folder", next_action="name another")
    found = dict(entries(folder))
    there = {path.relative_to(folder).as_posix(): kind for path, kind in found.items()}
    if not there and not any(folder.iterdir()):
        return []
    recorded = _recorded(folder)
    wanted = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    strange = [name for name, kind in there.items() if kind != "file" or name not in {*recorded, *wanted}]
    if strange or (there and not recorded):
        raise RequestError(
            f"--write-prolog {folder}: it holds what this command did not write: {', '.join((strange or list(there))[:5])}",
            next_action="name another folder, or an empty one",
        )
    edited = [
        name
        for name in there
        if name != RECORD
        and hashlib.sha256((folder / name).read_bytes()).hexdigest() not in (recorded.get(name), wanted.get(name))
    ]
    if edited:
        raise RequestError(
            f"--write-prolog {folder}: changed by hand since it was written: {', '.join(edited[:5])}",
            next_action="name another folder and compare (diff -r OLD NEW), or remove those files",
        )
    return [name for name in there if name not in files]


def _recorded(folder: Path) -> dict[str, str]:
    """Name → sha256 of what was written there; empty where nothing was."""
    try:
        record = json.loads((folder / RECORD).read_text())
        return {RECORD: "", **{str(name): str(digest) for name, digest in record["sha256"].items()}}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _put_new(folder: Path, files: Mapping[str, bytes]) -> None:
    """All at once: beside it first, then by one rename."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:80]}."))
        try:
            for name, content in files.items():
                write_atomic(made / name, content, mode=mode_of(name))
            made.chmod(0o755)
            made.replace(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                shutil.rmtree(made)
            raise
    except OSError as error:
        raise StorageError(
            f"cannot write {folder}: {error.strerror or error}", next_action="free space or fix permissions there"
        ) from error
