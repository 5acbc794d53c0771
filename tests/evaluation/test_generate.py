"""Generation on the shipped model: batching changes nothing, errors are errors, and what ranks write is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot
from answer_sets import SEED_POLICY
from evaluation_files import gate_view
from rungs_harness import NONCE, inputs_of, judged, run_jobs
from surefoot.engine.package import code_digest
from surefoot.evaluation.generate import Generator, answer_all, end_tokens, left_pad, smallest_gap
from surefoot.evaluation.records import PROGRAM, prompt_digest
from surefoot.evaluation.run import decoding_of
from surefoot.evidence import Blob, EvidenceSet
from surefoot.files import tree_digest, tree_files
from surefoot.model.job import JobSpec
from surefoot.model.ladder import Evaluate
from surefoot.model.run import JobsStep, Plan
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.evaluate import NEAR_TIE, RUNG, allowed_differences
from surefoot.rungs.gate import RUNG as GATE
from surefoot.training.tasks import parse_tasks

SHIPPED = Path(surefoot.__file__).parent / "shipped" / "demo"
BASE = SHIPPED / "base"
TASKS = parse_tasks((SHIPPED / "demo-eval.jsonl").read_text())
LIMIT = 32


def test_padding_stands_on_the_left_and_is_masked() -> None:
    ids, mask = left_pad([[5, 6, 7], [8]], 0, "cpu")
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def quiet() -> warnings.catch_warnings[Any]:
    return warnings.catch_warnings(action="ignore")


def load(adapter: Path | None = None) -> Generator:
    with quiet():
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model: Any = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()
        if adapter is not None:
            model = PeftModel.from_pretrained(model, adapter).eval()
        return Generator.of(model, AutoTokenizer.from_pretrained(BASE), LIMIT)


def save_adapter(folder: Path, *, inert: bool) -> Path:
    """An adapter that never trained: random (its B is not 0), or inert as LoRA starts."""
    with quiet():
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
        modules = ["q_proj", "v_proj"]
        config = LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=modules, init_lora_weights=inert)
        get_peft_model(model, config).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("adapted", [False, True])
def test_a_batch_answers_as_one_at_a_time_does(adapted: bool, tmp_path: Path) -> None:
    generator = load(save_adapter(tmp_path, inert=False) if adapted else None)
    prompts = [generator.render(task.prompt) for task in TASKS]
    assert len({len(prompt) for prompt in prompts}) > 10, "equal lengths would need no padding"
    batched, failed, calls = answer_all(generator, prompts, 16)
    alone = answer_all(generator, prompts, 1).answers
    assert failed == []
    assert [(a.text, a.new_tokens, a.error) for a in batched] == [(a.text, a.new_tokens, a.error) for a in alone]
    assert len({a.text for a in alone}) > 10
    assert all(a.latency_s > 0 for a in batched)
    assert [len(batch) for batch, _ in calls] == [16, 16, 16, 2]
    for batch, call in calls:
        assert call.prompt_tokens == tuple(len(prompts[i]) for i in batch)
        assert call.width == max(call.prompt_tokens)
    # The digest is of what the model was given: without padding, the prompt itself.
    assert [a.prompt_digest for a in batched] == [prompt_digest(prompt) for prompt in prompts]


@pytest.mark.slow
def test_the_models_own_sampling_settings_are_not_used() -> None:
    generator = load()
    prompt = generator.render(TASKS[0].prompt)
    plain = generator.answer([prompt])[0][0].text
    own = generator.model.generation_config
    own.do_sample, own.temperature, own.repetition_penalty = True, 5.0, 10.0
    assert generator.answer([prompt])[0][0].text == plain
    held = decoding_of(generator)
    assert (held.do_sample, held.num_beams, held.repetition_penalty, held.max_new_tokens) == (False, 1, 1.0, LIMIT)
    own = generator.model.generation_config
    own.do_sample = True
    assert decoding_of(generator).do_sample, "it is the model that is asked, not the request"


@pytest.mark.slow
def test_every_end_that_the_model_names_ends_an_answer() -> None:
    generator = load()
    prompt = generator.render(TASKS[0].prompt)
    whole = generator.answer([prompt])[0][0]
    second = generator.tokenizer(whole.text, add_special_tokens=False)["input_ids"][1]
    generator.model.generation_config.eos_token_id = [second, 2]
    assert end_tokens(generator.model, generator.tokenizer) == tuple(sorted({2, second}))
    ended = Generator.of(generator.model, generator.tokenizer, LIMIT).answer([prompt])[0][0]
    assert ended.new_tokens == 1
    assert whole.text.startswith(ended.text)


@pytest.mark.slow
def test_how_close_the_two_best_tokens_came_is_measured_where_an_item_is_alone() -> None:
    assert smallest_gap([torch.tensor([[1.0, 4.0, 3.0]]), torch.tensor([[-8.0, -2.0, -9.0]])]) == pytest.approx(0.25)
    assert smallest_gap([torch.tensor([[5.0, 5.0, 1.0]])]) == 0.0
    generator = replace(load(), measure_gaps=True)
    prompts = [generator.render(task.prompt) for task in TASKS[:2]]
    measured = answer_all(generator, prompts, 1)
    plain = answer_all(replace(generator, measure_gaps=False), prompts, 1)
    assert [a.text for a in measured.answers] == [a.text for a in plain.answers]
    assert all(call.smallest_gap is not None and 0 < call.smallest_gap < 1 for _, call in measured.calls)
    assert [call.smallest_gap for _, call in [*plain.calls, *answer_all(generator, prompts, 2).calls]] == [None] * 3


@pytest.mark.slow
def test_a_failure_belongs_to_the_item_that_causes_it() -> None:
    generator = load()
    prompts = [generator.render(task.prompt) for task in TASKS[:3]]
    bad = [10**6]  # no such token: the embedding raises, and takes a whole batch with it
    too_long = [5] * 600
    answers, failed, calls = answer_all(generator, [prompts[0], bad, prompts[1], too_long, prompts[2]], 8)
    assert [bool(a.error) for a in answers] == [False, True, False, True, False]
    assert "IndexError" in answers[1].error
    assert "prompt of 600 tokens" in answers[3].error
    assert answers[0].text == answer_all(generator, [prompts[0]], 1)[0][0].text
    assert [f.items for f in failed] == [4]
    assert sorted(batch for batch, _ in calls) == [(0,), (2,), (4,)]


@pytest.mark.slow
def test_the_limit_stops_an_answer_and_the_end_token_is_not_counted() -> None:
    generator = load()
    prompt = generator.render(TASKS[0].prompt)
    whole = generator.answer([prompt])[0][0]
    assert 0 < whole.new_tokens < LIMIT
    cut = replace(generator, max_new_tokens=3).answer([prompt])[0][0]
    assert cut.new_tokens == 3
    assert whole.text.startswith(cut.text)
    exact = replace(generator, max_new_tokens=whole.new_tokens + 1).answer([prompt])[0][0]
    assert (exact.text, exact.new_tokens) == (whole.text, whole.new_tokens)


def evaluated(root: Path, *, inert: bool, dtype: str = "float32") -> View:
    """The program on two real ranks, and what judging sees of it."""
    adapter = save_adapter(root / "adapter", inert=inert)
    tasks = root / "tasks"
    tasks.mkdir()
    (tasks / "tasks.jsonl").write_bytes((SHIPPED / "demo-eval.jsonl").read_bytes())
    spec = Evaluate(rung="evaluate")
    settings = {
        "device": "cpu", "dtype": dtype, "batch_size": 16, "batch1_sample": 8, "seed": 0, "max_new_tokens": LIMIT,
    }  # fmt: skip
    request = {"base": str(BASE), "adapter": str(adapter), "tasks": str(tasks), "prompt_set": "demo-eval", **settings}
    folder = root / "attempt" / "raw" / "evaluate"
    env = {
        "PYTHONPATH": str(Path(surefoot.__file__).parent.parent), "OMP_NUM_THREADS": "1", "SUREFOOT_RUN": "run-1",
        "SUREFOOT_NONCE": NONCE, "SUREFOOT_CODE": code_digest(),
    }  # fmt: skip
    job = JobSpec(
        name="evaluate", argv=(sys.executable, "-m", PROGRAM), folder=str(folder), env=env, request=request,
        ranks_per_node=2,
    )  # fmt: skip
    digests = {
        "base_digest": tree_digest(tree_files(BASE, skip=())), "adapter_digest": tree_digest(tree_files(adapter, skip=())),
        "tasks_digest": tree_digest(tree_files(tasks, skip=())),
    }  # fmt: skip
    expect = {
        **settings, **digests, "tasks": len(TASKS), "near_tie": NEAR_TIE[dtype],
        "batch1_allowed_differences": allowed_differences(dtype, 8)[0], "batch1_derivation": dtype,
    }  # fmt: skip
    step = JobsStep(jobs=(job,))
    plan = Plan(run_id="run-1", rung="evaluate", attempt=1, nonce=NONCE, steps=(step,), expect=expect)
    run_jobs(step)
    attempt = root / "attempt"
    names = [path for path in attempt.rglob("*") if path.is_file()]
    blobs = [Blob(name=path.relative_to(attempt).as_posix(), path=path) for path in names]
    evidence = EvidenceSet(plan=plan, files={blob.name: blob for blob in blobs}, prefix="rungs/evaluate/attempt-001")
    inputs = inputs_of(spec, root).model_copy(update={"policy": SEED_POLICY})
    return View(evidence=evidence, inputs=inputs, spec=spec, needs={})


@pytest.mark.slow
def test_what_real_ranks_write_is_judged_and_an_untrained_adapter_is_no_go(tmp_path: Path) -> None:
    view = evaluated(tmp_path, inert=False)
    judgement = judged(RUNG, view)
    assert {c.id: c.actual for c in judgement.checks if c.status is not Status.PASSED} == {}
    assert judgement.summary.startswith("base 0.3")
    verdict = judged(GATE, gate_view(view))
    assert {c.id for c in verdict.checks if c.status is Status.FAILED} >= {"gate.min_machine_accuracy", "gate.verdict"}


@pytest.mark.slow
def test_in_bfloat16_every_answer_given_alone_says_how_close_its_tokens_came(tmp_path: Path) -> None:
    view = evaluated(tmp_path, inert=False, dtype="bfloat16")
    assert {c.id: c.actual for c in judged(RUNG, view).checks if c.status is not Status.PASSED} == {}
    batches = [b for report in RUNG.read(view).reports for b in report.batches]
    assert sum(b.alone for b in batches) == 16
    assert all((b.smallest_gap is not None) == b.alone for b in batches)


@pytest.mark.slow
def test_an_adapter_that_does_nothing_is_found_by_its_logits(tmp_path: Path) -> None:
    checks = {c.id: c for c in judged(RUNG, evaluated(tmp_path, inert=True)).checks if c.status is not Status.PASSED}
    assert set(checks) == {"evaluate.adapter_acts"}
    assert checks["evaluate.adapter_acts"].status is Status.FAILED
    assert "50 of 50 answers are word for word the base's" in checks["evaluate.adapter_acts"].derivation


@pytest.mark.slow
def test_a_task_that_cannot_be_scored_is_a_wrong_request_before_anything_is_generated(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    row = {"id": "a", "category": "c", "prompt": "p", "answer": "{", "scorer": "json"}
    (tasks / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    request = {"base": str(BASE), "adapter": str(tasks), "tasks": str(tasks), "device": "cpu"}
    (tmp_path / "request.json").write_text(json.dumps(request))
    env = {
        **os.environ, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "SUREFOOT_JOB_FOLDER": str(tmp_path),
        "PYTHONPATH": str(Path(surefoot.__file__).parent.parent),
    }  # fmt: skip
    ended = subprocess.run([sys.executable, "-m", PROGRAM], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert "task 'a': scorer json, but the expected answer is not JSON" in ended.stderr
    assert not (tmp_path / "rank-0.json").exists()
