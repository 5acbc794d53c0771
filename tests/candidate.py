"""A whole candidate in memory: staged, trained, evaluated and gated evidence whose digests chain."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import recorded
from answer_sets import SEED_POLICY, answer_set
from evaluation_files import evaluate_view, gate_view
from staged_run import cached
from surefoot.benchmarks.device import Device
from surefoot.evaluation.scorers import score_text
from surefoot.evidence import Blob, EvidenceSet
from surefoot.files import tree_digest
from surefoot.model.base import Record
from surefoot.model.job import JobSpec
from surefoot.model.ladder import Review
from surefoot.model.run import JobsStep, Plan
from surefoot.model.score import Answer, Task
from surefoot.rungs.base import View
from surefoot.rungs.cache import staged_assets
from surefoot.training.assets import StagedAssets
from surefoot.training.tasks import parse_tasks
from surefoot.training.train_log import TimeSplit, TrainHeader, TrainReport, TrainStep, TrainTotals
from trained_run import CPU

STEPS = 90
ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
NO_TIME = TimeSplit(data_s=0, forward_s=0.1, backward_s=0.1, optimiser_s=0)


def _answer(task: Task, text: str) -> Answer:
    scored = score_text(task.scorer, task.answer, text, truncated=False)
    digest = hashlib.sha256(task.prompt.encode()).hexdigest()
    return Answer(
        id=task.id, category=task.category, prompt_digest=digest, expected=task.answer, answer=text,
        outcome=scored.outcome, strict=scored.strict, lenient=scored.lenient, latency_s=0.02, new_tokens=5,
        scorer=task.scorer,
    )  # fmt: skip


def _steps(losses: list[float]) -> list[TrainStep]:
    return [
        TrainStep(
            step=i, epoch=1, loss=loss, learning_rate=1e-3, grad_norm=1.0, samples=8, tokens=400, target_tokens=40,
            tokens_per_s=4000.0, seconds=0.1, time=NO_TIME,
        )
        for i, loss in enumerate(losses, 1)
    ]  # fmt: skip


def finetuned(staged: StagedAssets, recipe_digest: str, losses: list[float]) -> EvidenceSet:
    """Evidence of a fine-tune by two ranks, as far as a review reads it."""
    job = JobSpec(
        name="finetune", argv=("python", "-m", "surefoot.training.train"), folder="/share/finetune", ranks_per_node=2,
        env={"SUREFOOT_CODE": "ab" * 32, "PYTHONPATH": "/share/src"},
    )  # fmt: skip
    plan = Plan(
        run_id=recorded.RUN, rung="finetune", attempt=1, nonce="nonce-tune", steps=(JobsStep(jobs=(job,)),),
        inputs={"package": "ab" * 32},
    )  # fmt: skip
    header = TrainHeader(
        run=recorded.RUN, nonce="nonce-tune", recipe_digest=recipe_digest, world_size=2, micro_batch_size=4,
        accumulation=1, global_batch_size=8, rows=240, epochs=3, steps=len(losses), seed=0, device="cpu",
        compute_dtype="float32",
    )  # fmt: skip
    totals = TrainTotals(steps=len(losses), samples=720, tokens=36000, target_tokens=3600, seconds=9.5, time=NO_TIME)
    lines: list[Record] = [header, *_steps(losses), totals]
    log = "".join(line.model_dump_json() + "\n" for line in lines).encode()
    digest = tree_digest({name: hashlib.sha256(data).hexdigest() for name, data in ADAPTER.items()})
    reports = [
        TrainReport(
            device=Device.model_validate(CPU), seed=0, steps=len(losses), samples=360,
            tokens=18000, target_tokens=1800, first_loss=losses[0], last_loss=losses[-1], trainable_parameters=9000,
            total_parameters=388000, base_digest=staged.base.digest, data_digest=staged.train.digest,
            adapter_digest=digest, parameter_digest="p", lora_b_norm=1.0, samples_sha256="s",
            log_sha256=hashlib.sha256(log).hexdigest() if rank == 0 else "", versions={},
        ).canonical()
        for rank in range(2)
    ]  # fmt: skip
    files = recorded.job_files(plan, job, reports)
    files |= {"raw/finetune/train.jsonl": log, "plan.json": plan.model_dump_json().encode()}
    files |= {f"raw/finetune/adapter/{name}": data for name, data in ADAPTER.items()}
    return as_evidence(plan, files)


def as_evidence(plan: Plan, files: dict[str, bytes]) -> EvidenceSet:
    """Files as the evidence of a first attempt."""
    blobs = {name: Blob(name=name, data=data) for name, data in files.items()}
    return EvidenceSet(plan=plan, files=blobs, prefix=f"rungs/{plan.rung}/attempt-001")


def falling(steps: int = STEPS) -> list[float]:
    """A loss curve that has settled: exponential decay to a floor, with a deterministic ripple."""
    return [0.05 + 2.3 * math.exp(-i / 12) + 0.01 * ((i * 7) % 5 - 2) for i in range(steps)]


def review_view(root: Path, losses: list[float] | None = None, wrong: frozenset[int] = frozenset()) -> View:
    """What the review sees of the demonstration. `wrong`: positions that the adapter answers wrong."""
    cache = cached(root)
    cache.files["plan.json"] = cache.plan.model_dump_json().encode()
    staged = staged_assets(cache.evidence())
    text = (Path(staged.evaluate.path) / "tasks.jsonl").read_text()
    tasks = parse_tasks(text)
    base = answer_set("base", [_answer(t, f"It is {t.answer}." if t.scorer == "exact" else t.answer) for t in tasks])
    adapter = answer_set("adapter", [_answer(t, "no" if i in wrong else t.answer) for i, t in enumerate(tasks)])
    recipe = cache.inputs.recipe
    tuned = finetuned(staged, recipe.content_digest(), losses or falling())
    digest = tree_digest({name: hashlib.sha256(data).hexdigest() for name, data in ADAPTER.items()})
    base = base.model_copy(update={"header": base.header.model_copy(update={"model_digest": staged.base.digest})})
    adapter = adapter.model_copy(update={"header": adapter.header.model_copy(update={"model_digest": digest})})
    evaluated = evaluate_view(base, adapter, text)
    plan = evaluated.plan.model_copy(update={"inputs": {"package": "ab" * 32}})
    evaluated = replace(evaluated, evidence=replace(evaluated.evidence, plan=plan))
    gated = gate_view(evaluated)
    needs = {
        "cache": cache.evidence(), "finetune": tuned, "evaluate": evaluated.evidence, "gate": gated.evidence,
    }  # fmt: skip
    expect: dict[str, Any] = {"attempts": dict.fromkeys(needs, 1)}
    plan = Plan(run_id=recorded.RUN, rung="review", attempt=1, nonce="nonce-review", expect=expect)
    evidence = as_evidence(plan, {"plan.json": plan.model_dump_json().encode()})
    inputs = cache.inputs.model_copy(update={"policy": SEED_POLICY})
    return View(evidence=evidence, inputs=inputs, spec=Review(rung="review"), needs=needs)
