"""Writing files so that a reader sees the old content or the new, never half of one."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from surefoot.errors import StorageError


def write_atomic(path: Path, data: bytes | str) -> None:
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
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            next_action="free space or fix permissions there, then run it again with --resume",
        ) from error


def sha256_file(path: Path) -> str:
    """sha256 (hex) of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(files: dict[str, str]) -> str:
    """sha256 (hex) over sorted ``path NUL sha256 LF`` lines: one name for a whole tree."""
    text = "".join(f"{name}\0{files[name]}\n" for name in sorted(files))
    return hashlib.sha256(text.encode()).hexdigest()


def tree_files(folder: Path, *, skip: tuple[str, ...] = ("__pycache__",)) -> dict[str, str]:
    """Relative POSIX path → sha256 of every regular file below `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not any(part in skip for part in relative.parts):
            found[relative.as_posix()] = sha256_file(path)
    return found
