"""summary.json: a run for programs. Its schema stands in docs/report.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from surefoot.model.check import Check
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status, exit_code, whole
from surefoot.reports.details import verdict
from surefoot.reports.figures import key_figures, rung_order, span

SCHEMA = "surefoot.summary/1"


def summary(manifest: RunManifest, results: Sequence[RungResult], overall: Status | None = None) -> dict[str, Any]:
    """The run as JSON data. `overall` defaults to the combined statuses of `results`.

    A figure that was not measured is absent, a time that is not known is null.
    """
    status = overall or whole(result.status for result in results)
    when = span(results)
    gate = verdict(results)
    inputs = manifest.inputs
    return {
        "schema": SCHEMA,
        "run_id": manifest.run_id,
        "status": status.value,
        "exit_code": int(exit_code([status])),
        "created_at": manifest.created_at,
        "started_at": when.started_at,
        "ended_at": when.ended_at,
        "duration_s": when.seconds,
        "surefoot_version": manifest.surefoot_version,
        "code_digest": inputs.code_digest,
        "cluster": inputs.cluster.name,
        "ladder": inputs.ladder.name,
        "recipe": inputs.recipe.name,
        "policy": inputs.policy.name,
        "decision": gate.decision.value if gate else None,
        "counts": {s.value: sum(r.status is s for r in results) for s in Status},
        "left_out": list(inputs.left_out),
        "rungs": [_rung(name, result) for name, result in rung_order(manifest, results)],
        "figures": [
            {"name": f.name, "value": f.value, "unit": f.unit, "rung": f.rung} for f in key_figures(results)
        ],
    }  # fmt: skip


def _rung(name: str, result: RungResult | None) -> dict[str, Any]:
    if result is None:
        return {"rung": name, "status": None}
    checks = result.judgement.checks
    return {
        "rung": name,
        "status": result.status.value,
        "reason": result.reason,
        "summary": result.judgement.summary,
        "attempt": result.attempt,
        "started_at": result.started_at,
        "duration_s": result.duration_s,
        "checks": dict(Counter(check.status.value for check in checks)),
        "not_passed": [_check(check) for check in checks if check.status is not Status.PASSED],
    }


def _check(check: Check) -> dict[str, Any]:
    return check.canonical()
