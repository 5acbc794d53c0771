"""`Judgement.details`, read for drawing. Anything may be missing or of another shape: then it is not drawn.

Nothing here decides anything; a shape that is not understood gives an empty result, which the
report shows as "not measured".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from surefoot.model.run import RungResult
from surefoot.model.verdict import CategoryCount, Verdict
from surefoot.reports.text import number, whole


def by_rung(results: Sequence[RungResult]) -> dict[str, RungResult]:
    """Results by the name of their rung."""
    return {result.rung: result for result in results}


def _details(results: Sequence[RungResult], rung: str) -> dict[str, Any]:
    result = by_rung(results).get(rung)
    return result.judgement.details if result else {}


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list | tuple) else []


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping) and not value:
        return "none"
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


@dataclass(frozen=True)
class CurvePoint:
    """One message size of a sweep. None: not measured."""

    size_bytes: int
    time_us: float | None
    busbw_gb_s: float | None
    algbw_gb_s: float | None


@dataclass(frozen=True)
class Curve:
    """One collective over message sizes, ascending."""

    name: str
    points: tuple[CurvePoint, ...]

    @property
    def floor_us(self) -> float | None:
        """Latency floor: the shortest time at any size."""
        return min((p.time_us for p in self.points if p.time_us is not None), default=None)

    @property
    def peak(self) -> CurvePoint | None:
        """The point of highest bus bandwidth."""
        measured = [p for p in self.points if p.busbw_gb_s is not None]
        return max(measured, key=lambda p: p.busbw_gb_s or 0.0, default=None)

    @property
    def levelled(self) -> bool:
        """True when the last two sizes differ by less than 10 %: the plateau is in sight."""
        last = [p.busbw_gb_s for p in self.points if p.busbw_gb_s is not None][-2:]
        return len(last) == 2 and abs(last[1] - last[0]) < 0.1 * max(last)


def curves(results: Sequence[RungResult]) -> tuple[Curve, ...]:
    """Collectives' curves, in the order they were measured."""
    found = _details(results, "collectives").get("curves")
    if not isinstance(found, Mapping):
        return ()
    drawn = []
    for name, rows in found.items():
        points = [
            CurvePoint(size, *(_positive(row.get(key)) for key in ("time_us", "busbw_gb_s", "algbw_gb_s")))
            for row in _rows(rows)
            if (size := whole(row.get("size_bytes"))) is not None and size > 0
        ]
        if points:
            drawn.append(Curve(str(name), tuple(sorted(points, key=lambda p: p.size_bytes))))
    return tuple(drawn)


def _positive(value: object) -> float | None:
    found = number(value)
    return found if found is not None and found > 0 else None


@dataclass(frozen=True)
class LossPoint:
    """One line of the training log."""

    step: int
    loss: float
    learning_rate: float | None


@dataclass(frozen=True)
class Training:
    """What a fine-tune tells of itself."""

    loss: tuple[LossPoint, ...]
    time_split: tuple[tuple[str, float], ...]
    """Part of the work and its seconds, longest first."""
    trainable: int | None
    total: int | None


def training(results: Sequence[RungResult]) -> Training:
    """The fine-tune's curve, time split and parameter counts."""
    details = _details(results, "finetune")
    points = [
        LossPoint(step, loss, number(row.get("lr")))
        for row in _rows(details.get("loss"))
        if (step := whole(row.get("step"))) is not None and (loss := number(row.get("loss"))) is not None
    ]
    split = details.get("time_split")
    parts = [
        (str(name).removesuffix("_seconds").removesuffix("_s").replace("_", " "), seconds)
        for name, value in (split.items() if isinstance(split, Mapping) else ())
        if (seconds := number(value)) is not None and seconds >= 0
    ]
    return Training(
        loss=tuple(sorted(points, key=lambda p: p.step)),
        time_split=tuple(sorted(parts, key=lambda part: -part[1])),
        trainable=whole(details.get("trainable")),
        total=whole(details.get("total")),
    )


def verdict(results: Sequence[RungResult]) -> Verdict | None:
    """The gate's verdict, where there is one."""
    return next((r.judgement.verdict for r in results if r.judgement.verdict is not None), None)


def categories(results: Sequence[RungResult]) -> tuple[CategoryCount, ...]:
    """Base against adapter for each category: the evaluation's counts, else the verdict's."""
    found = []
    for row in _rows(_details(results, "evaluate").get("categories")):
        try:
            found.append(CategoryCount.model_validate(dict(row)))
        except ValidationError:
            return ()
    given = verdict(results)
    return tuple(found) or (given.categories if given else ())


@dataclass(frozen=True)
class ChangedAnswer:
    """An item that base and adapter answered differently."""

    id: str
    category: str
    prompt: str
    expected: str
    base: str
    adapter: str
    base_outcome: str
    adapter_outcome: str

    @property
    def change(self) -> str:
        """``lost``, ``gained`` or ``changed`` (right in both, or in neither)."""
        right = (self.base_outcome == "correct", self.adapter_outcome == "correct")
        return {(True, False): "lost", (False, True): "gained"}.get(right, "changed")


_CHANGE_ORDER = {"lost": 0, "gained": 1, "changed": 2}


def changed_answers(results: Sequence[RungResult]) -> tuple[ChangedAnswer, ...]:
    """Answers that changed: what was lost first, then what was gained, then the rest."""
    fields = tuple(ChangedAnswer.__dataclass_fields__)
    rows = [
        ChangedAnswer(**{name: _text(row.get(name)) for name in fields})
        for row in _rows(_details(results, "evaluate").get("changed"))
    ]
    return tuple(sorted(rows, key=lambda row: _CHANGE_ORDER[row.change]))


@dataclass(frozen=True)
class Proposal:
    """One thing the review proposes."""

    text: str
    parameter: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Review:
    """What lies before the person who decides."""

    lineage: tuple[tuple[str, str], ...]
    proposals: tuple[Proposal, ...]
    decision: str


def review(results: Sequence[RungResult]) -> Review:
    """Lineage (flattened to dotted names), proposals and decision."""
    details = _details(results, "review")
    proposal = details.get("proposal")
    items = proposal if isinstance(proposal, list | tuple) else [] if proposal is None else [proposal]
    return Review(
        lineage=tuple(_flatten(details.get("lineage"))),
        proposals=tuple(_proposal(item) for item in items),
        decision=_text(details.get("decision")),
    )


def _proposal(item: object) -> Proposal:
    if isinstance(item, Mapping) and "parameter" in item:
        return Proposal(*(_text(item.get(key)) for key in ("why", "parameter", "from", "to")))
    return Proposal(_text(item))


def _flatten(value: object, prefix: str = "") -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        return [(prefix, _text(value))] if prefix else []
    rows = []
    for key, inner in value.items():
        rows += _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return rows


@dataclass(frozen=True)
class NodeFact:
    """One fact of the nodes, and which of them have which value."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """(value, hosts), the value of most nodes first. More than one: the nodes drift apart."""


def node_facts(results: Sequence[RungResult]) -> tuple[tuple[str, ...], tuple[NodeFact, ...]]:
    """(hosts, facts) of the pre-check. Hosts are named by ``host``, ``hostname``, ``node`` or ``name``."""
    rows = _rows(_details(results, "precheck").get("nodes"))
    name_keys = ("host", "hostname", "node", "name")
    key = next((k for k in name_keys if rows and all(k in row for row in rows)), None)
    hosts = tuple(_text(row[key]) if key else f"node {n}" for n, row in enumerate(rows))
    facts: dict[str, dict[str, list[str]]] = {}
    for host, row in zip(hosts, rows, strict=True):
        for name, value in row.items():
            if name != key:
                facts.setdefault(str(name), {}).setdefault(_text(value), []).append(host)
    return hosts, tuple(
        NodeFact(name, tuple((value, tuple(on)) for value, on in sorted(seen.items(), key=lambda kv: -len(kv[1]))))
        for name, seen in facts.items()
    )
