"""The fine-tune rung's evidence of a small training, written down consistently without any torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import recorded
import staged_run
from surefoot.files import tree_digest
from surefoot.model.ladder import Cache, Finetune, Ladder
from surefoot.rungs.cache import staged_assets
from surefoot.rungs.finetune import RUNG
from surefoot.training.schedule import learning_rate
from surefoot.training.sharding import rank_rows, step_rows
from surefoot.training.tensors import file_parameter_digest, read_tensors

NONCE = "nonce-train"
WORLD = 2
MODULES = ("q_proj", "v_proj")
LAYERS = 3
"""Of the shipped base."""
CPU = {
    "kind": "cpu", "index": None, "name": None, "uuid": None, "pci_bus_id": None, "memory_bytes": None,
    "torch": "2.13.0", "cuda": None, "nccl": None, "threads": 1,
}  # fmt: skip
FALLING = 8.0


def safetensors(tensors: dict[str, tuple[tuple[int, ...], list[float]]]) -> bytes:
    """A float32 safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def adapter_bytes(r: int, *, b: float = 0.5, layers: Sequence[int] = range(LAYERS)) -> bytes:
    """A LoRA adapter of rank `r` on two modules of each layer; every value of its B matrices is `b`."""
    tensors = {}
    for layer, module in [(layer, module) for layer in layers for module in MODULES]:
        stem = f"base_model.model.model.layers.{layer}.self_attn"
        tensors[f"{stem}.{module}.lora_A.weight"] = ((r, 6), [0.01 * k for k in range(r * 6)])
        tensors[f"{stem}.{module}.lora_B.weight"] = ((4, r), [b] * (4 * r))
    return safetensors(tensors)


def _lines(records: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def trained(
    root: Path,
    *,
    b: float = 0.5,
    falling: float = FALLING,
    ripple: float = 0.0,
    layers: Sequence[int] = range(LAYERS),
    **changes: Any,
) -> recorded.Recorded:
    """A run over the demo's 240 rows: 2 ranks, global batch 8, 3 epochs. `changes`: of the recipe.

    `ripple`: what every other step's loss lies above, and the others' below, the curve.
    """
    lora = {"r": 8, "alpha": 16, "target_modules": list(MODULES), **changes.pop("lora", {})}
    recipe = recorded.demo_recipe(lora=lora, **changes)
    cache = staged_run.cached(root, recipe)
    spec = Finetune(rung="finetune", needs=("cache",))
    inputs = recorded.inputs_of(recipe, Ladder(name="l", rungs=(Cache(rung="cache"), spec)))
    needs = {"cache": cache.evidence()}
    assets = staged_assets(needs["cache"])
    plan = recorded.plan_of(RUNG, spec, inputs, root, nonce=NONCE, needs=needs)
    batches = [
        (epoch, batch)
        for epoch in range(recipe.epochs)
        for batch in step_rows(240, global_batch_size=recipe.global_batch_size, seed=recipe.seed, epoch=epoch)
    ]
    phases = {"data_s": 0.001, "forward_s": 0.01, "backward_s": 0.02, "optimiser_s": 0.003}
    steps = [
        {
            "kind": "step", "step": n, "epoch": epoch + 1, "loss": 2.0 * math.exp(-falling * n / len(batches)) + (ripple if n % 2 else -ripple),
            "learning_rate": learning_rate(n, steps=len(batches), peak=recipe.learning_rate,
                                           warmup_ratio=recipe.warmup_ratio, schedule=recipe.schedule),
            "grad_norm": 0.5, "samples": len(batch), "tokens": 40 * len(batch), "target_tokens": 5 * len(batch),
            "seconds": 0.04, "tokens_per_s": 40 * len(batch) / 0.04, "time": phases,
        }
        for n, (epoch, batch) in enumerate(batches, 1)
    ]  # fmt: skip
    header = {
        "kind": "surefoot-train", "version": 1, "run": recorded.RUN, "nonce": NONCE,
        "recipe_digest": recipe.content_digest(), "world_size": WORLD, "micro_batch_size": 4, "accumulation": 1,
        "global_batch_size": 8, "rows": 240, "epochs": 3, "steps": len(batches), "seed": recipe.seed,
        "device": "cpu", "compute_dtype": "float32",
    }  # fmt: skip
    totals = {
        "kind": "totals", "steps": len(batches), "samples": 720, "tokens": 28800, "target_tokens": 3600, "seconds": 4.0,
        "time": {name: sum([seconds] * len(batches)) for name, seconds in phases.items()},
    }  # fmt: skip
    log = _lines([header, *steps, totals])
    samples = [
        _lines(
            [
                {"step": n, "epoch": epoch + 1, "rows": rank_rows(batch, rank, WORLD)}
                for n, (epoch, batch) in enumerate(batches, 1)
            ]
        )
        for rank in range(WORLD)
    ]
    weights = adapter_bytes(8, b=b, layers=layers)
    config = json.dumps(
        {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": list(MODULES),
         "base_model_name_or_path": assets.base.path}
    ).encode()  # fmt: skip
    adapter = {"adapter_model.safetensors": weights, "adapter_config.json": config}
    tensors = read_tensors(weights, file="adapter")
    data = [
        {
            "device": CPU, "seed": recipe.seed,
            "steps": len(batches), "samples": 360, "tokens": 14400, "target_tokens": 1800,
            "first_loss": steps[0]["loss"], "last_loss": steps[-1]["loss"],
            "trainable_parameters": len(layers) * 2 * (8 * 6 + 4 * 8), "total_parameters": 1000,
            "base_digest": assets.base.digest, "data_digest": assets.train.digest,
            "adapter_digest": tree_digest({k: hashlib.sha256(v).hexdigest() for k, v in adapter.items()}),
            "parameter_digest": file_parameter_digest(tensors), "lora_b_norm": math.sqrt(len(layers) * 2 * 4 * 8 * b * b),
            "samples_sha256": hashlib.sha256(samples[rank]).hexdigest(),
            "log_sha256": hashlib.sha256(log).hexdigest() if rank == 0 else "", "versions": {"torch": "2.13.0"},
        }
        for rank in range(WORLD)
    ]  # fmt: skip
    files = recorded.job_files(plan, plan.jobs[0], data)
    files["raw/finetune/train.jsonl"] = log
    files["raw/finetune/base-config.json"] = (Path(assets.base.path) / "config.json").read_bytes()
    files |= {f"raw/finetune/samples-{rank}.jsonl": text for rank, text in enumerate(samples)}
    files |= {f"raw/finetune/adapter/{name}": content for name, content in adapter.items()}
    return recorded.Recorded(rung=RUNG, spec=spec, inputs=inputs, plan=plan, files=files, needs=needs)


def sign(run: recorded.Recorded) -> recorded.Recorded:
    """Let the ranks' reports speak of the log and samples as they are now: a forger's work."""
    log = hashlib.sha256(run.files["raw/finetune/train.jsonl"]).hexdigest()
    for rank in range(WORLD):
        name = f"raw/finetune/rank-{rank}.json"
        report = json.loads(run.files[name])
        report["data"]["log_sha256"] = log if rank == 0 else ""
        seen = run.files[f"raw/finetune/samples-{rank}.jsonl"]
        report["data"]["samples_sha256"] = hashlib.sha256(seen).hexdigest()
        run.files[name] = json.dumps(report).encode()
    return run


def edit_line(run: recorded.Recorded, file: str, line: int, *path: str, to: object) -> recorded.Recorded:
    """Change one value in a line (from 1; -1 is the last) of a JSON-lines file, and sign it."""
    name = f"raw/finetune/{file}"
    lines = run.files[name].decode().splitlines()
    index = line - 1 if line > 0 else line
    record = json.loads(lines[index])
    at = record
    for key in path[:-1]:
        at = at[key]
    assert at[path[-1]] != to, "an edit that changes nothing tests nothing"
    at[path[-1]] = to
    lines[index] = json.dumps(record)
    run.files[name] = ("\n".join(lines) + "\n").encode()
    return sign(run)
