"""A gate's verdict: GO, NO_GO or INCONCLUSIVE, with a reason for every rule."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from surefoot.model.base import Record
from surefoot.model.check import Value
from surefoot.model.status import Status


class Decision(StrEnum):
    """What the gate says."""

    GO = "GO"
    NO_GO = "NO_GO"
    INCONCLUSIVE = "INCONCLUSIVE"


class Reason(Record):
    """One rule and how it came out."""

    rule: str
    status: Status
    """PASSED, FAILED or INCONCLUSIVE."""
    threshold: Value = None
    actual: Value = None
    unit: str = ""
    explanation: str
    """In words, with the figures."""


class CategoryCount(Record):
    """Base against adapter in one category, on the same items."""

    category: str
    items: int = Field(ge=0)
    base_correct: int = Field(ge=0)
    adapter_correct: int = Field(ge=0)
    base_lenient: float = Field(ge=0)
    """Sum of lenient scores."""
    adapter_lenient: float = Field(ge=0)
    gained: int = Field(ge=0)
    """Wrong with the base, right with the adapter."""
    lost: int = Field(ge=0)


class Verdict(Record):
    """What the gate says of a candidate, and why."""

    decision: Decision
    reasons: tuple[Reason, ...]
    categories: tuple[CategoryCount, ...]
    explanation: str
    """What kind of win or loss this is, in words."""
    warnings: tuple[str, ...] = ()
    """What the policy's rules do not see (a category that got worse). They decide nothing."""
    requires_human_review: bool
    policy_digest: str
    base_digest: str = ""
    adapter_digest: str = ""
