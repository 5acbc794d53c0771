"""What a rung's evidence depends on, as digests, and words for what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from surefoot.engine.selection import below
from surefoot.evidence import EvidenceSet
from surefoot.model.base import digest_of
from surefoot.model.ladder import Ladder, RungSpec
from surefoot.model.run import RunInputs
from surefoot.rungs.base import Rung

EVIDENCE_OF = "evidence of "
"""Prefix of the inputs that are another rung's evidence; their digest is that attempt's nonce."""


def only_below(ladder: Ladder, rung: str, evidence: Mapping[str, EvidenceSet]) -> dict[str, EvidenceSet]:
    """The evidence that a rung may look at: that of the rungs it builds on."""
    allowed = below(ladder, (rung,))
    return {name: found for name, found in evidence.items() if name in allowed}


class RecordedNeeds(Mapping[str, EvidenceSet]):
    """Evidence of the rungs below, remembering which of it a plan looked at."""

    def __init__(self, evidence: Mapping[str, EvidenceSet]) -> None:
        self._evidence = evidence
        self.used: set[str] = set()

    def __getitem__(self, rung: str) -> EvidenceSet:
        found = self._evidence[rung]
        self.used.add(rung)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._evidence)

    def __len__(self) -> int:
        return len(self._evidence)


def configuration_digests(rung: Rung[Any, Any], spec: RungSpec, inputs: RunInputs) -> dict[str, str]:
    """Name → digest of the configuration that this rung's evidence depends on."""
    known: dict[str, Callable[[], str]] = {
        "cluster": inputs.cluster.evidence_digest,
        "ansible": lambda: inputs.ansible_digest,
        "recipe": inputs.recipe.content_digest,
        "package": lambda: inputs.code_digest,
        "sources": lambda: digest_of(inputs.source_digests),
        "configuration": lambda: inputs.configuration_digest,
    }
    return {"rung": spec.evidence_digest(), **{name: known[name]() for name in rung.uses}}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names whose digests differ, or that stand on one side only."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Each leaf that differs between two JSON values, as ``path: old → new``."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for key in sorted({*before, *now}):
            found += differences(before.get(key), now.get(key), f"{where}.{key}" if where else str(key))
        return found
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    return [] if before == now else [f"{where}: {before!r} → {now!r}"]
