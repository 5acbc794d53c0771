"""Paths that a user's file names: where they are, whatever they hold."""

from __future__ import annotations

import os.path
from pathlib import Path


def absolute(path: str, folder: Path) -> Path:
    """`path` below `folder`, its ``~`` worked out. Without looking at the disk: symbolic links stay, ``..`` goes.

    A ``~NAME`` of nobody here stays as it is: that it is not there is then told of the path as it was written.
    """
    return Path(os.path.normpath(folder / os.path.expanduser(path)))  # noqa: PTH111 - Path.expanduser raises


def shown(path: str | Path) -> str:
    """A path for a message: as it is, or quoted with escapes where it would not stay on its line."""
    text = str(path)
    return text if text.isprintable() else repr(text)
