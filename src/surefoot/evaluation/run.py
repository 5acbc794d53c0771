"""The evaluation's program, one process per rank: ``python -m surefoot.evaluation.run`` in a job.

Rank r of W answers items r, r+W, r+2W, … of the prompt set: all of them batched with the base, a
seeded sample again one at a time, then the same with the adapter applied (not merged). No process
group is needed. Each rank writes its answer files and, last, its report of raw values; it judges
nothing.

Request: ``base, adapter, tasks`` (folders), ``prompt_set, device, dtype, batch_size, batch1_sample,
seed, max_new_tokens``.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from surefoot.benchmarks.device import Device
from surefoot.errors import MachineryError, RequestError
from surefoot.evaluation.generate import Answers, FailedBatch, Generated, Generator, answer_all
from surefoot.evaluation.records import (
    PROGRAM,
    AdapterLoad,
    Batch,
    BatchFailure,
    Decoding,
    EvaluationReport,
    Model,
    Probe,
    answers_file,
    prompt_digest,
    single_sample,
)
from surefoot.evaluation.scorers import check_expected, score
from surefoot.files import sha256_file, tree_digest, tree_files, write_atomic
from surefoot.model.score import Answer, AnswersHeader, Outcome, Task
from surefoot.node import program
from surefoot.node.group import device_facts, device_of
from surefoot.node.rank import Rank

# Evaluation reads data, renders prompts and ends its ranks as training does, through the same code.
from surefoot.training.tasks import TASKS_FILE, read_tasks

PROBES = 4
"""Prompts whose next-token logits are compared between base and adapter."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(rank: Rank) -> None:
    """Everything a rank does, top to bottom. Raises RequestError, MachineryError, EvidenceError."""
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # peft's call, not ours
    asked = rank.request
    device = pick_device(rank)
    tasks_folder, base_folder, adapter_folder = (Path(asked[name]) for name in ("tasks", "base", "adapter"))
    all_tasks = read_tasks(tasks_folder)
    refuse_unscorable(all_tasks)
    mine = list(range(rank.rank, len(all_tasks), rank.world_size))
    digests = {name: tree_digest(tree_files(Path(asked[name]), skip=())) for name in ("tasks", "base", "adapter")}
    if rank.rank == 0:
        write_atomic(rank.folder / TASKS_FILE, (tasks_folder / TASKS_FILE).read_bytes())

    started = time.perf_counter()
    tokenizer = AutoTokenizer.from_pretrained(base_folder)
    model = AutoModelForCausalLM.from_pretrained(base_folder, dtype=DTYPES[asked["dtype"]]).to(device).eval()
    load_s = time.perf_counter() - started

    base = Generator.of(model, tokenizer, asked["max_new_tokens"], measure_gaps=asked["dtype"] != "float32")
    session = Session(rank, [all_tasks[i] for i in mine], base, digests["tasks"])
    sample = set(single_sample(len(all_tasks), asked["batch1_sample"], asked["seed"]))
    session.single = [k for k, i in enumerate(mine) if i in sample]

    session.answer("base", base, digests["base"])
    before = base.last_logits(session.prompts[:PROBES]) if mine else None
    tuned = PeftModel.from_pretrained(model, adapter_folder).to(device).eval()
    loaded = adapter_load(tuned, adapter_folder)
    adapter = replace(base, model=tuned)
    after = adapter.last_logits(session.prompts[:PROBES]) if mine else None
    session.answer("adapter", adapter, digests["adapter"])

    report = EvaluationReport(
        rank=rank.rank,
        tasks_digest=digests["tasks"],
        tasks=len(all_tasks),
        items=len(mine),
        base_digest=digests["base"],
        adapter_digest=digests["adapter"],
        **weight_facts(tuned),
        decoding=session.decoding,
        batches=tuple(session.batches),
        versions={name: version(name) for name in ("torch", "transformers", "peft")},
        adapter_load=loaded,
        probes=() if before is None or after is None else session.probes(before, after),
        batch_failures=tuple(session.failures),
        load_s=load_s,
        answering_s=session.answering_s,
        files=session.files,
    )
    rank.report(report.canonical())


def refuse_unscorable(tasks: Sequence[Task]) -> None:
    """Raises RequestError for a task that no answer could ever meet, before anything is generated."""
    for task in tasks:
        try:
            check_expected(task)
        except ValueError as error:
            raise RequestError(
                str(error), next_action="mend the answer or the scorer in the evaluation data"
            ) from error


class Session:
    """One rank's items, rendered once, and what it has written so far."""

    def __init__(self, rank: Rank, tasks: Sequence[Task], generator: Generator, tasks_digest: str) -> None:
        self.rank = rank
        self.tasks = tasks
        self.prompts = [generator.render(task.prompt) for task in tasks]
        self.digests = [prompt_digest(prompt) for prompt in self.prompts]
        self.tasks_digest = tasks_digest
        self.single: list[int] = []
        """Positions, among this rank's items, of those that are answered again one at a time."""
        self.failures: list[BatchFailure] = []
        self.batches: list[Batch] = []
        self.decoding: dict[Model, Decoding] = {}
        self.answering_s: dict[Model, float] = {}
        self.files: dict[str, str] = {}

    def answer(self, name: Model, generator: Generator, model_digest: str) -> None:
        """All items batched, then the sample one at a time; both written as they were answered."""
        batch_size = self.rank.request["batch_size"]
        if generator.model.device.type == "cuda":
            # Kernels are loaded on first use, which would count as latency of the first batch (0.16 s
            # instead of 0.01 s per item on an H200). What it answers, or fails to, is not kept.
            answer_all(generator, self.prompts[:batch_size], batch_size)
        done = 0 if name == "base" else len(self.tasks)
        started = time.perf_counter()
        together = answer_all(
            generator,
            self.prompts,
            batch_size,
            lambda count: self.rank.progress(done + count, 2 * len(self.tasks), f"{name} answers"),
        )
        self.answering_s[name] = time.perf_counter() - started
        self.failures += [_failure(name, batch) for batch in together.failed]
        self._keep(name, range(len(self.tasks)), together, model_digest, alone=False)
        alone = answer_all(generator, [self.prompts[k] for k in self.single], 1)
        self._keep(name, self.single, alone, model_digest, alone=True)
        self.decoding[name] = decoding_of(generator)

    def _keep(self, name: Model, positions: Sequence[int], found: Answers, digest: str, *, alone: bool) -> None:
        """Write these answers, and remember the calls that gave them. `positions`: among this rank's items."""
        self._write(answers_file(name, self.rank.rank, single=alone), name, digest, positions, found.answers)
        self.batches += [
            Batch(
                model=name,
                alone=alone,
                ids=tuple(self.tasks[positions[k]].id for k in batch),
                prompt_tokens=call.prompt_tokens,
                width=call.width,
                seconds=call.seconds,
                smallest_gap=call.smallest_gap if alone else None,
            )
            for batch, call in found.calls
        ]

    def _write(
        self, file: str, name: Model, digest: str, positions: Sequence[int], answers: Sequence[Generated]
    ) -> None:
        header = AnswersHeader(
            prompt_set=self.rank.request["prompt_set"],
            prompt_set_digest=self.tasks_digest,
            count=len(positions),
            model=name,
            model_digest=digest,
            run=os.environ["SUREFOOT_RUN"],
            nonce=os.environ["SUREFOOT_NONCE"],
        )
        records = [self._record(k, answer) for k, answer in zip(positions, answers, strict=True)]
        write_atomic(self.rank.folder / file, "".join(f"{r.model_dump_json()}\n" for r in (header, *records)))
        self.files[file] = sha256_file(self.rank.folder / file)

    def _record(self, position: int, generated: Generated) -> Answer:
        task = self.tasks[position]
        if generated.error:
            outcome, strict, lenient = Outcome.ERROR, 0.0, 0.0
        else:
            truncated = generated.new_tokens >= self.rank.request["max_new_tokens"]
            outcome, strict, lenient = score(task, generated.text, truncated)
        return Answer(
            id=task.id,
            category=task.category,
            prompt_digest=generated.prompt_digest or self.digests[position],
            expected=task.answer,
            answer=generated.text,
            outcome=outcome,
            strict=strict,
            lenient=lenient,
            latency_s=generated.latency_s,
            new_tokens=generated.new_tokens,
            scorer=task.scorer,
            error=generated.error,
        )

    def probes(self, before: torch.Tensor, after: torch.Tensor) -> tuple[Probe, ...]:
        """Next-token logits before and after the adapter was applied."""
        return tuple(
            Probe(
                id=self.tasks[k].id,
                prompt_digest=self.digests[k],
                base_argmax=int(before[k].argmax()),
                base_max=float(before[k].max()),
                adapter_argmax=int(after[k].argmax()),
                adapter_max=float(after[k].max()),
                max_abs_delta=float((after[k] - before[k]).abs().max()),
            )
            for k in range(len(before))
        )


def _failure(name: Model, batch: FailedBatch) -> BatchFailure:
    return BatchFailure(model=name, items=batch.items, error=batch.error)


def decoding_of(generator: Generator) -> Decoding:
    """What the model holds after it has answered."""
    held = generator.held_config
    ends = held.eos_token_id
    penalty = held.repetition_penalty
    return Decoding(
        do_sample=bool(held.do_sample),
        num_beams=held.num_beams,
        max_new_tokens=held.max_new_tokens,
        repetition_penalty=1.0 if penalty is None else penalty,
        end_tokens=tuple(ends) if isinstance(ends, list) else (ends,),
    )


def pick_device(rank: Rank) -> torch.device:
    """The device asked for. Raises MachineryError rather than fall back to another."""
    try:
        return device_of(rank)
    except RuntimeError as error:
        raise MachineryError(
            str(error),
            next_action="see the node's driver (nvidia-smi) and that the scheduler grants a GPU to each rank",
        ) from error


def weight_facts(model: Any) -> dict[str, Any]:
    """Where the model's own tensors are and of which type: facts, not what was asked for."""
    weight = next(p for name, p in model.named_parameters() if "lora_" not in name)
    return {
        "device": Device.model_validate(device_facts(weight.device)),
        "dtype": str(weight.dtype).removeprefix("torch."),
    }


def adapter_load(model: Any, folder: Path) -> AdapterLoad:
    """The adapter's tensors in the model against those in its file."""
    file = load_file(folder / "adapter_model.safetensors")
    held = {name: tensor.cpu() for name, tensor in get_peft_model_state_dict(model).items()}
    equal = sum(name in held and torch.equal(held[name].to(tensor.dtype), tensor) for name, tensor in file.items())
    return AdapterLoad(
        tensors_in_file=len(file),
        tensors_in_model=len(held),
        tensors_equal=equal,
        parameters=sum(tensor.numel() for tensor in held.values()),
    )


if __name__ == "__main__":
    program.run(PROGRAM, main)
