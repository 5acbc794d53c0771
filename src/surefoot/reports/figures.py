"""The few figures of a run that a reader wants first: for the page's head and for summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status
from surefoot.reports import details
from surefoot.reports.text import figure, microseconds, rate
from surefoot.units import format_size


@dataclass(frozen=True)
class KeyFigure:
    """One figure: for programs (`name`, `value`, `unit`) and for people (`label`, `shown`, `note`)."""

    name: str
    value: float | int | str | None
    unit: str
    rung: str
    label: str = ""
    """Empty: for programs only."""
    shown: str = ""
    note: str = ""


def key_figures(results: Sequence[RungResult]) -> tuple[KeyFigure, ...]:
    """What the run measured, in the order of importance. What was not measured is absent."""
    return (*_quality(results), *_training(results), *_network(results))


def _quality(results: Sequence[RungResult]) -> list[KeyFigure]:
    found = []
    verdict = details.verdict(results)
    if verdict is not None:
        note = "a person decides" if verdict.requires_human_review else ""
        decision = verdict.decision.value
        found.append(KeyFigure("gate.decision", decision, "", "gate", "Gate", decision.replace("_", "-"), note))
    counts = details.categories(results)
    items = sum(c.items for c in counts)
    if items:
        base = sum(c.base_correct for c in counts)
        adapter = sum(c.adapter_correct for c in counts)
        shown = f"{base / items:.2f} → {adapter / items:.2f}"
        found += [
            KeyFigure("accuracy.adapter", adapter / items, "share", "evaluate", "Accuracy, base → adapter", shown,
                      f"{base} → {adapter} of {items} held-out tasks"),
            KeyFigure("accuracy.base", base / items, "share", "evaluate"),
            KeyFigure("accuracy.items", items, "items", "evaluate"),
        ]  # fmt: skip
    return found


def _training(results: Sequence[RungResult]) -> list[KeyFigure]:
    loss = details.training(results).loss
    if not loss:
        return []
    shown = f"{figure(loss[0].loss, 2)} → {figure(loss[-1].loss, 2)}"
    return [
        KeyFigure(
            "loss.last",
            loss[-1].loss,
            "",
            "finetune",
            "Training loss, first → last step",
            shown,
            f"{loss[-1].step:,} steps",
        ),
        KeyFigure("loss.first", loss[0].loss, "", "finetune"),
        KeyFigure("steps", loss[-1].step, "steps", "finetune"),
    ]


def _network(results: Sequence[RungResult]) -> list[KeyFigure]:
    found = []
    for place, curve in enumerate(details.curves(results)):
        # Only the first collective is for the head of the page; programs get all of them.
        if curve.peak is not None:
            label = f"{curve.name} bus bandwidth" if place == 0 else ""
            note = f"highest, at {format_size(curve.peak.size_bytes)}"
            if curve.floor_us is not None:
                note += f"; floor {microseconds(curve.floor_us)}"
            found.append(
                KeyFigure(f"{curve.name}.busbw_peak", curve.peak.busbw_gb_s, "GB/s", "collectives", label,
                          rate(curve.peak.busbw_gb_s), note)
            )  # fmt: skip
        if curve.floor_us is not None:
            found.append(KeyFigure(f"{curve.name}.latency_floor", curve.floor_us, "us", "collectives"))
    return found


@dataclass(frozen=True)
class Span:
    """When the evidence of a run was collected."""

    started_at: float | None
    ended_at: float | None

    @property
    def seconds(self) -> float | None:
        """From the first rung's start to the last rung's end, pauses before a resume included."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at


def span(results: Sequence[RungResult]) -> Span:
    """From the first start to the last end; None where no rung has one."""
    return Span(
        min((r.started_at for r in results if r.started_at is not None), default=None),
        max((r.ended_at for r in results if r.ended_at is not None), default=None),
    )


def rung_order(manifest: RunManifest, results: Sequence[RungResult]) -> tuple[tuple[str, RungResult | None], ...]:
    """Every rung of the ladder with its result (None: there is none), then results of rungs it doesn't have."""
    given = details.by_rung(results)
    names = manifest.inputs.ladder.names
    others = tuple(r.rung for r in results if r.rung not in names)
    return tuple((name, given.get(name)) for name in (*names, *others))


def headline(manifest: RunManifest, results: Sequence[RungResult]) -> str:
    """``14 of 14 rungs proved``, and what became of the others."""
    rows = rung_order(manifest, results)
    counts = {status: sum(r is not None and r.status is status for _, r in rows) for status in Status}
    parts = [f"{counts[Status.PASSED]} of {len(rows)} rungs proved"]
    others = ("FAILED", "ERROR", "INCONCLUSIVE", "BLOCKED", "SKIPPED")
    parts += [f"{counts[Status(name)]} {name.lower()}" for name in others if counts[Status(name)]]
    absent = sum(result is None for _, result in rows)
    if absent:
        parts.append(f"{absent} without a result")
    return ", ".join(parts)
