"""The content-addressed cache on shared storage: a folder's name is the digest of what is in it.

A folder appears under its name complete or not at all (filled elsewhere, synced, renamed), so
several stagers at once do no harm: the first rename wins, the others find it there. No locks.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from surefoot.errors import StorageError
from surefoot.files import tree_digest, tree_files

State = Literal["staged", "found", "repaired"]


def sync_tree(folder: Path) -> None:
    """Sync every file and every folder, so that the rename never names what a crash can take back.

    Files become readable for all: who stages is not always who trains.
    """
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        sync_folder(path)


def put_in_place(filled: Path, target: Path) -> None:
    """Give a filled folder its name, content first: after a crash `target` is complete or absent."""
    sync_tree(filled)
    filled.rename(target)
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """Sync one folder (the names in it) or one file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def workspace(kind_folder: Path) -> Iterator[Path]:
    """A private folder beside the staged ones; gone afterwards, whatever happened. Raises StorageError."""
    name = f".staging-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    folder = kind_folder / name
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"cannot create {folder}: {error.strerror or error}", next_action="check the cluster's root and its permissions") from error  # fmt: skip
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def holds(folder: Path, digest: str) -> bool:
    """True when `folder` exists and its content has this digest, read again now."""
    return folder.is_dir() and tree_digest(tree_files(folder, skip=())) == digest


def publish(filled: Path, kind_folder: Path) -> tuple[Path, State]:
    """Move a filled folder to the name that its content has; a damaged one there is replaced.

    Returns where it lies now and how it came there. Raises StorageError.
    """
    try:
        sync_tree(filled)
        digest = tree_digest(tree_files(filled, skip=()))
        target = kind_folder / digest
        state: State = "staged"
        if target.exists():
            if holds(target, digest):
                return target, "found"
            # Readers of a damaged folder read wrong content already: moving it away harms none.
            aside = kind_folder / f".damaged-{digest[:16]}-{secrets.token_hex(4)}"
            target.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            state = "repaired"
        filled.rename(target)
    except OSError as error:
        if target_ready(kind_folder, filled):
            return kind_folder / tree_digest(tree_files(filled, skip=())), "found"
        raise StorageError(f"cannot stage into {kind_folder}: {error.strerror or error}", next_action="free space or fix permissions there") from error  # fmt: skip
    sync_folder(kind_folder)
    return target, state


def target_ready(kind_folder: Path, filled: Path) -> bool:
    """True when another stager published the same content while we worked."""
    if not filled.is_dir():
        return False
    digest = tree_digest(tree_files(filled, skip=()))
    return holds(kind_folder / digest, digest)
