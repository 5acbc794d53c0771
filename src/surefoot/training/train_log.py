"""What a training job writes down: ``train.jsonl``, ``samples-<r>.jsonl`` and each rank's report. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from surefoot.benchmarks.device import Device
from surefoot.model.base import Record

LOG_FILE = "train.jsonl"
ADAPTER_FOLDER = "adapter"
BASE_CONFIG = "base-config.json"
"""Copy of the base model's config.json, as rank 0 read it."""


def samples_file(rank: int) -> str:
    """Name of the file in which a rank lists the rows it learned from, one line a step."""
    return f"samples-{rank}.jsonl"


class TrainHeader(Record):
    """First line of the log: what was asked, resolved."""

    kind: Literal["surefoot-train"] = "surefoot-train"
    version: Literal[1] = 1
    run: str
    nonce: str
    recipe_digest: str
    world_size: int = Field(ge=1)
    micro_batch_size: int = Field(ge=1)
    accumulation: int = Field(ge=1)
    global_batch_size: int = Field(ge=1)
    rows: int = Field(ge=1)
    epochs: int = Field(ge=1)
    steps: int = Field(ge=1)
    seed: int
    device: Literal["cpu", "cuda"]
    compute_dtype: Literal["float32", "bfloat16"]


class TimeSplit(Record):
    """Where rank 0's wall time went, seconds."""

    data_s: float = Field(ge=0)
    """Padding and moving batches."""
    forward_s: float = Field(ge=0)
    backward_s: float = Field(ge=0)
    """Gradients and their all-reduce, waiting for the slowest rank included."""
    optimiser_s: float = Field(ge=0)
    """Clipping, update, and agreeing on the loss."""


class TrainStep(Record):
    """One optimiser step; counts are over all ranks."""

    kind: Literal["step"] = "step"
    step: int = Field(ge=1)
    epoch: int = Field(ge=1)
    loss: float
    """Mean over the step's target tokens, before the update."""
    learning_rate: float = Field(ge=0)
    grad_norm: float = Field(ge=0)
    """Before clipping."""
    samples: int = Field(ge=1)
    tokens: int = Field(ge=1)
    """Without padding."""
    target_tokens: int = Field(ge=1)
    tokens_per_s: float = Field(gt=0)
    seconds: float = Field(gt=0)
    time: TimeSplit


class TrainTotals(Record):
    """Last line of the log."""

    kind: Literal["totals"] = "totals"
    steps: int = Field(ge=1)
    samples: int = Field(ge=1)
    tokens: int = Field(ge=1)
    target_tokens: int = Field(ge=1)
    seconds: float = Field(gt=0)
    """Wall time of the loop on rank 0."""
    time: TimeSplit
    """Sum over the steps."""


class SampleStep(Record):
    """One line of ``samples-<r>.jsonl``: rows (from 0) that this rank learned from in this step."""

    step: int = Field(ge=1)
    epoch: int = Field(ge=1)
    rows: tuple[int, ...]


class TrainReport(Record):
    """A rank's own account of the training."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=()
    )

    device: Device
    """Where the model's own tensors were."""
    seed: int
    steps: int = Field(ge=1)
    samples: int = Field(ge=0)
    """This rank's."""
    tokens: int = Field(ge=0)
    target_tokens: int = Field(ge=0)
    first_loss: float
    """Over all ranks, so the same on each."""
    last_loss: float
    trainable_parameters: int = Field(ge=1)
    total_parameters: int = Field(ge=1)
    base_digest: str
    """Tree digest of the base model's folder as this rank read it."""
    data_digest: str
    adapter_digest: str
    """Tree digest of the adapter's folder as this rank reads it from storage."""
    parameter_digest: str
    """`surefoot.training.tensors.parameter_digest` of the adapter in this rank's memory."""
    lora_b_norm: float = Field(ge=0)
    samples_sha256: str
    """Of this rank's samples file."""
    log_sha256: str
    """Of train.jsonl; empty on ranks that do not write it."""
    versions: dict[str, str]
