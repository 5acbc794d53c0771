"""Evidence of an evaluation, written as its program writes it, without a model: for fast tests of what judges it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from answer_sets import CATEGORIES, SEED_POLICY, as_text
from rungs_harness import NONCE, RUN, inputs_of
from surefoot.evaluation.records import MODELS, PROGRAM, answers_file, single_sample
from surefoot.evidence import Blob, EvidenceSet
from surefoot.files import tree_digest
from surefoot.model.job import Job, JobDone, JobSpec, JobState, RankExit
from surefoot.model.ladder import Evaluate, Gate
from surefoot.model.run import JobsStep, Plan
from surefoot.model.score import Answer, AnswerSet, Task
from surefoot.rungs.base import View
from surefoot.rungs.gate import RUNG as GATE
from surefoot.training.tasks import task_lines
from trained_run import CPU

RANKS = 2
FOLDER = "raw/evaluate"
START = 1796572800.0
CODE = "ab" * 32
SPEC = Evaluate(rung="evaluate")


def tasks_of(answers: AnswerSet) -> tuple[Task, ...]:
    """The prompt set that these answers are to."""
    return tuple(
        Task(id=a.id, category=a.category, prompt=f"prompt of {a.id}", answer=a.expected, scorer=a.scorer)
        for a in answers.answers
    )


def sha(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def evaluation_files(base: AnswerSet, adapter: AnswerSet, spec: JobSpec, tasks: str) -> dict[str, bytes]:
    """Every file of ``raw/evaluate``, from two ranks."""
    digest = tree_digest({"tasks.jsonl": sha(tasks)})
    sample = single_sample(len(base.answers), SPEC.batch1_sample, 0)
    files: dict[str, str] = {"tasks.jsonl": tasks}
    for rank in range(RANKS):
        written = {}
        for model, whole in (("base", base), ("adapter", adapter)):
            parts = {
                answers_file(model, rank): whole.answers[rank::RANKS],  # type: ignore[arg-type]
                answers_file(model, rank, single=True): tuple(  # type: ignore[arg-type]
                    whole.answers[i] for i in sample if i % RANKS == rank
                ),
            }
            for name, rows in parts.items():
                written[name] = as_text(_stamped(whole, rows, digest))
        report = {
            "program": PROGRAM, "run": RUN, "nonce": NONCE, "job": "evaluate", "job_id": "7", "rank": rank,
            "local_rank": rank, "world_size": RANKS, "host": "node-a", "pid": 100 + rank, "imported_from": "/share/src/surefoot",
            "code_digest": CODE, "started_at": START + 1, "ended_at": START + 21, "data": _report(rank, base, adapter, digest, written),
        }  # fmt: skip
        files |= {**written, f"rank-{rank}.json": json.dumps(report)}
    files["request.json"] = json.dumps(spec.request)
    files["job.json"] = Job(id="7", spec=spec, submitted_at=START).model_dump_json()
    exits = tuple(RankExit(rank=rank, host="node-a", exit_code=0) for rank in range(RANKS))
    done = JobDone(
        id="7", name="evaluate", state=JobState.COMPLETED, started_at=START, ended_at=START + 22, ranks=exits
    )
    files["done.json"] = done.model_dump_json()
    return {f"{FOLDER}/{name}": text.encode() for name, text in files.items()}


def _stamped(whole: AnswerSet, rows: tuple[Answer, ...], digest: str) -> AnswerSet:
    stamp = {"run": RUN, "nonce": NONCE, "count": len(rows), "prompt_set_digest": digest}
    return AnswerSet(header=whole.header.model_copy(update=stamp), answers=rows)


def _report(rank: int, base: AnswerSet, adapter: AnswerSet, digest: str, written: Mapping[str, str]) -> dict[str, Any]:
    mine = base.answers[rank::RANKS]
    return {
        "rank": rank, "tasks_digest": digest, "tasks": len(base.answers), "items": len(mine),
        "base_digest": base.header.model_digest, "adapter_digest": adapter.header.model_digest,
        "device": CPU, "dtype": "float32", "versions": {"torch": "2.13.0"}, "batches": _batches(rank, base, adapter),
        "decoding": {
            model: {"do_sample": False, "num_beams": 1, "max_new_tokens": 32, "repetition_penalty": 1.0, "end_tokens": [2]}
            for model in MODELS
        },
        "adapter_load": {"tensors_in_file": 42, "tensors_in_model": 42, "tensors_equal": 42, "parameters": 9000},
        "probes": [
            {
                "id": a.id, "prompt_digest": a.prompt_digest, "base_argmax": 3, "base_max": 9.5, "adapter_argmax": 4,
                "adapter_max": 11.25, "max_abs_delta": 2.5,
            }
            for a in mine[:4]
        ],
        "batch_failures": [], "load_s": 0.1, "answering_s": dict.fromkeys(MODELS, 0.9),
        "files": {name: sha(text) for name, text in written.items()},
    }  # fmt: skip


def tokens_of(answer: Answer) -> int:
    """Length of a prompt: some five lengths, as different prompts have."""
    return 20 + int(answer.prompt_digest, 16) % 5


def _batches(rank: int, base: AnswerSet, adapter: AnswerSet) -> list[dict[str, Any]]:
    sample = [i for i in single_sample(len(base.answers), SPEC.batch1_sample, 0) if i % RANKS == rank]
    found = []
    for model, whole in (("base", base), ("adapter", adapter)):
        mine = sorted(whole.answers[rank::RANKS], key=tokens_of, reverse=True)
        calls = [(False, mine[i : i + SPEC.batch_size]) for i in range(0, len(mine), SPEC.batch_size)]
        calls += [(True, [whole.answers[i]]) for i in sample]
        found += [
            {
                "model": model, "alone": alone, "ids": [a.id for a in rows], "prompt_tokens": [tokens_of(a) for a in rows],
                "width": max(map(tokens_of, rows)), "seconds": sum(a.latency_s for a in rows),
            }
            for alone, rows in calls
        ]  # fmt: skip
    return found


def evaluate_view(base: AnswerSet, adapter: AnswerSet, tasks: str = "") -> View:
    """What judging sees of an evaluation of these answers. `tasks`: the prompt set's file, else made to fit."""
    tasks = tasks or task_lines(tasks_of(base))
    request = {"batch_size": SPEC.batch_size, "seed": 0}
    argv = ("python", "-m", PROGRAM)
    env = {"SUREFOOT_CODE": CODE, "PYTHONPATH": "/share/src"}
    job = JobSpec(name="evaluate", argv=argv, env=env, folder="/share/evaluate", request=request, ranks_per_node=RANKS)
    expect = {
        "base_digest": base.header.model_digest, "adapter_digest": adapter.header.model_digest,
        "tasks_digest": tree_digest({"tasks.jsonl": sha(tasks)}), "tasks": len(base.answers), "device": "cpu",
        "dtype": "float32", "batch_size": SPEC.batch_size, "batch1_sample": SPEC.batch1_sample, "seed": 0,
        "max_new_tokens": 32, "batch1_allowed_differences": 0, "batch1_derivation": "float32", "near_tie": 0.0,
    }  # fmt: skip
    plan = Plan(run_id=RUN, rung="evaluate", attempt=1, nonce=NONCE, steps=(JobsStep(jobs=(job,)),), expect=expect)
    files = {"plan.json": plan.model_dump_json().encode(), **evaluation_files(base, adapter, job, tasks)}
    return _view(plan, files, SPEC, {})


def gate_view(evaluated: View) -> View:
    """What the gate sees above this evaluation, under the seed's policy."""
    plan = Plan(run_id=RUN, rung=GATE.name, attempt=1, nonce=NONCE)
    files = {"plan.json": plan.model_dump_json().encode()}
    return _view(plan, files, Gate(rung="gate"), {"evaluate": evaluated.evidence})


def _view(plan: Plan, files: dict[str, bytes], spec: Any, needs: dict[str, EvidenceSet]) -> View:
    blobs = {name: Blob(name=name, data=data) for name, data in files.items()}
    evidence = EvidenceSet(plan=plan, files=blobs, prefix=f"rungs/{plan.rung}/attempt-001")
    inputs = inputs_of(spec, Path("/share")).model_copy(update={"policy": SEED_POLICY})
    return View(evidence=evidence, inputs=inputs, spec=spec, needs=needs)


def reforged(view: View, name: str, data: bytes) -> View:
    """One answers file replaced *and* its sha256 in the rank's report made to fit: a forger who knows the contract."""
    rank = name.rsplit("rank-", 1)[1].split(".", 1)[0]
    report = f"{FOLDER}/rank-{rank}.json"
    content = json.loads(view.evidence.blob(report).read())
    content["data"]["files"][name.rsplit("/", 1)[1]] = sha(data)
    files = {**view.evidence.files, name: Blob(name=name, data=data)}
    files[report] = Blob(name=report, data=json.dumps(content).encode())
    return replace(view, evidence=replace(view.evidence, files=files))


ITEMS = sum(items for items, _, _ in CATEGORIES.values())
