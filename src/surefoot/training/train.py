"""``surefoot.training.train``: fine-tune a LoRA adapter on all ranks, by DistributedDataParallel.

Request: ``{"recipe": Recipe, "base": {"path", "digest"}, "train": {"path", "digest"}, "device":
"cpu"|"cuda", "backend": "gloo"|"nccl", "init_timeout_s": seconds}``. Writes ``train.jsonl`` and
``base-config.json`` (rank 0), ``samples-<r>.jsonl`` and ``adapter/``, then each rank's report. By
hand, outside a climb:

    SUREFOOT_JOB_FOLDER=… SUREFOOT_RUN=… torchrun --nproc-per-node 2 -m surefoot.training.train
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: deterministic matrix products
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import peft
import torch
import torch.distributed as dist
import transformers

from surefoot.benchmarks.device import Device
from surefoot.errors import MachineryError, StorageError, SurefootError
from surefoot.files import sha256_file, tree_digest, tree_files, write_atomic
from surefoot.model.base import Record
from surefoot.model.recipe import Recipe
from surefoot.node import program
from surefoot.node.found_network import take_environment
from surefoot.node.group import device_facts, device_of, join, leave
from surefoot.node.rank import Rank, say
from surefoot.training import lora
from surefoot.training.data import Batch, Sample, collate, encode_all
from surefoot.training.loss import LossModel
from surefoot.training.schedule import learning_rate
from surefoot.training.sharding import BatchPlan, plan_batches, rank_rows, step_rows, steps_per_epoch
from surefoot.training.tasks import read_tasks
from surefoot.training.train_log import (
    ADAPTER_FOLDER,
    BASE_CONFIG,
    LOG_FILE,
    SampleStep,
    TimeSplit,
    TrainHeader,
    TrainReport,
    TrainStep,
    TrainTotals,
    samples_file,
)

PROGRAM = "surefoot.training.train"
PHASES = ("data", "forward", "backward", "optimiser")
BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Place:
    """Where this rank computes."""

    device: torch.device
    compute_dtype: Literal["float32", "bfloat16"]

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        return "cuda" if self.device.type == "cuda" else "cpu"

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 computation where the recipe asks for it and a GPU does it; float32 otherwise."""
        if self.compute_dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def wait(self) -> None:
        """Let queued GPU work end, so that a clock read means something."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.device)


class Clock:
    """Seconds by phase. `phase` names what follows until the next call."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of the block under `name`."""
        start = time.perf_counter()
        yield
        self._place.wait()
        self.seconds[name] += time.perf_counter() - start

    def split(self) -> TimeSplit:
        """As a record."""
        return TimeSplit.model_validate({f"{name}_s": seconds for name, seconds in self.seconds.items()})


def choose_place(rank: Rank, dtype: str) -> Place:
    """This rank's device and threads. Raises MachineryError where it has no GPU of its own and one was asked for."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, affinity // beside))
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        device = device_of(rank)
    except RuntimeError as error:
        raise MachineryError(
            str(error), next_action="see the pre-check of this node, and that the scheduler grants a GPU to each rank"
        ) from error
    return Place(device, "bfloat16" if device.type == "cuda" and dtype == "bfloat16" else "float32")


def digest_checked(what: str, asset: dict[str, str]) -> str:
    """Tree digest of a staged folder as it is now. Raises StorageError when it is not what was staged."""
    found = tree_digest(tree_files(Path(asset["path"]), skip=()))
    if found != asset["digest"]:
        raise StorageError(
            f"{what}: {asset['path']} has digest {found[:16]}, staged was {asset['digest'][:16]}",
            next_action="climb again from the cache rung: it stages what is damaged anew",
        )
    return found


@dataclass
class Training:
    """One fine-tune on one rank: everything that the loop needs, and what it has counted."""

    rank: int
    world_size: int
    place: Place
    recipe: Recipe
    batches: BatchPlan
    samples: list[Sample]
    pad_id: int
    model: peft.PeftModel
    run: str = ""
    nonce: str = ""
    progress: Callable[[float, float, str], None] = lambda *_: None
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("samples", "tokens", "targets"), 0))
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        ids = [self.place.device.index] if self.place.kind == "cuda" else None
        ddp = torch.nn.parallel.DistributedDataParallel
        # The only buffers are constants (rotary frequencies). Newer torch renamed the switch.
        renamed = "forward_sync_buffers" in inspect.signature(ddp).parameters
        still = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
        self.ddp = ddp(LossModel(self.model), device_ids=ids, **still)
        self.optimiser = torch.optim.AdamW(self.parameters, lr=0.0, betas=BETAS, weight_decay=self.recipe.weight_decay)
        self.steps = self.recipe.epochs * steps_per_epoch(len(self.samples), self.recipe.global_batch_size)

    def header(self) -> TrainHeader:
        """First line of the log."""
        return TrainHeader(
            run=self.run,
            nonce=self.nonce,
            recipe_digest=self.recipe.content_digest(),
            world_size=self.world_size,
            micro_batch_size=self.batches.micro_batch_size,
            accumulation=self.batches.accumulation,
            global_batch_size=self.recipe.global_batch_size,
            rows=len(self.samples),
            epochs=self.recipe.epochs,
            steps=self.steps,
            seed=self.recipe.seed,
            device=self.place.kind,
            compute_dtype=self.place.compute_dtype,
        )

    def micro_batches(self, rows: list[int]) -> list[Batch]:
        """A rank's share of a step in micro-batches. Without a share: one batch that nothing is learned
        from, since every rank must take part in the all-reduce.
        """
        if not rows:
            return [collate([self.samples[0]], pad_id=self.pad_id, learn=False)]
        size = self.batches.micro_batch_size
        return [
            collate([self.samples[row] for row in rows[start : start + size]], pad_id=self.pad_id)
            for start in range(0, len(rows), size)
        ]

    def gradients(self, rows: list[int], targets: int, clock: Clock) -> torch.Tensor:
        """Accumulate the step's gradients. `targets`: target tokens of the global batch.

        Every micro-batch adds its summed loss / `targets`. DDP averages over ranks where a sum is
        wanted, hence the factor of the world size. Returns this rank's (loss sum, samples, tokens,
        target tokens), float64.
        """
        with clock.phase("data"):
            micro = self.micro_batches(rows)
        counts = torch.zeros(4, dtype=torch.float64)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.place.device)
        for number, batch in enumerate(micro, 1):
            last = number == len(micro)
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                with clock.phase("data"):
                    tensors = [t.to(self.place.device) for t in (batch.input_ids, batch.attention_mask, batch.labels)]
                with clock.phase("forward"), self.place.autocast():
                    loss = self.ddp(*tensors)
                with clock.phase("backward"):
                    (loss * (self.world_size / targets)).backward()
            loss_sum += loss.detach().double()
            counts[1:] += torch.tensor([batch.samples, batch.tokens, batch.targets], dtype=torch.float64)
        counts[0] = loss_sum.item()
        return counts

    def step(self, number: int, epoch: int, rows: list[int]) -> TrainStep:
        """One optimiser step over the global batch `rows`. Raises SurefootError when it goes astray."""
        start = time.perf_counter()
        clock = Clock(self.place)
        targets = sum(self.samples[row].targets for row in rows)
        own = rank_rows(rows, self.rank, self.world_size)
        counts = self.gradients(own, targets, clock)
        for key, count in zip(("samples", "tokens", "targets"), counts[1:].tolist(), strict=True):
            self.seen[key] += int(count)
        with clock.phase("optimiser"):
            agreed = counts.to(self.place.device)
            dist.all_reduce(agreed)
            loss_sum, samples, tokens, found = agreed.tolist()
            if int(samples) != len(rows) or int(found) != targets:
                raise SurefootError(
                    f"step {number}: ranks counted {samples:.0f} samples with {found:.0f} target tokens, "
                    f"the global batch has {len(rows)} with {targets}"
                )
            norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.max_grad_norm))
            if not math.isfinite(loss_sum) or not math.isfinite(norm):
                raise SurefootError(
                    f"step {number}: the loss is {loss_sum / targets}, the gradient norm {norm}: training has diverged",
                    next_action="lower learning_rate, or raise warmup_ratio",
                )
            rate = learning_rate(
                number, steps=self.steps, peak=self.recipe.learning_rate,
                warmup_ratio=self.recipe.warmup_ratio, schedule=self.recipe.schedule,
            )  # fmt: skip
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.losses.append(loss_sum / targets)
        seconds = time.perf_counter() - start
        return TrainStep(
            step=number, epoch=epoch, loss=loss_sum / targets, learning_rate=rate, grad_norm=norm,
            samples=len(rows), tokens=int(tokens), target_tokens=targets,
            tokens_per_s=tokens / seconds, seconds=seconds, time=clock.split(),
        )  # fmt: skip

    def loop(self, folder: Path) -> None:
        """All steps of all epochs. Rank 0 writes the log, every rank its samples, line by line."""
        self.model.train()
        torch.manual_seed(self.recipe.seed * 1009 + self.rank + 1)  # dropout differs between ranks
        start = time.perf_counter()
        done: list[TrainStep] = []
        with contextlib.ExitStack() as files:
            log = files.enter_context((folder / LOG_FILE).open("w")) if self.rank == 0 else None
            seen = files.enter_context((folder / samples_file(self.rank)).open("w"))
            _write(log, self.header())
            for epoch in range(self.recipe.epochs):
                for rows in step_rows(
                    len(self.samples), global_batch_size=self.recipe.global_batch_size,
                    seed=self.recipe.seed, epoch=epoch,
                ):  # fmt: skip
                    record = self.step(len(done) + 1, epoch + 1, rows)
                    own = rank_rows(rows, self.rank, self.world_size)
                    _write(seen, SampleStep(step=record.step, epoch=record.epoch, rows=tuple(own)))
                    done.append(record)
                    _write(log, record)
                    self._tell(record)
            _write(log, totals(done, time.perf_counter() - start))

    def _tell(self, record: TrainStep) -> None:
        text = f"step {record.step}/{self.steps} loss {record.loss:.3g} {record.tokens_per_s:,.0f} tok/s"
        self.progress(record.step, self.steps, text)


def totals(steps: list[TrainStep], seconds: float) -> TrainTotals:
    """Last line of the log."""
    return TrainTotals(
        steps=len(steps),
        samples=sum(s.samples for s in steps),
        tokens=sum(s.tokens for s in steps),
        target_tokens=sum(s.target_tokens for s in steps),
        seconds=seconds,
        time=TimeSplit(
            data_s=sum(s.time.data_s for s in steps),
            forward_s=sum(s.time.forward_s for s in steps),
            backward_s=sum(s.time.backward_s for s in steps),
            optimiser_s=sum(s.time.optimiser_s for s in steps),
        ),
    )


def _write(stream: TextIO | None, record: Record) -> None:
    """One record as one line, out of this process at once: a killed job leaves what it did."""
    if stream is not None:
        stream.write(record.model_dump_json() + "\n")
        stream.flush()


def _teller(rank: Rank) -> Callable[[float, float, str], None]:
    """Progress of rank 0, at most twice a second, and the last step always."""
    last = 0.0

    def tell(done: float, total: float, text: str) -> None:
        nonlocal last
        if rank.rank == 0 and (time.monotonic() - last > 0.5 or done == total):
            last = time.monotonic()
            rank.progress(done, total, text)
            say(text)

    return tell


@dataclass(frozen=True)
class Prepared:
    """What a rank loads by itself, before it meets the others."""

    batches: BatchPlan
    samples: list[Sample]
    pad_id: int
    model: peft.PeftModel


def prepare(rank: Rank, place: Place, recipe: Recipe) -> Prepared:
    """Tokenizer, rows, base model and adapter of this rank. Raises RequestError.

    No process group is needed: what is wrong with a request stops every rank at once, none waits
    for another, and none waits in a collective while another still loads.
    """
    batches = plan_batches(recipe.global_batch_size, rank.world_size, recipe.micro_batch_size)
    base = rank.request["base"]["path"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(base, local_files_only=True)
    samples = encode_all(tokenizer, read_tasks(Path(rank.request["train"]["path"])), max_length=recipe.max_length)
    # A frozen base needs no float32 copy; adapter weights are float32 whatever the base is (PEFT's default).
    dtype = torch.bfloat16 if place.compute_dtype == "bfloat16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, local_files_only=True)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    tuned = lora.add_adapter(model, recipe.lora, seed=recipe.seed).to(place.device)
    return Prepared(batches, samples, int(pad), tuned)


def training_of(rank: Rank, place: Place, recipe: Recipe, prepared: Prepared) -> Training:
    """The training of a rank that has joined its process group."""
    return Training(
        rank=rank.rank,
        world_size=rank.world_size,
        place=place,
        recipe=recipe,
        batches=prepared.batches,
        samples=prepared.samples,
        pad_id=prepared.pad_id,
        model=prepared.model,
        run=os.environ["SUREFOOT_RUN"],
        nonce=os.environ["SUREFOOT_NONCE"],
        progress=_teller(rank),
    )


def report_of(rank: Rank, training: Training, base_digest: str, data_digest: str) -> TrainReport:
    """This rank's account after training. Raises SurefootError when the adapter cannot be read here."""
    state = lora.adapter_state(training.model)
    trainable, total = lora.count_parameters(training.model)
    log = rank.folder / LOG_FILE
    # Of the tensors themselves, not of what was asked for.
    device = next(training.model.parameters()).device
    return TrainReport(
        device=Device.model_validate(device_facts(device)),
        seed=training.recipe.seed,
        steps=len(training.losses),
        samples=training.seen["samples"],
        tokens=training.seen["tokens"],
        target_tokens=training.seen["targets"],
        first_loss=training.losses[0],
        last_loss=training.losses[-1],
        trainable_parameters=trainable,
        total_parameters=total,
        base_digest=base_digest,
        data_digest=data_digest,
        adapter_digest=tree_digest(tree_files(rank.folder / ADAPTER_FOLDER)),
        parameter_digest=lora.digest_of_state(state),
        lora_b_norm=lora.lora_b_norm(state),
        samples_sha256=hashlib.sha256((rank.folder / samples_file(rank.rank)).read_bytes()).hexdigest(),
        log_sha256=sha256_file(log) if rank.rank == 0 else "",
        versions={
            "python": sys.version.split()[0],
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
    )


def main(rank: Rank) -> None:
    """Train, save, report."""
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # peft's call, not ours
    network = take_environment(rank)
    recipe = Recipe.model_validate(rank.request["recipe"])
    place = choose_place(rank, recipe.dtype)
    base_digest = digest_checked("base model", rank.request["base"])
    data_digest = digest_checked("training data", rank.request["train"])
    prepared = prepare(rank, place, recipe)
    if rank.rank == 0:
        write_atomic(rank.folder / BASE_CONFIG, (Path(rank.request["base"]["path"]) / "config.json").read_bytes())
    join(rank, place.device)
    training = training_of(rank, place, recipe, prepared)
    training.loop(rank.folder)
    if rank.rank == 0:
        lora.save_adapter(training.model, rank.folder / ADAPTER_FOLDER)
    dist.barrier()
    report = report_of(rank, training, base_digest, data_digest)
    rank.report({"rank": rank.rank, "network": network, **report.canonical()})
    leave()


if __name__ == "__main__":
    program.run(PROGRAM, main)
