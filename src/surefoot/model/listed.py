"""A job as a scheduler lists it, whoever submitted it."""

from __future__ import annotations

from pathlib import PurePosixPath

from surefoot.model.base import Record


class TaggedJob(Record):
    """A job that some climb submitted, and that is not over."""

    id: str
    name: str
    state: str
    """In the scheduler's own word."""
    run: str
    nonce: str
    """Of the attempt that it belongs to."""
    tag: str = ""
    """How the scheduler has it: ``surefoot:<run>:<nonce>:<job>``."""
    nodes: str = ""
    """Hostlist; empty while it waits."""
    elapsed_s: float | None = None
    limit_s: float | None = None
    reason: str = ""
    """Why it waits, in words."""
    folder: str = ""
    """Where its evidence lies, as the scheduler's host names it."""

    @property
    def rung(self) -> str:
        """From its folder, ``…/runs/<run>/rungs/<rung>/attempt-<n>/raw/<job>``; empty where that is not its form."""
        parts = PurePosixPath(self.folder).parts[-7:]
        shaped = len(parts) == 7 and (parts[0], parts[2], parts[5]) == ("runs", "rungs", "raw")
        return parts[3] if shaped else ""

    @property
    def attempt(self) -> int | None:
        """Number of the attempt, from its folder as well."""
        number = PurePosixPath(self.folder).parts[-3:-2]
        text = number[0].removeprefix("attempt-") if self.rung and number else ""
        return int(text) if text.isascii() and text.isdigit() else None
