"""Writing files so that a reader sees the old content or the new, never half of one."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from surefoot.errors import StorageError


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write to a temporary name in the same folder, fsync, rename. Raises StorageError."""
    raw = data.encode() if isinstance(data, str) else data
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            next_action="free space or fix permissions there, then run it again; a climb goes on with --resume RUN",
        ) from error


def sha256_file(path: Path) -> str:
    """sha256 (hex) of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:  # hashlib.file_digest is not there before Python 3.11, and nodes may be older
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def tree_digest(files: dict[str, str]) -> str:
    """sha256 (hex) over sorted ``path NUL sha256 LF`` lines: one name for a whole tree."""
    text = "".join(f"{name}\0{files[name]}\n" for name in sorted(files))
    return hashlib.sha256(text.encode()).hexdigest()


def tree_files(folder: Path, *, skip: tuple[str, ...] = ("__pycache__",)) -> dict[str, str]:
    """Relative POSIX path → sha256 of every regular file below `folder`.

    What is no regular file stands there too, with what it is in place of a digest (a link with its
    target), and equals no file: Python would import through it all the same. Links are not followed.
    """
    found = {}
    for path, kind in entries(folder):
        relative = path.relative_to(folder)
        if any(part in skip for part in relative.parts):
            continue
        found[relative.as_posix()] = sha256_file(path) if kind == "file" else kind
    return found


def entries(folder: Path) -> Iterator[tuple[Path, str]]:
    """(path, what it is) of everything below `folder` that is not a folder, in order; links are not followed.

    What it is: ``file``, ``link to TARGET``, or ``no regular file``. Nothing is opened.
    """
    for parent, folders, names in os.walk(folder):
        folders.sort()
        here = Path(parent)
        links = [name for name in folders if (here / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = here / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                yield path, "file"
            else:
                yield path, f"link to {path.readlink()}" if stat.S_ISLNK(mode) else "no regular file"
