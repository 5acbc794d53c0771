"""Evaluate: base and adapter answer the identical held-out prompts, and every answer is accounted for.

What the program recorded is taken as raw material: ids, prompts, digests and scores are compared
and computed again here. `docs/rungs/evaluate.md` is for people.
"""

from __future__ import annotations

from typing import Any, ClassVar

from surefoot.evaluation.records import PROGRAM
from surefoot.model.ladder import Evaluate
from surefoot.model.measurement import Fingerprint
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.cache import staged_assets
from surefoot.rungs.evaluate_checks import all_checks
from surefoot.rungs.evaluate_evidence import JOB, EvaluateFacts, need, read_evidence
from surefoot.rungs.evaluate_view import fingerprint_facts, measurements, report_details, summary
from surefoot.rungs.finetune import adapter_of
from surefoot.rungs.threads import cpus_per_rank

NEAR_TIE = {"float32": 0.0, "bfloat16": 2 * 8 * 2.0**-9}
"""Dtype → relative distance of the two best logits up to which they count as tied: each of the two may be
off by eight roundings of bfloat16, which are 2⁻⁹ of the value each. An allowance, not a bound."""
LEAST_SAMPLE = 8
"""Items below which no answer may differ: one of four is a quarter of nothing much."""


class EvaluateRung(Rung[Evaluate, EvaluateFacts]):
    """Base against adapter on the same prompts."""

    name: ClassVar[str] = "evaluate"
    title: ClassVar[str] = "Evaluation"
    proves: ClassVar[str] = (
        "Base and adapter answered the identical held-out prompts, every answer is accounted for, "
        "and its score follows from its words."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package", "recipe")

    def plan(self, context: PlanContext[Evaluate]) -> Asked:
        """One job; the prompts are split over its ranks."""
        assets = staged_assets(need(context.needs, "cache"))
        adapter = adapter_of(need(context.needs, "finetune"))
        recipe, spec = context.inputs.recipe, context.spec
        where = layout(context.cluster, spec)
        dtype = recipe.dtype if where.device == "cuda" else "float32"
        rows = assets.evaluate.rows or 0
        request = {
            "base": assets.base.path,
            "adapter": adapter.path,
            "tasks": assets.evaluate.path,
            "prompt_set": assets.evaluate.source,
            "device": where.device,
            "dtype": dtype,
            "batch_size": spec.batch_size,
            "batch1_sample": spec.batch1_sample,
            "seed": recipe.seed,
            "max_new_tokens": recipe.max_new_tokens,
        }
        allowed, why = allowed_differences(dtype, min(spec.batch1_sample, rows))
        expect = {
            "base_digest": assets.base.digest,
            "adapter_digest": adapter.digest,
            "tasks_digest": assets.evaluate.digest,
            "tasks": rows,
            "device": where.device,
            "dtype": dtype,
            "batch_size": spec.batch_size,
            "batch1_sample": spec.batch1_sample,
            "seed": recipe.seed,
            "max_new_tokens": recipe.max_new_tokens,
            "batch1_allowed_differences": allowed,
            "batch1_derivation": why,
            "near_tie": NEAR_TIE[dtype],
        }
        job = context.job(JOB, PROGRAM, request, where, cpus_per_rank=cpus_per_rank(context.cluster, where))
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> EvaluateFacts:
        """Answer files of all ranks, merged, and each rank's report. Raises EvidenceError."""
        return read_evidence(view.evidence)

    def judge(self, facts: EvaluateFacts, view: View) -> Judgement:
        """Every claim, computed again from the raw answers."""
        checks = all_checks(facts, view)
        fingerprint = Fingerprint(facts=fingerprint_facts(facts))
        return Judgement(
            checks=tuple(checks),
            measurements=measurements(facts, fingerprint.content_digest()),
            fingerprint=fingerprint,
            summary=summary(facts),
            details=report_details(facts),
        )


def allowed_differences(dtype: str, sample: int) -> tuple[int, str]:
    """How many answers of the sample may differ between batched and alone, and why.

    float32 is exact enough that greedy decoding does not depend on the batch. bfloat16 has 8
    significant bits: two logits closer than that tie, and a kernel for another shape breaks the tie
    the other way. Each answer that differs must show such a tie. A padding fault, which this check is
    there to find, changes most answers, tied or not: so the share is limited too, and a sample in
    which a share means little allows none.
    """
    if dtype == "float32":
        return 0, "float32: batching must change nothing"
    if sample < LEAST_SAMPLE:
        return 0, f"{dtype}, but {sample} items are too few to tell a near-tie from a fault ({LEAST_SAMPLE} are not)"
    return sample // 4, (
        f"{dtype}: near-ties may fall the other way, at most a quarter of {sample}, each shown by two best logits "
        f"within {NEAR_TIE[dtype]:.3g} of each other (2 logits × 8 roundings × 2⁻⁹)"
    )


RUNG: Rung[Any, Any] = EvaluateRung()
