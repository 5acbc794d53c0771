"""Base models: from a declared source to a plain folder (config, tokenizer, safetensors).

transformers and torch are imported only where a GGUF file is converted.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from surefoot.errors import MachineryError, RequestError
from surefoot.files import sha256_file

MODEL_FILES = (
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*",
    "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template.*", "*.model",
)  # fmt: skip
"""What of a model folder is staged. Pickled weights (.bin, .pt) are not: loading them runs code."""


def model_files(folder: Path) -> dict[str, str]:
    """File → sha256 of what counts as the model in `folder`. Raises RequestError when it is not one."""
    if not folder.is_dir():
        raise RequestError(f"{folder}: no such folder", next_action="check base in the recipe; it is read on the node that stages it")  # fmt: skip
    names = [p.name for p in folder.iterdir() if p.is_file() and any(fnmatch.fnmatch(p.name, m) for m in MODEL_FILES)]
    missing = [
        what
        for what, there in {
            "config.json": "config.json" in names,
            "weights (*.safetensors)": any(n.endswith(".safetensors") for n in names),
            "a tokenizer (tokenizer*)": any(n.startswith("tokenizer") for n in names),
        }.items()
        if not there
    ]
    if missing:
        raise RequestError(
            f"{folder}: not a model folder, it lacks {', '.join(missing)}",
            next_action="save the model with save_pretrained (safetensors) and its tokenizer beside it",
        )
    return {name: sha256_file(folder / name) for name in sorted(names)}


def copy_model(source: Path, target: Path) -> None:
    """Copy the files that count as the model."""
    for name in model_files(source):
        shutil.copyfile(source / name, target / name)


def convert_gguf(source: Path, target: Path) -> None:
    """Convert one GGUF file to a plain folder, its weights dequantised to float32.

    transformers dequantises on load but leaves a quantisation configuration behind that later
    loads trip over, so the weights go into a fresh model. Raises RequestError.
    """
    if importlib.util.find_spec("gguf") is None:
        raise RequestError(
            f"{source}: reading a GGUF file needs the Python package gguf on the node that stages it",
            next_action="pip install gguf there, or give a folder with safetensors as the base",
        )
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    place: dict[str, Any] = {"gguf_file": source.name}
    try:
        loaded = AutoModelForCausalLM.from_pretrained(str(source.parent), dtype=torch.float32, **place)
        config = AutoConfig.from_pretrained(str(source.parent), **place)
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **place)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise RequestError(f"{source}: cannot be read as a GGUF model: {error}") from error
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.save_pretrained(str(target))
    tokenizer.save_pretrained(str(target))


def download_model(repository: str, target: Path) -> None:
    """Fetch ``ORG/NAME[@revision]`` from the hub. Raises RequestError or MachineryError."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise RequestError("hf: sources need the Python package huggingface_hub on the node that stages them")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    name, _, revision = repository.partition("@")
    try:
        snapshot_download(name, revision=revision or None, allow_patterns=list(MODEL_FILES), local_dir=str(target))
    except HFValidationError as error:
        raise RequestError(f"hf:{repository}: {error}", next_action="write hf:ORG/NAME or hf:ORG/NAME@REVISION") from error  # fmt: skip
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise MachineryError(
            f"hf:{repository}: cannot be fetched: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            next_action="a node without a way to the hub takes path:FOLDER; a gated model needs the node's own HF login",
        ) from error
    shutil.rmtree(target / ".cache", ignore_errors=True)


def source_path(source: str) -> Path:
    """The path of a ``path:`` source; ``~`` is the home on the node."""
    return Path(os.path.expanduser(source.removeprefix("path:")))  # noqa: PTH111 - Path.expanduser raises without HOME
