"""Standard streams whose reader may hang up, and text for people, which may come from anywhere.

`surefoot runs | head -1` is no error, and no other exit code.
"""

from __future__ import annotations

import errno
import io
import sys
from typing import IO

import click


class _Forgiving(io.FileIO):
    """A file descriptor that takes what nobody reads any more (a closed pipe, a lost terminal)."""

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        try:
            return super().write(view) or 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            return view.nbytes


def forgive_lost_readers() -> None:
    """From now on, standard output and error outlive their readers.

    A climb goes on when the terminal or the pipe that showed it is gone (its evidence is what
    counts), and the exit code stays that of what was found.
    """
    sys.stdout = _forgiving(sys.stdout)
    sys.stderr = _forgiving(sys.stderr)


def _forgiving(stream: IO[str] | None) -> io.TextIOWrapper:
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # type: ignore[return-value]  # none, or replaced by who called us
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,  # a name may be no text
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def say(text: object, *, err: bool = False) -> None:
    """Print lines for people. File names, nodes and what commands said stand in them, and must not rule the terminal."""
    from surefoot.reports.text import terminal_safe  # not before it is needed: it imports the records

    click.echo("\n".join(map(terminal_safe, str(text).split("\n"))), err=err)
