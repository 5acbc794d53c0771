"""Every error that Surefoot raises on purpose, and what a caller does about each.

::

    SurefootError                 base; carries `next_action`, the sentence that says what to do
    ├── RequestError              the request is wrong: exit 3
    │   ├── ConfigError           a file that the user wrote: names file, line, key, what is allowed
    │   └── RunNotFoundError      no such run, or it is not readable
    ├── EvidenceError             evidence cannot be read as what it claims to be: file, line, text;
    │                             becomes an INCONCLUSIVE check, never a crash and never a pass
    └── MachineryError            the world outside broke: exit 4
        ├── ConnectionFailedError a command could not be run, or a file not moved
        ├── SchedulerError        a job could not be submitted, polled or cancelled
        └── StorageError          the disk or shared storage refused

`assert` is for our own bugs only. A user never sees a traceback for anything in this tree.
"""

from __future__ import annotations


class SurefootError(Exception):
    """Base of the tree. `next_action` says what the user does now; empty where nothing helps."""

    def __init__(self, message: str, *, next_action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.next_action}" if self.next_action else self.message


class RequestError(SurefootError):
    """The request is wrong (usage or configuration). Exit code 3."""


class ConfigError(RequestError):
    """A user's file is wrong. The message begins with ``FILE:LINE:`` where the line is known."""


class RunNotFoundError(RequestError):
    """The named run does not exist under this root, or is not a run folder."""


class EvidenceError(SurefootError):
    """Evidence is missing, incomplete or not what it claims to be.

    `file` is relative to the evidence it belongs to, `line` counts from 1, `text` is the
    offending line (shortened). A parser raises this rather than skip a row.
    """

    def __init__(self, problem: str, *, file: str, line: int | None = None, text: str = "") -> None:
        where = file if line is None else f"{file}:{line}"
        shown = f" [{text[:160]}]" if text else ""
        super().__init__(f"{where}: {problem}{shown}")
        self.problem = problem
        self.file = file
        self.line = line
        self.text = text[:400]


class MachineryError(SurefootError):
    """Something outside Surefoot broke: it proves nothing about the claim. Exit code 4."""


class ConnectionFailedError(MachineryError):
    """A command could not be started on the other side, or a transfer failed."""


class SchedulerError(MachineryError):
    """The scheduler refused or could not be reached."""


class StorageError(MachineryError):
    """A disk or the shared storage refused a write or a read."""
