"""Fine-tune: a LoRA fine-tune of the recipe's base model learns, on all ranks alike.

What the trainer says is compared with what can be computed again: order of rows, learning rates,
sums, digests, the adapter's own tensors. `docs/rungs/finetune.md` is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from surefoot.errors import EvidenceError
from surefoot.evidence import EvidenceSet, parse_record
from surefoot.files import tree_digest
from surefoot.model.base import Record
from surefoot.model.job import JobDone
from surefoot.model.ladder import Finetune as FinetuneSpec
from surefoot.model.measurement import Fingerprint, Measurement
from surefoot.model.run import JobsStep, Judgement
from surefoot.rungs import finetune_checks
from surefoot.rungs.base import Asked, PlanContext, Rung, View, layout
from surefoot.rungs.cache import staged_assets
from surefoot.rungs.finetune_facts import (
    ADAPTER,
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    BASE,
    JOB,
    LOG,
    FinetuneFacts,
    RankTrain,
    TrainLog,
)
from surefoot.rungs.found_network import asked, network_checks, network_details
from surefoot.rungs.judging import said
from surefoot.rungs.threads import cpus_per_rank
from surefoot.training.assets import StagedAssets
from surefoot.training.sharding import plan_batches, steps_per_epoch
from surefoot.training.tensors import read_tensors
from surefoot.training.train_log import SampleStep, TrainHeader, TrainStep, TrainTotals, samples_file

LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
"""How configurations of transformers models name their number of layers."""
MEET_S = 600.0
"""Longest wait of a rank for the others, to begin or in a step; half the job's time limit where that is less.
Every rank has loaded its model before, so that this covers the difference between them only."""


class AdapterRef(Record):
    """An adapter that a fine-tune has made."""

    path: str
    """Absolute folder on shared storage, in PEFT's format."""
    digest: str
    """Tree digest of the folder, computed from the evidence's bytes."""


def adapter_files(evidence: EvidenceSet) -> dict[str, str]:
    """File in the adapter's folder → sha256, computed now. Raises EvidenceError when there is none."""
    files = {blob.name.removeprefix(f"{ADAPTER}/"): blob.sha256 for blob in evidence.under(ADAPTER)}
    if not files:
        raise EvidenceError("missing: the job left no adapter", file=ADAPTER)
    return files


def adapter_of(evidence: EvidenceSet) -> AdapterRef:
    """The adapter of a fine-tune that PASSED: for the plans of rungs above. Raises EvidenceError."""
    folder = evidence.job(JOB).folder
    return AdapterRef(path=f"{folder}/{ADAPTER.rsplit('/', 1)[-1]}", digest=tree_digest(adapter_files(evidence)))


def _staged(needs: Mapping[str, EvidenceSet]) -> StagedAssets:
    if "cache" not in needs:
        raise EvidenceError(
            "no evidence: the rung 'cache' must stand below this one and have PASSED", file="rungs/cache"
        )
    return staged_assets(needs["cache"])


class FinetuneRung(Rung[FinetuneSpec, FinetuneFacts]):
    """One training job on all ranks."""

    name: ClassVar[str] = "finetune"
    title: ClassVar[str] = "Fine-tune"
    proves: ClassVar[str] = (
        "A LoRA fine-tune saw every row once an epoch, its loss fell, and all ranks ended with the adapter "
        "that lies on storage."
    )
    uses: ClassVar[tuple[str, ...]] = ("cluster", "package", "recipe")

    def plan(self, context: PlanContext[FinetuneSpec]) -> Asked:
        """One job over all ranks, from what the cache rung staged.

        Raises RequestError for a global batch that these ranks cannot share, before any job exists.
        """
        staged = _staged(context.needs)
        recipe = context.inputs.recipe
        where = layout(context.cluster, context.spec, collective=False)
        batches = plan_batches(recipe.global_batch_size, where.world_size, recipe.micro_batch_size)
        base = {"path": staged.base.path, "digest": staged.base.digest}
        train = {"path": staged.train.path, "digest": staged.train.digest}
        request = {
            "recipe": recipe.canonical(),
            "base": base,
            "train": train,
            "device": where.device,
            "backend": where.backend,
            "init_timeout_s": min(MEET_S, context.spec.time_limit_s / 2),
            "environment": asked(context.needs),
        }
        rows = staged.train.rows or 0
        expect = {
            "world_size": where.world_size,
            "device": where.device,
            "compute_dtype": recipe.dtype if where.device == "cuda" else "float32",
            "rows": rows,
            "steps": recipe.epochs * steps_per_epoch(rows, recipe.global_batch_size),
            "base_digest": staged.base.digest,
            "data_digest": staged.train.digest,
            "recipe_digest": recipe.content_digest(),
            "micro_batch_size": batches.micro_batch_size,
            "min_loss_fall": context.spec.min_loss_fall,
        }
        cpus = cpus_per_rank(context.cluster, where)
        job = context.job(JOB, "surefoot.training.train", request, where, cpus_per_rank=cpus)
        return Asked(steps=(JobsStep(jobs=(job,)),), expect=expect)

    def read(self, view: View) -> FinetuneFacts:
        """Reports, log, rows of every rank, and the adapter's tensors. Raises EvidenceError."""
        evidence = view.evidence
        ranks = said(evidence, JOB, RankTrain)
        for rank in ranks:
            wanted = evidence.blob(LOG).sha256 if rank.rank == 0 else ""
            if rank.data.log_sha256 != wanted:
                raise EvidenceError("does not speak of the train.jsonl that is here (sha256 differs)", file=rank.file)
            name = f"raw/{JOB}/{samples_file(rank.rank)}"
            if evidence.blob(name).sha256 != rank.data.samples_sha256:
                raise EvidenceError(f"is not the file that rank {rank.rank} wrote (sha256 differs)", file=name)
        adapter = adapter_files(evidence)
        return FinetuneFacts(
            ranks=ranks,
            log=read_log(evidence),
            samples=tuple(read_samples(evidence, rank.rank) for rank in ranks),
            adapter=adapter,
            tensors=read_tensors(evidence.blob(ADAPTER_WEIGHTS).read(), file=ADAPTER_WEIGHTS),
            adapter_config=_object(evidence, ADAPTER_CONFIG),
            base_config_sha256=evidence.blob(BASE).sha256,
            base_layers=base_layers(evidence),
            job_s=_job_seconds(evidence),
            staged=_staged(view.needs),
        )

    def judge(self, facts: FinetuneFacts, view: View) -> Judgement:
        """Every claim, computed again from the raw evidence."""
        totals, steps = facts.log.totals, facts.log.steps
        rate = totals.tokens / totals.seconds
        fingerprint = Fingerprint(facts=_fingerprint(facts))
        return Judgement(
            checks=(*finetune_checks.all_checks(facts, view), *network_checks(JOB, JOB, facts.ranks, view)),
            measurements=_measurements(facts, rate, fingerprint.content_digest()),
            fingerprint=fingerprint,
            summary=f"loss {steps[0].loss:.3g} → {steps[-1].loss:.3g} in {len(steps)} steps, {rate:,.0f} tok/s",
            details={
                "loss": [{"step": s.step, "loss": s.loss, "lr": s.learning_rate} for s in steps],
                "time_split": totals.time.canonical(),
                "seconds": totals.seconds,
                "trainable": facts.ranks[0].data.trainable_parameters,
                "total": facts.ranks[0].data.total_parameters,
                "compute_dtype": facts.log.header.compute_dtype,
                "micro_batch_size": facts.log.header.micro_batch_size,
                "accumulation": facts.log.header.accumulation,
                "world_size": len(facts.ranks),
                "network": network_details(JOB, facts.ranks, view),
            },
        )


def _object(evidence: EvidenceSet, name: str) -> dict[str, Any]:
    value = evidence.json(name)
    if not isinstance(value, dict):
        raise EvidenceError("not a JSON object", file=name)
    return value


def base_layers(evidence: EvidenceSet) -> int:
    """Layers of the base model, by the copy of its config.json. Raises EvidenceError."""
    config = _object(evidence, BASE)
    inner = config.get("text_config")  # a model of text and more keeps the language model's part there
    for part in (config, inner if isinstance(inner, dict) else {}):
        for key in LAYER_KEYS:
            if isinstance(part.get(key), int) and part[key] > 0:
                return int(part[key])
    raise EvidenceError(f"names no number of layers (looked for {', '.join(LAYER_KEYS)})", file=BASE)


def _job_seconds(evidence: EvidenceSet) -> float:
    done = evidence.record(JobDone, f"raw/{JOB}/done.json")
    return done.ended_at - done.started_at


def read_log(evidence: EvidenceSet) -> TrainLog:
    """``train.jsonl``: header, steps, totals. Raises EvidenceError unless it is complete and of this attempt."""
    lines = evidence.json_lines(LOG)
    if len(lines) < 3:
        raise EvidenceError(f"{len(lines)} lines: a header, steps and totals are expected", file=LOG)
    header = parse_record(TrainHeader, lines[0][1], file=LOG, line=1)
    if (header.run, header.nonce) != (evidence.plan.run_id, evidence.plan.nonce):
        raise EvidenceError("is of another run or attempt: run or nonce differs", file=LOG, line=1)
    number, last = lines[-1]
    return TrainLog(
        header=header,
        steps=tuple(parse_record(TrainStep, value, file=LOG, line=line) for line, value in lines[1:-1]),
        totals=parse_record(TrainTotals, last, file=LOG, line=number),
    )


def read_samples(evidence: EvidenceSet, rank: int) -> tuple[SampleStep, ...]:
    """Rows that a rank learned from, step by step. Raises EvidenceError."""
    name = f"raw/{JOB}/{samples_file(rank)}"
    return tuple(parse_record(SampleStep, v, file=name, line=line) for line, v in evidence.json_lines(name))


def _fingerprint(facts: FinetuneFacts) -> dict[str, str]:
    first, header = facts.ranks[0].data, facts.log.header
    return {
        **first.versions,
        "device": first.device.name or first.device.kind,
        "threads": str(first.device.threads),
        "dtype": header.compute_dtype,
        "world_size": str(header.world_size),
        "micro_batch_size": str(header.micro_batch_size),
        "base": first.base_digest,
        "data": first.data_digest,
        "recipe": header.recipe_digest,
    }


def _measurements(facts: FinetuneFacts, rate: float, fingerprint: str) -> tuple[Measurement, ...]:
    steps, totals = facts.log.steps, facts.log.totals
    figures: tuple[tuple[str, float, str], ...] = (
        ("train_tokens_per_second", rate, "tok/s"),
        ("train_seconds", totals.seconds, "s"),
        ("loss_first", steps[0].loss, "nats/token"),
        ("loss_last", steps[-1].loss, "nats/token"),
    )
    return tuple(
        Measurement(metric=metric, value=value, unit=unit, world_size=len(facts.ranks), fingerprint=fingerprint)
        for metric, value, unit in figures
    )


RUNG: Rung[Any, Any] = FinetuneRung()
