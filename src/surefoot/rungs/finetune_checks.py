"""The claims of the fine-tune rung, one function each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from surefoot.benchmarks.device import device_problems
from surefoot.files import tree_digest
from surefoot.model.check import Check, Evidence
from surefoot.model.recipe import Recipe
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.finetune_facts import ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE, JOB, LOG, FinetuneFacts
from surefoot.rungs.judging import decide, shorten, unproved
from surefoot.training.schedule import learning_rate
from surefoot.training.sharding import rank_rows, step_rows
from surefoot.training.tensors import file_parameter_digest
from surefoot.training.train_log import samples_file

RERUN = "run the fine-tune again; if it comes back, the trainer has a fault: keep this run and report it"
CLOSE = 1e-9
"""Relative difference of a figure and the same figure computed again from what was written down."""
CHANCE_Z = 2.326
"""Standard normal quantile of 99 %: a loss that does not fall looks as if it did in 1 of 100 fine-tunes."""
LEAST_WINDOW = 5
"""Steps at each end of the curve that are compared, at least: fewer cannot reach 99 %."""
_LAYER = re.compile(r"\.(\d+)\.")


def all_checks(facts: FinetuneFacts, view: View) -> list[Check]:
    """Every claim, in the order in which a reader asks."""
    return [
        _recipe(facts, view),
        _devices(facts, view),
        _inputs("base", "base model", facts, view),
        _inputs("data", "training data", facts, view),
        _steps(facts, view),
        _samples(facts, view),
        _totals(facts, view),
        _times(facts, view),
        _rates(facts, view),
        _gradients(facts, view),
        _loss(facts, view),
        _adapter_files(facts, view),
        _adapter_form(facts, view),
        _adapter_layers(facts, view),
        _adapter_same(facts, view),
        _adapter_learned(facts, view),
    ]


def _rank_refs(facts: FinetuneFacts, view: View, texts: Iterable[str] = ()) -> tuple[Evidence, ...]:
    said = list(texts) or [""] * len(facts.ranks)
    return tuple(view.evidence.ref(r.file, text=t) for r, t in zip(facts.ranks, said, strict=True))


def _near(a: float, b: float, share: float = CLOSE) -> bool:
    return math.isclose(a, b, rel_tol=share, abs_tol=share)


def _recipe(facts: FinetuneFacts, view: View) -> Check:
    header, recipe = facts.log.header, view.inputs.recipe
    digest = recipe.content_digest()
    asked = {
        "world_size": view.expect["world_size"],
        "global_batch_size": recipe.global_batch_size,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
        "rows": facts.staged.train.rows,
        "device": view.expect["device"],
        "compute_dtype": view.expect["compute_dtype"],
        "steps": recipe.epochs * len(_plan(facts, recipe, 0)),
    }
    problems = [f"{k} is {getattr(header, k)}, not {v}" for k, v in asked.items() if getattr(header, k) != v]
    product = header.world_size * header.micro_batch_size * header.accumulation
    if product != recipe.global_batch_size:
        problems.append(f"{header.world_size} × {header.micro_batch_size} × {header.accumulation} = {product}")
    if header.micro_batch_size != view.expect["micro_batch_size"]:
        problems.append(f"micro-batch is {header.micro_batch_size}, not {view.expect['micro_batch_size']}")
    if not digest == header.recipe_digest == view.expect["recipe_digest"]:
        problems.append(f"recipe digest is {header.recipe_digest[:16]}…")
    problems += [f"{r.where} used seed {r.data.seed}" for r in facts.ranks if r.data.seed != recipe.seed]
    return decide(
        "finetune.recipe",
        f"the job trained by the recipe {recipe.name!r}: global batch {recipe.global_batch_size} = ranks × micro-batch × accumulation",
        not problems,
        expected=digest,
        actual=shorten(problems) or header.recipe_digest,
        evidence=(view.evidence.ref(LOG, line=1), *_rank_refs(facts, view)),
        next_action=RERUN,
    )


def _devices(facts: FinetuneFacts, view: View) -> Check:
    wanted, count = view.expect["device"], view.expect["world_size"]
    problems = device_problems(
        [(r.where, r.report.host, r.report.local_rank, r.data.device) for r in facts.ranks], wanted
    )
    if len(facts.ranks) != count:
        problems.append(f"{len(facts.ranks)} ranks")
    versions = {tuple(sorted(r.data.versions.items())) for r in facts.ranks}
    if len(versions) != 1:
        problems.append("ranks run different versions of Python, torch, transformers or peft")
    return decide(
        "finetune.devices",
        f"{count} ranks trained, each on its own {'GPU' if wanted == 'cuda' else 'process on the CPU'}, with equal software",
        not problems,
        expected=f"{count} × {wanted}",
        actual=shorten(problems) or f"{count} × {wanted}",
        evidence=_rank_refs(facts, view, (r.data.device.uuid or r.data.device.kind for r in facts.ranks)),
        next_action="see the pre-check of these nodes: GPU binding, and the Python environment on each",
    )


def _inputs(key: str, what: str, facts: FinetuneFacts, view: View) -> Check:
    wanted = (facts.staged.base if key == "base" else facts.staged.train).digest
    read = [getattr(r.data, f"{key}_digest") for r in facts.ranks]
    problems = [f"{r.where} read {d[:16]}…" for r, d in zip(facts.ranks, read, strict=True) if d != wanted]
    if view.expect[f"{key}_digest"] != wanted:
        problems.append(f"the plan asked for {view.expect[f'{key}_digest'][:16]}…")
    return decide(
        f"finetune.{key}",
        f"every rank read the {what} that the cache rung staged",
        not problems,
        expected=wanted,
        actual=shorten(problems) or wanted,
        evidence=_rank_refs(facts, view, read),
        derivation="tree digest that each rank computed before training",
        next_action="climb again from the cache rung: it stages what is damaged anew",
    )


def _steps(facts: FinetuneFacts, view: View) -> Check:
    steps, recipe = facts.log.steps, view.inputs.recipe
    per_epoch = len(_plan(facts, recipe, 0))
    wanted = recipe.epochs * per_epoch
    problems = [
        f"line {n + 1} has step {s.step} of epoch {s.epoch}, not step {n} of epoch {(n - 1) // per_epoch + 1}"
        for n, s in enumerate(steps, 1)
        if (s.step, s.epoch) != (n, (n - 1) // per_epoch + 1)
    ]
    if not len(steps) == facts.log.totals.steps == view.expect["steps"] == wanted:
        problems.append(f"{len(steps)} steps in the log, {facts.log.totals.steps} in its totals")
    problems += [f"{r.where} did {r.data.steps} steps" for r in facts.ranks if r.data.steps != wanted]
    ends = (steps[0].loss, steps[-1].loss)
    problems += [f"{r.where} saw other losses" for r in facts.ranks if (r.data.first_loss, r.data.last_loss) != ends]
    return decide(
        "finetune.steps",
        "every rank did the same steps, and the log holds each of them once",
        not problems,
        expected=wanted,
        actual=shorten(problems) or len(steps),
        unit="steps",
        evidence=(view.evidence.ref(LOG, line=len(steps) + 2), *_rank_refs(facts, view)),
        derivation=f"{recipe.epochs} epochs × ⌈{facts.staged.train.rows} rows / {recipe.global_batch_size}⌉",
        next_action=RERUN,
    )


def _plan(facts: FinetuneFacts, recipe: Recipe, epoch: int) -> list[list[int]]:
    rows = facts.staged.train.rows or 0
    return step_rows(rows, global_batch_size=recipe.global_batch_size, seed=recipe.seed, epoch=epoch)


def _samples(facts: FinetuneFacts, view: View) -> Check:
    recipe, world = view.inputs.recipe, len(facts.ranks)
    problems = []
    for epoch in range(recipe.epochs):
        counts = Counter(row for own in facts.samples for s in own if s.epoch == epoch + 1 for row in s.rows)
        missing = sum(counts[row] == 0 for row in range(facts.staged.train.rows or 0))
        doubled = sum(n > 1 for n in counts.values())
        if missing or doubled:
            problems.append(f"epoch {epoch + 1}: {missing} rows missing, {doubled} more than once")
    batches = [batch for epoch in range(recipe.epochs) for batch in _plan(facts, recipe, epoch)]
    for rank, own in enumerate(facts.samples):
        if len(own) != len(batches):
            problems.append(f"rank {rank} lists {len(own)} steps")
            continue
        wrong = [
            str(n)
            for n, (said, batch) in enumerate(zip(own, batches, strict=True), 1)
            if said.step != n or list(said.rows) != rank_rows(batch, rank, world)
        ]
        if wrong:
            problems.append(f"rank {rank} learned from other rows than planned in step {shorten(wrong)}")
    sizes = [s.step for s, batch in zip(facts.log.steps, batches, strict=False) if s.samples != len(batch)]
    if sizes:
        problems.append(f"the log counts other samples in step {shorten([str(s) for s in sizes])}")
    seen = sum(len(s.rows) for own in facts.samples for s in own)
    return decide(
        "finetune.samples",
        "every row was learned from exactly once in every epoch, by one rank",
        not problems,
        expected=(facts.staged.train.rows or 0) * recipe.epochs,
        actual=shorten(problems) or seen,
        unit="samples",
        evidence=tuple(view.evidence.ref(f"raw/{JOB}/{samples_file(rank)}") for rank in range(world)),
        derivation=f"the order is recomputed from seed {recipe.seed}: a permutation per epoch, cut into steps, dealt to ranks",
        next_action=RERUN,
    )


def _totals(facts: FinetuneFacts, view: View) -> Check:
    steps, totals = facts.log.steps, facts.log.totals
    problems = []
    for name in ("samples", "tokens", "target_tokens"):
        by_step = sum(getattr(s, name) for s in steps)
        by_rank = sum(getattr(r.data, name) for r in facts.ranks)
        if not by_step == by_rank == getattr(totals, name):
            problems.append(f"{name}: steps {by_step}, ranks {by_rank}, totals {getattr(totals, name)}")
    listed = [sum(len(s.rows) for s in own) for own in facts.samples]
    problems += [
        f"{r.where} counts {r.data.samples} samples, lists {n}"
        for r, n in zip(facts.ranks, listed, strict=True)
        if r.data.samples != n
    ]
    problems += [
        f"step {s.step}: not samples < target tokens < tokens"
        for s in steps
        if not s.samples < s.target_tokens < s.tokens
    ]
    return decide(
        "finetune.totals",
        "samples, tokens and target tokens add up: over steps, over ranks, in the totals",
        not problems,
        expected="three equal sums",
        actual=shorten(problems)
        or f"{totals.samples:,} samples, {totals.tokens:,} tokens, {totals.target_tokens:,} targets",
        evidence=(view.evidence.ref(LOG, line=len(steps) + 2), *_rank_refs(facts, view)),
        next_action=RERUN,
    )


def _times(facts: FinetuneFacts, view: View) -> Check:
    steps, totals = facts.log.steps, facts.log.totals
    problems = []
    for s in steps:
        parts = sum(s.time.canonical().values())
        if parts > s.seconds * (1 + CLOSE) or not _near(s.tokens_per_s, s.tokens / s.seconds):
            problems.append(f"step {s.step}: {parts:.4f} s in parts of {s.seconds:.4f} s, {s.tokens_per_s:.1f} tok/s")
    summed = {k: sum(s.time.canonical()[k] for s in steps) for k in totals.time.canonical()}
    problems += [
        f"{k}: steps {v:.4f}, totals {totals.time.canonical()[k]:.4f}"
        for k, v in summed.items()
        if not _near(v, totals.time.canonical()[k])
    ]
    if sum(s.seconds for s in steps) > totals.seconds * (1 + CLOSE):
        problems.append(f"the steps take {sum(s.seconds for s in steps):.3f} s, the whole loop {totals.seconds:.3f} s")
    if totals.seconds > facts.job_s + 1:  # whole seconds in some schedulers' clocks
        problems.append(f"the loop took {totals.seconds:.1f} s in a job of {facts.job_s:.1f} s")
    return decide(
        "finetune.times",
        "the times fit into each other: phases into steps, steps into the loop, the loop into the job",
        not problems,
        expected=f"at most {facts.job_s:.1f}",
        actual=shorten(problems) or round(totals.seconds, 3),
        unit="" if problems else "s",
        evidence=(view.evidence.ref(LOG, line=len(steps) + 2), view.evidence.ref(f"raw/{JOB}/done.json")),
        next_action="a clock jumped on that node: check chrony or ntpd there, then run it again",
    )


def _rates(facts: FinetuneFacts, view: View) -> Check:
    recipe, steps = view.inputs.recipe, facts.log.steps
    total = len(steps)
    wanted = [
        learning_rate(
            n, steps=total, peak=recipe.learning_rate, warmup_ratio=recipe.warmup_ratio, schedule=recipe.schedule
        )
        for n in range(1, total + 1)
    ]
    wrong = [(s, w) for s, w in zip(steps, wanted, strict=True) if not math.isclose(s.learning_rate, w, rel_tol=1e-9)]
    line = wrong[0][0].step + 1 if wrong else 2
    return decide(
        "finetune.learning_rate",
        f"the learning rate followed the declared schedule ({recipe.schedule}, {recipe.warmup_ratio:.0%} warm-up) in every step",
        not wrong,
        expected=f"peak {recipe.learning_rate:g}",
        actual=f"step {wrong[0][0].step}: {wrong[0][0].learning_rate:g}, not {wrong[0][1]:g}"
        if wrong
        else f"{total} steps as declared",
        evidence=(view.evidence.ref(LOG, line=line),),
        derivation="each step's rate is computed again from learning_rate, warmup_ratio and schedule",
        next_action=RERUN,
    )


def _gradients(facts: FinetuneFacts, view: View) -> Check:
    dead = [s.step for s in facts.log.steps if s.grad_norm <= 0]
    largest = max(facts.log.steps, key=lambda s: s.grad_norm)
    return decide(
        "finetune.gradients",
        "every step had a gradient",
        not dead,
        expected="> 0 in every step",
        actual=f"0 in step {shorten([str(s) for s in dead])}"
        if dead
        else f"largest {largest.grad_norm:.3g} in step {largest.step}",
        evidence=(view.evidence.ref(LOG, line=(dead[0] if dead else largest.step) + 1),),
        next_action="nothing is trained: look at lora.target_modules and at the answers in the data",
    )


def _loss(facts: FinetuneFacts, view: View) -> Check:
    """The fall between the ends of the curve, held against the margin and against the steps' own noise."""
    losses = [s.loss for s in facts.log.steps]
    margin = float(view.expect["min_loss_fall"])
    refs = (view.evidence.ref(LOG, line=2), view.evidence.ref(LOG, line=len(losses) + 1))
    claim = f"the loss fell by at least {margin:.0%}, and not by chance"
    window = max(LEAST_WINDOW, len(losses) // 10)
    if len(losses) < 2 * window:
        return unproved(
            "finetune.loss_fell",
            claim,
            evidence=refs,
            expected=f"≥ {2 * window} steps",
            actual=f"{len(losses)} steps",
            derivation=f"the first {window} steps are compared with the last {window}",
            next_action="train for more steps: more epochs or rows, or a smaller global_batch_size",
        )
    first, last = losses[:window], losses[-window:]
    limit = fmean(first) * (1 - margin)
    greater, needed = greater_pairs(first, last), pairs_beyond_chance(window)
    fell, beyond_chance = 0 <= fmean(last) < limit, greater >= needed
    return Check(
        id="finetune.loss_fell",
        claim=claim,
        status=Status.FAILED if not fell else Status.PASSED if beyond_chance else Status.INCONCLUSIVE,
        expected=round(limit, 6),
        actual=round(fmean(last), 6),
        unit="nats/token",
        evidence=refs,
        derivation=f"mean of the last {window} steps against {1 - margin:g} × the mean of the first {window} "
        f"({fmean(first):.4g}); min_loss_fall of the ladder. In {greater:g} of {window**2} pairs of a first and a last step "
        f"the first has the greater loss; chance gives {needed:.4g} or more in 1 of 100 (Mann and Whitney)",
        next_action=""
        if fell and beyond_chance
        else "raise learning_rate or epochs if it fell too little, or no more than it varies; lower learning_rate if it rose",
    )


def greater_pairs(first: Sequence[float], last: Sequence[float]) -> float:
    """Mann and Whitney's U: pairs (a of first, b of last) with a > b; a tie counts half."""
    return sum((a > b) + 0.5 * (a == b) for a in first for b in last)


def pairs_beyond_chance(n: int) -> float:
    """U that two samples of `n` from one distribution exceed in 1 of 100 cases, by its normal approximation.

    Mean n²/2, variance n² (2n + 1) / 12, and half a pair for continuity (Mann and Whitney, 1947). It
    asks nothing of the losses' distribution: batch losses are skewed, and no mean ± error fits them.
    """
    return n * n / 2 + 0.5 + CHANCE_Z * n * math.sqrt((2 * n + 1) / 12)


def _adapter_files(facts: FinetuneFacts, view: View) -> Check:
    digest = tree_digest(dict(facts.adapter))
    wrong = [f"{r.where} reads {r.data.adapter_digest[:16]}…" for r in facts.ranks if r.data.adapter_digest != digest]
    return decide(
        "finetune.adapter.files",
        "the adapter on storage is the one that every rank reads there",
        not wrong,
        expected=digest,
        actual=shorten(wrong) or digest,
        evidence=(view.evidence.ref(ADAPTER_WEIGHTS), view.evidence.ref(ADAPTER_CONFIG), *_rank_refs(facts, view)),
        derivation="tree digest of the adapter's folder, computed again from the recorded files",
        next_action="storage gives ranks different bytes: see the storage rung",
    )


def _adapter_form(facts: FinetuneFacts, view: View) -> Check:
    lora, config, tensors = view.inputs.recipe.lora, facts.adapter_config, facts.tensors
    base = facts.staged.base.path
    asked = {
        "base_model_name_or_path": base,
        "peft_type": "LORA",
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
    }
    problems = [f"{k} is {config.get(k)!r}, not {v!r}" for k, v in asked.items() if config.get(k) != v]
    if sorted(config.get("target_modules") or ()) != sorted(lora.target_modules):
        problems.append(f"target_modules are {config.get('target_modules')}")
    for name, tensor in tensors.items():
        kind = next((k for k in ("lora_A", "lora_B") if k in name), None)
        partner = name.replace("lora_A", "lora_B") if kind == "lora_A" else name.replace("lora_B", "lora_A")
        rank_axis = 0 if kind == "lora_A" else -1
        if kind is None or partner not in tensors or len(tensor.shape) != 2 or tensor.shape[rank_axis] != lora.r:
            problems.append(f"{name} {tensor.shape} is no A or B of rank {lora.r} with its partner")
        if tensor.dtype != "F32":
            problems.append(f"{name} is {tensor.dtype}")
    modules = {name.split(".lora_")[0].rsplit(".", 1)[-1] for name in tensors}
    if modules != set(lora.target_modules):
        problems.append(f"adapted are {', '.join(sorted(modules)) or 'none'}")
    count = sum(t.count for t in tensors.values())
    problems += [
        f"{r.where} trained {r.data.trainable_parameters:,} of {r.data.total_parameters:,} parameters"
        for r in facts.ranks
        if r.data.trainable_parameters != count or r.data.total_parameters <= count
    ]
    return decide(
        "finetune.adapter.form",
        f"the adapter is LoRA of rank {lora.r} on the declared modules, and its tensors are all that was trained",
        not problems,
        expected=f"r {lora.r}, alpha {lora.alpha}, {len(lora.target_modules)} modules",
        actual=shorten(problems) or f"{count:,} parameters in {len(tensors)} tensors",
        evidence=(view.evidence.ref(ADAPTER_CONFIG), view.evidence.ref(ADAPTER_WEIGHTS), *_rank_refs(facts, view)),
        derivation="counted again from the header of adapter_model.safetensors",
        next_action=RERUN,
    )


def _adapter_layers(facts: FinetuneFacts, view: View) -> Check:
    """Which layers the tensors belong to, against the recipe and the base's own configuration."""
    wanted_layers, total = view.inputs.recipe.lora.layers, facts.base_layers
    first = 0 if wanted_layers is None else max(0, total - wanted_layers)
    wanted = set(range(first, total))
    numbers = {name: _LAYER.search(name) for name in facts.tensors}
    found = {int(match[1]) for match in numbers.values() if match is not None}
    problems = []
    if wanted_layers is not None and wanted_layers > total:
        problems.append(f"{wanted_layers} layers are asked for, the base has {total}")
    if wanted - found:
        problems.append(f"no tensor in layer {shorten([str(n) for n in sorted(wanted - found)])}")
    if found - wanted:
        problems.append(f"tensors in layer {shorten([str(n) for n in sorted(found - wanted)])}")
    if facts.base_config_sha256 != facts.staged.base.files.get("config.json"):
        problems.append("base-config.json is not the config.json that was staged")
    return decide(
        "finetune.adapter.layers",
        f"the adapter lies in {'all' if wanted_layers is None else 'the last ' + str(wanted_layers)} of the base's {total} layers",
        not problems,
        expected=f"layers {first} to {total - 1}",
        actual=shorten(problems) or f"layers {min(found)} to {max(found)}",
        evidence=(view.evidence.ref(ADAPTER_WEIGHTS), view.evidence.ref(BASE)),
        derivation="layer numbers in the tensors' names, against lora.layers of the recipe and the base's config.json, "
        "whose sha256 is the staged one's",
        next_action=RERUN,
    )


def _adapter_same(facts: FinetuneFacts, view: View) -> Check:
    digest = file_parameter_digest(facts.tensors)
    wrong = [
        f"{r.where} ended with {r.data.parameter_digest[:16]}…"
        for r in facts.ranks
        if r.data.parameter_digest != digest
    ]
    return decide(
        "finetune.adapter.same_on_all_ranks",
        "all ranks ended with bit-identical parameters, and these lie in the file",
        not wrong,
        expected=digest,
        actual=shorten(wrong) or digest,
        evidence=(
            view.evidence.ref(ADAPTER_WEIGHTS),
            *_rank_refs(facts, view, (r.data.parameter_digest for r in facts.ranks)),
        ),
        derivation="sha256 over name, type, shape and bytes of every tensor, computed again from the file",
        next_action="gradients were not the same on all ranks: see the ddp rung of these nodes before trusting any training",
    )


def _adapter_learned(facts: FinetuneFacts, view: View) -> Check:
    b_tensors = [t for name, t in facts.tensors.items() if "lora_B" in name and t.dtype == "F32"]
    norm = math.sqrt(sum(t.square_sum() for t in b_tensors))
    finite = math.isfinite(norm) and all(
        math.isfinite(t.square_sum()) for name, t in facts.tensors.items() if "lora_A" in name and t.dtype == "F32"
    )
    wrong = [f"{r.where} says {r.data.lora_b_norm:g}" for r in facts.ranks if not _near(r.data.lora_b_norm, norm, 1e-6)]
    return decide(
        "finetune.adapter.learned",
        "the adapter changes the model: its B matrices, which start at 0, are not 0, and every value is finite",
        finite and norm > 0 and not wrong,
        expected="> 0",
        actual=shorten(wrong) or (norm if finite else "not finite"),
        evidence=(view.evidence.ref(ADAPTER_WEIGHTS), *_rank_refs(facts, view)),
        derivation="norm over all lora_B tensors, computed again from the file",
        next_action="the adapter never learned: look at the learning rate and at the gradients in train.jsonl",
    )
