"""A recipe: a complete, named fine-tune configuration. Nothing of a training run is decided elsewhere."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from surefoot.model.base import Record

SOURCE_SCHEMES = ("builtin:", "path:", "hf:")


def _known_scheme(source: str) -> str:
    if not source.startswith(SOURCE_SCHEMES):
        raise ValueError(f"a source starts with builtin:, path: or hf:, not {source!r}")
    return source


class TaskSource(Record):
    """Where rows come from and how a row becomes a prompt and an answer.

    A source that is already in Surefoot's own form (JSON lines with ``id, category, prompt,
    answer``) needs `source` only. Any other JSON, JSON-lines or CSV file needs `prompt` and
    `answer` templates over its own columns: ``"Message: {text}"``.
    """

    source: str
    """``builtin:demo-train``, ``path:FILE`` (relative to the recipe's file), ``hf:ORG/DATASET[:split]``."""
    format: Literal["jsonl", "json", "csv"] = "jsonl"
    prompt: str = ""
    """Template over the row's columns; empty: the column ``prompt``."""
    answer: str = ""
    """Template; empty: the column ``answer``. ``{column!j}`` writes the column as JSON."""
    category: str = ""
    """Template or plain word; empty: the column ``category``."""
    scorer: Literal["exact", "qa", "json", ""] = ""
    """Scorer of every row; empty: the column ``scorer``, else chosen by category."""
    rows: int | None = Field(default=None, ge=1)
    """Take this many rows, chosen by `seed`; None: all of them."""
    seed: int = 0

    _scheme = field_validator("source")(_known_scheme)


class Lora(Record):
    """PEFT's LoRA configuration."""

    r: int = Field(default=8, ge=1)
    alpha: int = Field(default=16, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    layers: int | None = Field(default=None, ge=1)
    """Adapt only the last N layers; None: all."""


class Recipe(Record):
    """A fine-tune, complete: base, data, adapter, optimiser, evaluation."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    description: str = ""
    base: str
    """Base model: ``builtin:demo-base``, ``path:FOLDER`` (or one ``.gguf`` file), ``hf:ORG/MODEL``."""
    train: TaskSource
    evaluate: TaskSource
    """Held out: no prompt of it may stand in `train`."""
    overlap: Literal["refuse", "drop"] = "refuse"
    """Training rows whose prompt stands in `evaluate` too: ``refuse`` them, or ``drop`` them from
    training and say which. Published data sets often have a few."""
    lora: Lora = Lora()
    seed: int = 0
    learning_rate: float = Field(gt=0)
    warmup_ratio: float = Field(default=0.05, ge=0, le=1)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    epochs: int = Field(default=1, ge=1)
    global_batch_size: int = Field(default=8, ge=1)
    """Samples of one optimiser step over all ranks: world size × micro-batch × accumulation."""
    micro_batch_size: int | None = Field(default=None, ge=1)
    """Samples of one forward pass on one rank; None: global batch / world size."""
    max_length: int = Field(default=512, ge=8)
    """Tokens of prompt and answer; a longer sample is an error, not cut quietly."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Computation; adapter weights and optimiser state are always float32."""
    max_new_tokens: int = Field(default=32, ge=1)

    _scheme = field_validator("base")(_known_scheme)

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.micro_batch_size is not None and self.global_batch_size % self.micro_batch_size:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} is not a multiple of micro_batch_size {self.micro_batch_size}"
            )
        return self
