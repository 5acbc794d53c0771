"""A check: one claim with its evidence. The unit of everything that Surefoot says."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from surefoot.model.base import Record
from surefoot.model.status import Status

Value = bool | int | float | str | None
"""What a check expected or found: a scalar as JSON knows it."""


class Evidence(Record):
    """Where a reader sees it for themselves."""

    file: str = Field(min_length=1)
    """Path relative to the run folder."""
    line: int | None = Field(default=None, ge=1)
    """Line in that file, counted from 1, where there is one."""
    text: str = ""
    """The line or value itself, shortened."""


class Check(Record):
    """One claim. A PASSED check without evidence cannot be built."""

    id: str
    """Dotted name, unique in its rung: ``collectives.all_reduce.correct``."""
    claim: str
    """What is claimed, as a sentence that is true when the check passed."""
    status: Status
    expected: Value = None
    actual: Value = None
    unit: str = ""
    evidence: tuple[Evidence, ...] = ()
    derivation: str = ""
    """How the expected value came about, in one line."""
    next_action: str = ""
    """What to do when it did not pass."""
    nodes: tuple[str, ...] = ()
    """Hosts, as the scheduler calls them, that this check shows to be at fault; empty where it speaks of no single
    node. Only a check that FAILED shows that."""

    @model_validator(mode="after")
    def _passed_needs_evidence(self) -> Self:
        if self.status is Status.PASSED and not self.evidence:
            raise ValueError(f"check {self.id!r} says PASSED without evidence")
        return self

    @model_validator(mode="after")
    def _only_failed_blames(self) -> Self:
        if self.nodes and self.status is not Status.FAILED:
            raise ValueError(f"check {self.id!r} says {self.status} and names nodes at fault: {', '.join(self.nodes)}")
        return self

    @model_serializer(mode="wrap")
    def _without_empty_nodes(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What names no node is written as it was before checks could."""
        data: dict[str, Any] = handler(self)
        if not self.nodes:
            data.pop("nodes", None)
        return data
