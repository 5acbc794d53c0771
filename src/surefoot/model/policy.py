"""A gate's policy: thresholds as data. The seed system's four rules, and the flag for a human."""

from __future__ import annotations

from pydantic import Field

from surefoot.model.base import Record


class Policy(Record):
    """Rules that an adapter must meet. Every rule is judged; a rule without evidence is INCONCLUSIVE."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    description: str = ""
    min_machine_accuracy: float = Field(ge=0, le=1)
    """Floor of the adapter's strict accuracy over all items (share, higher is better)."""
    max_empty_outputs: int = Field(ge=0)
    """Most empty answers of the adapter (count, lower is better)."""
    max_adapter_avg_latency_seconds: float = Field(gt=0)
    """Ceiling of the adapter's mean latency per item (seconds, lower is better)."""
    max_accuracy_regression_vs_base: float = Field(ge=0, le=1)
    """Most that base accuracy may exceed adapter accuracy (share, lower is better)."""
    requires_human_review: bool = True
    """A GO is a proposal to a person, not a promotion."""
