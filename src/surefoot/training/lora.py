"""The adapter: put on the base model, counted, digested, saved in PEFT's format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict

from surefoot.errors import RequestError
from surefoot.files import tree_files, write_atomic
from surefoot.model.recipe import Lora
from surefoot.training.store import put_in_place
from surefoot.training.tensors import parameter_digest


def add_adapter(model: Any, lora: Lora, *, seed: int) -> PeftModel:
    """`model` with a fresh LoRA adapter, initialised by `seed`. Raises RequestError for modules it lacks."""
    total = int(model.config.num_hidden_layers)
    if lora.layers is not None and lora.layers > total:
        raise RequestError(
            f"lora.layers {lora.layers}: the base model has {total} layers", next_action="lower it, or leave it out"
        )
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        layers_to_transform=None if lora.layers is None else list(range(total - lora.layers, total)),
        task_type="CAUSAL_LM",
    )
    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = sorted(set(lora.target_modules) - present)
    if missing:
        raise RequestError(
            f"lora.target_modules: the base model has no module named {', '.join(missing)}",
            next_action=f"its linear modules are {', '.join(linear_modules(model))}",
        )
    torch.manual_seed(seed)
    return get_peft_model(model, config)


def linear_modules(model: Any) -> list[str]:
    """Names that LoRA may target, sorted."""
    return sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)})


def adapter_state(model: PeftModel) -> dict[str, torch.Tensor]:
    """The adapter's tensors under the names that PEFT saves them by: contiguous, float32, on the CPU."""
    return {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in get_peft_model_state_dict(model).items()
    }


def digest_of_state(state: dict[str, torch.Tensor]) -> str:
    """`parameter_digest` of an adapter in memory."""
    return parameter_digest(
        (name, "F32", tuple(tensor.shape), tensor.numpy().tobytes()) for name, tensor in state.items()
    )


def lora_b_norm(state: dict[str, torch.Tensor]) -> float:
    """Norm over all B matrices. They start at 0, so 0 is an adapter that never learned."""
    return float(sum(t.double().square().sum() for name, t in state.items() if "lora_B" in name) ** 0.5)


def count_parameters(model: Any) -> tuple[int, int]:
    """(trainable, all) parameters; tied ones counted once."""
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)


def save_adapter(model: PeftModel, folder: Path) -> dict[str, str]:
    """Save in PEFT's format (adapter_model.safetensors, adapter_config.json); file → sha256.

    Written beside, synced and renamed, so that `folder` is complete or absent, even after a crash.
    Equal adapters give equal bytes.
    """
    beside = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    model.save_pretrained(str(beside), safe_serialization=True)
    (beside / "README.md").unlink(missing_ok=True)  # an empty model card
    path = beside / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = sorted(config["target_modules"])  # PEFT keeps a set: its order changes by process
    write_atomic(path, json.dumps(config, indent=1, sort_keys=True) + "\n")
    put_in_place(beside, folder)
    return tree_files(folder)
