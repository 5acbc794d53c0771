"""Statuses and exit codes: the contract between Surefoot and everything that calls it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum


class Status(StrEnum):
    """What is known about a claim. Only PASSED satisfies a need."""

    PASSED = "PASSED"
    """Proved, by evidence that is named."""
    FAILED = "FAILED"
    """Disproved, by evidence that is named."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """Not proved either way: evidence missing, incomplete, damaged or too little."""
    ERROR = "ERROR"
    """The machinery broke while the evidence was collected."""
    BLOCKED = "BLOCKED"
    """A need did not pass, so this was not run (or no longer counts)."""
    SKIPPED = "SKIPPED"
    """Asked not to run."""


class ExitCode(IntEnum):
    """Exit codes, the same for every command."""

    PROVED = 0
    DISPROVED = 1
    UNPROVED = 2
    REQUEST = 3
    MACHINERY = 4
    INTERRUPTED = 130


_WORST_FIRST = (Status.FAILED, Status.ERROR, Status.INCONCLUSIVE, Status.BLOCKED)


def combine(statuses: Iterable[Status]) -> Status:
    """The status of a whole from its parts. An empty set is INCONCLUSIVE, never PASSED.

    FAILED outweighs ERROR outweighs INCONCLUSIVE outweighs BLOCKED. SKIPPED parts do not count;
    only SKIPPED parts make INCONCLUSIVE, since nothing was shown.
    """
    seen = set(statuses)
    for status in _WORST_FIRST:
        if status in seen:
            return status
    return Status.PASSED if Status.PASSED in seen else Status.INCONCLUSIVE


def whole(statuses: Iterable[Status]) -> Status:
    """The status of a whole run: as `combine`, but what was SKIPPED is missing from it.

    A ladder of which a part was not asked for is not proved, however well the other part did.
    """
    seen = list(statuses)
    combined = combine(seen)
    return Status.INCONCLUSIVE if combined is Status.PASSED and Status.SKIPPED in seen else combined


def exit_code(statuses: Iterable[Status]) -> ExitCode:
    """Exit code of a set of statuses: 0 only if something PASSED and nothing did otherwise."""
    return {
        Status.PASSED: ExitCode.PROVED,
        Status.FAILED: ExitCode.DISPROVED,
        Status.ERROR: ExitCode.MACHINERY,
    }.get(combine(statuses), ExitCode.UNPROVED)
