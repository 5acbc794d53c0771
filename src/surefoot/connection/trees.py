"""Folders as tar streams, with digests. Used by connections to another machine."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from surefoot.errors import StorageError
from surefoot.files import sha256_file

_SUM = re.compile(rb"^(\\?)([0-9a-f]{64}) [ *](.*)$")
_ESCAPES = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}


def beside(destination: Path) -> Path:
    """A temporary name in the same folder, this thread's own."""
    return destination.with_name(f".{destination.name}.{os.getpid()}.{threading.get_ident()}")


def pack(files: Mapping[str, Path | bytes], stream: IO[bytes]) -> dict[str, str]:
    """Write `files` as a tar to `stream`; returns name → sha256 of what went in. Raises StorageError."""
    digests = {}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, source in sorted(files.items()):
            try:
                data = source if isinstance(source, bytes) else source.read_bytes()
            except OSError as error:
                raise StorageError(f"cannot read {source!s}: {error.strerror or error}") from error
            entry = tarfile.TarInfo(f"./{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
            digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def unpack(stream: IO[bytes], folder: Path) -> dict[str, str]:
    """Extract a tar into the new `folder`; returns name → sha256 of what lies there. Raises StorageError.

    Devices, pipes, and links that lead out of the folder are refused.
    """
    try:
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                _place(tar, entry, folder)
        return {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
    except tarfile.TarError as error:
        raise StorageError(f"what came back is no whole tar: {error}", next_action="resume the run") from error
    except OSError as error:
        raise StorageError(
            f"cannot write to {folder.parent}: {error.strerror or error}",
            next_action="free space or fix permissions there, then resume the run",
        ) from error


def _place(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Make one entry below `folder`. Raises tarfile.TarError for one that would lie or lead elsewhere.

    tarfile's own filter "data" does the same, but Debian 12's Python 3.11.2 has none yet.
    """
    target = folder / entry.name
    _refuse_outside(target, folder, entry)
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.isdir():
        target.mkdir(exist_ok=True)
        return
    target.unlink(missing_ok=True)  # of two entries with one name the last counts; nothing is written through a link
    if entry.issym():
        _refuse_outside(target.parent / entry.linkname, folder, entry)
        target.symlink_to(entry.linkname)
    elif entry.islnk():
        source = folder / entry.linkname
        _refuse_outside(source, folder, entry)
        shutil.copyfile(source, target)
    elif (content := tar.extractfile(entry)) is not None and entry.isreg():
        with target.open("wb") as stream:
            shutil.copyfileobj(content, stream)
        target.chmod(0o755 if entry.mode & 0o100 else 0o644)
        os.utime(target, (entry.mtime, entry.mtime))
    else:
        raise tarfile.TarError(f"{entry.name!r} is neither a file, a folder nor a link")


def _refuse_outside(path: Path, folder: Path, entry: tarfile.TarInfo) -> None:
    """Raises tarfile.TarError where a path, with the links on its way followed, is not below the folder."""
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise tarfile.TarError(f"{entry.name!r} would lead out of the folder")


def read_sums(output: bytes) -> dict[str, str]:
    """sha256sum's output for ``./NAME`` files → name → digest. Raises StorageError for another line.

    GNU's sha256sum puts a backslash before the line and escapes names that hold a line break or a
    backslash.
    """
    digests = {}
    for line in output.split(b"\n"):
        if not line:
            continue
        found = _SUM.match(line)
        if found is None:
            raise StorageError(f"sha256sum on the other side said {line[:200]!r}")
        name = found.group(3)
        if found.group(1):
            name = re.sub(rb"\\[\\nr]", lambda match: _ESCAPES[match.group()], name)
        digests[name.removeprefix(b"./").decode(errors="surrogateescape")] = found.group(2).decode()
    return digests


def compare(here: Mapping[str, str], there: Mapping[str, str], what: str) -> None:
    """Raises StorageError where the two sides do not hold the same files."""
    different = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if different:
        shown = ", ".join(repr(name) for name in different[:4])
        raise StorageError(
            f"{what}: {len(different)} of {len(here.keys() | there.keys())} files differ between the two sides: {shown}",
            next_action="something still writes there, or the storage loses data: look at these files, then resume",
        )


def replace_folder(new: Path, destination: Path) -> None:
    """Put the folder `new` in the place of `destination`. Raises StorageError."""
    old = beside(destination).with_suffix(".old")
    try:
        if destination.exists():
            destination.rename(old)
        new.rename(destination)
    except OSError as error:
        raise StorageError(f"cannot replace {destination}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(old, ignore_errors=True)
