"""Judging: evidence and what was asked → checks → a status. No clock, no cluster, no chance.

Judging a run again, a year later or on another machine, gives the identical result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.engine import package
from surefoot.engine.inputs import changed, differences, only_below
from surefoot.engine.planning import Planner, effective, may_shrink_to
from surefoot.engine.store import Attempt, load_attempt
from surefoot.errors import EvidenceError, RequestError
from surefoot.evidence import EvidenceSet
from surefoot.model.check import Check, Evidence
from surefoot.model.ladder import AnyRung, NodeRungSpec
from surefoot.model.run import Collection, CollectionOutcome, Judgement, Plan, RungResult, RunManifest, Shrunk
from surefoot.model.status import Status, combine
from surefoot.paths import RootPaths, RunPaths
from surefoot.rungs.base import Rung, View, nodes_of
from surefoot.rungs.endings import ending_checks

_DAMAGED = "the evidence was changed after it was collected: run this rung again (--resume RUN)"


@dataclass(frozen=True)
class Judge:
    """Judges one run from what lies in its folder."""

    paths: RunPaths
    manifest: RunManifest
    rungs: Mapping[str, Rung[Any, Any]]

    def run(self, skipped: frozenset[str] = frozenset()) -> dict[str, RungResult]:
        """Every rung, in ladder order. `skipped`: rungs that were asked not to run."""
        results: dict[str, RungResult] = {}
        evidence: dict[str, EvidenceSet] = {}
        for spec in self.manifest.inputs.ladder.rungs:
            rung = self.rungs[spec.rung]
            attempts = self.paths.rung(spec.rung).attempts()
            unmet = unmet_needs(spec, results)
            if not attempts and spec.rung in skipped:
                result = without_evidence(rung, spec, Status.SKIPPED, "asked not to run")
            elif unmet:
                result = blocked(rung, spec, unmet)
            elif not attempts:
                result = without_evidence(rung, spec, Status.INCONCLUSIVE, "no evidence was ever collected")
            else:
                result = self.attempt(spec, attempts[-1], evidence)
            results[spec.rung] = result
        return results

    def attempt(self, spec: AnyRung, number: int, evidence: dict[str, EvidenceSet]) -> RungResult:
        """One attempt. Its evidence is added to `evidence`, for the rungs above, when it PASSED."""
        rung = self.rungs[spec.rung]
        try:
            attempt = load_attempt(self.paths, rung.name, number)
        except EvidenceError as error:
            reason = f"attempt {number} cannot be read: {error}"
            return without_evidence(rung, spec, Status.INCONCLUSIVE, reason, attempt=number)
        needs = only_below(self.manifest.inputs.ladder, spec.rung, evidence)
        status, judgement, reason = self._judge(spec, attempt, needs)
        if status is Status.PASSED:
            evidence[rung.name] = attempt.evidence
        collection = attempt.collection
        return RungResult(
            rung=rung.name,
            title=rung.title,
            proves=rung.proves,
            status=status,
            reason=reason,
            attempt=number,
            needs=spec.needs,
            started_at=collection.started_at if collection else None,
            ended_at=collection.ended_at if collection else None,
            judgement=judgement,
        )

    def _judge(
        self, spec: AnyRung, attempt: Attempt, needs: Mapping[str, EvidenceSet]
    ) -> tuple[Status, Judgement, str]:
        collection, evidence = attempt.collection, attempt.evidence
        if collection is None:
            reason = "collecting never ended (killed, or still going on): resume the run"
            return Status.INCONCLUSIVE, Judgement(), reason
        if collection.outcome is CollectionOutcome.ABORTED:
            return Status.INCONCLUSIVE, Judgement(), f"ABORTED: {collection.error}"
        planner = Planner(self.manifest, RootPaths(Path(self.manifest.inputs.cluster.root)), self.rungs)
        checks = [_belongs(planner, spec, attempt, needs), _intact(attempt, collection)]
        if any(check.status is not Status.PASSED for check in checks):
            return _conclude(checks, Judgement())  # what damaged evidence says is beside the point
        if evidence.plan.shrunk is not None:
            checks.append(_on_fewer_nodes(planner, spec, evidence, evidence.plan.shrunk))
        if collection.outcome is CollectionOutcome.BROKEN:
            checks.append(_broken(collection, evidence))
        own = Judgement()
        try:
            checks += ending_checks(evidence)
            if collection.outcome is CollectionOutcome.COMPLETE:
                asked = effective(spec, evidence.plan.shrunk)
                view = View(evidence=evidence, inputs=self.manifest.inputs, spec=asked, needs=needs)
                rung = self.rungs[spec.rung]
                own = rung.judge(rung.read(view), view)
                if evidence.plan.shrunk is not None:
                    where = f"on {evidence.plan.shrunk.nodes} of {_asked_nodes(planner, spec)} nodes"
                    own = own.model_copy(update={"summary": f"{where}: {own.summary}"})
        except EvidenceError as error:
            checks.append(unreadable(error, evidence))
        except Exception as error:  # noqa: BLE001 - whatever a damaged file does to a parser, it is no pass and no crash
            checks.append(_our_fault(error))
        return _conclude(checks, own)


def _conclude(checks: list[Check], own: Judgement) -> tuple[Status, Judgement, str]:
    """Status, judgement and reason from the checks that every rung has and the rung's own."""
    everything = (*checks, *own.checks)
    status = combine(check.status for check in everything)
    reason = ""
    if status is Status.PASSED and not own.checks:
        status, reason = Status.INCONCLUSIVE, "the rung made no check of its own"
    elif status is not Status.PASSED:
        reason = next(f"{c.claim}: {c.actual or c.status}" for c in everything if c.status is status)
    return status, own.model_copy(update={"checks": everything}), reason


OTHER_CODE = "same inputs; collected by other code than judges it, so what it asked in detail is not compared"


def _belongs(planner: Planner, spec: AnyRung, attempt: Attempt, needs: Mapping[str, EvidenceSet]) -> Check:
    """The attempt is one of this run, and it asked what the run's inputs ask today.

    Planning is pure, so it is done again, with the attempt's nonce. Only where the evidence was
    collected by other code (whose plans may look different) are digests of the inputs all there is
    to compare.
    """
    plan, manifest = attempt.evidence.plan, planner.manifest
    other_code = manifest.inputs.code_digest != package.code_digest()
    try:
        again = planner.plan(spec, attempt.number, needs, plan.nonce, plan.shrunk)
    except (EvidenceError, RequestError, KeyError) as error:
        problems = [f"cannot be planned again: {error}"]
    else:
        problems = [f"{name} changed" for name in changed(plan.inputs, again.inputs)]
        compared = {"run_id", "rung", "attempt"} if other_code else {"run_id", "rung", "attempt", "steps", "expect"}
        before, now = (p.model_dump(mode="json", include=compared) for p in (plan, again))
        problems += [] if problems else differences(before, now)
        problems += _shrunk_too_far(planner, spec, plan)
    return Check(
        id="evidence.belongs",
        claim="the evidence was collected for this run, this rung and these inputs",
        status=Status.INCONCLUSIVE if problems else Status.PASSED,
        expected="as these inputs ask",
        actual="; ".join(problems[:5]) or ("as these inputs ask" if not other_code else OTHER_CODE),
        evidence=(attempt.evidence.ref("plan.json"),) if "plan.json" in attempt.evidence else (),
        next_action="run this rung again with today's inputs: --resume RUN" if problems else "",
    )


def _asked_nodes(planner: Planner, spec: AnyRung) -> int:
    """Nodes that the ladder asks for."""
    return nodes_of(planner.manifest.inputs.cluster, spec) if isinstance(spec, NodeRungSpec) else 1


def _shrunk_too_far(planner: Planner, spec: AnyRung, plan: Plan) -> list[str]:
    """An attempt on fewer nodes than the ladder allows is evidence of something else."""
    asked = _asked_nodes(planner, spec)
    if plan.shrunk is None or may_shrink_to(spec, asked, plan.shrunk.nodes):
        return []
    return [f"it ran on {plan.shrunk.nodes} nodes; the ladder asks for {asked}, and allows no so few (pending)"]


def _on_fewer_nodes(planner: Planner, spec: AnyRung, evidence: EvidenceSet, shrunk: Shrunk) -> Check:
    """Said with every result of such an attempt: what it proves, it proves of these nodes."""
    asked = _asked_nodes(planner, spec)
    assert isinstance(spec, NodeRungSpec)
    assert spec.pending is not None
    return Check(
        id="evidence.nodes",
        claim="it ran on as few nodes as the ladder allows, and no fewer",
        status=Status.PASSED,
        expected=f"{asked} nodes, or at least {spec.pending.min_nodes} where they are not to be had",
        actual=f"{shrunk.nodes} of {asked} nodes: the others are not proved",
        evidence=(evidence.ref("plan.json", text=f"shrunk to {shrunk.nodes} nodes"),),
        derivation=shrunk.reason,
    )


def _intact(attempt: Attempt, collection: Collection) -> Check:
    """Every sealed file is as it was sealed, and there is no other."""
    evidence = attempt.evidence
    problems = list(attempt.strange.items())
    for name, sealed in sorted(collection.files.items()):
        if name not in evidence:
            problems.append((name, "missing"))
            continue
        try:
            blob = evidence.blob(name)
            same = blob.size == sealed.size_bytes and blob.sha256 == sealed.sha256
        except EvidenceError as error:
            problems.append((name, error.problem))
            continue
        if not same:
            problems.append((name, "not as it was sealed"))
    problems += [(name, "not there when it was sealed") for name in sorted(set(evidence.files) - set(collection.files))]
    if "plan.json" not in collection.files:
        problems.append(("plan.json", "not sealed"))
    where = f"{evidence.prefix}/collection.json" if evidence.prefix else "collection.json"
    return Check(
        id="evidence.intact",
        claim="the evidence is as it was when collecting ended",
        status=Status.INCONCLUSIVE if problems else Status.PASSED,
        expected=f"{len(collection.files)} files as sealed",
        actual="; ".join(f"{name}: {what}" for name, what in problems[:5])
        or f"{len(collection.files)} files as sealed",
        evidence=(Evidence(file=where),),
        next_action=_DAMAGED if problems else "",
    )


def _broken(collection: Collection, evidence: EvidenceSet) -> Check:
    where = f"{evidence.prefix}/collection.json" if evidence.prefix else "collection.json"
    return Check(
        id="evidence.collected",
        claim="the machinery that collects evidence works",
        status=Status.ERROR,
        actual=collection.error.splitlines()[0] if collection.error else "it broke",
        evidence=(Evidence(file=where, text=collection.error[:300]),),
        next_action="mend what it names, then resume the run: what PASSED is not run again",
    )


def unreadable(error: EvidenceError, evidence: EvidenceSet) -> Check:
    """What stands in a result in place of what cannot be read."""
    refs = (evidence.ref(error.file, line=error.line, text=error.text),) if error.file in evidence else ()
    return Check(
        id="evidence.readable",
        claim="the evidence is complete and can be read",
        status=Status.INCONCLUSIVE,
        actual=str(error),
        evidence=refs,
        next_action="see that file and the job's .out file beside it; then run this rung again (--resume RUN)",
    )


def _our_fault(error: Exception) -> Check:
    return Check(
        id="evidence.readable",
        claim="the evidence is complete and can be read",
        status=Status.ERROR,
        actual=f"judging failed: {type(error).__name__}: {error}"[:400],
        next_action="this is a fault of Surefoot's: report it together with the run folder",
    )


def unmet_needs(spec: AnyRung, results: Mapping[str, RungResult]) -> list[str]:
    """Needs that have not PASSED, each with its status."""
    return [
        f"{need} is {results[need].status if need in results else 'not run'}"
        for need in spec.needs
        if need not in results or results[need].status is not Status.PASSED
    ]


def blocked(rung: Rung[Any, Any], spec: AnyRung, unmet: list[str]) -> RungResult:
    """The result of a rung whose needs did not pass."""
    return without_evidence(rung, spec, Status.BLOCKED, "; ".join(unmet))


def without_evidence(
    rung: Rung[Any, Any], spec: AnyRung, status: Status, reason: str, *, attempt: int | None = None
) -> RungResult:
    """A result that says why there is nothing to judge."""
    return RungResult(
        rung=rung.name,
        title=rung.title,
        proves=rung.proves,
        status=status,
        reason=reason,
        attempt=attempt,
        needs=spec.needs,
    )
