"""What a fine-tune's evidence holds, read and complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.rungs.found_network import Network
from surefoot.rungs.judging import RankData, Said
from surefoot.training.assets import StagedAssets
from surefoot.training.tensors import Tensor
from surefoot.training.train_log import (
    ADAPTER_FOLDER,
    BASE_CONFIG,
    LOG_FILE,
    SampleStep,
    TrainHeader,
    TrainReport,
    TrainStep,
    TrainTotals,
)

JOB = "finetune"
LOG = f"raw/{JOB}/{LOG_FILE}"
ADAPTER = f"raw/{JOB}/{ADAPTER_FOLDER}"
ADAPTER_WEIGHTS = f"{ADAPTER}/adapter_model.safetensors"
ADAPTER_CONFIG = f"{ADAPTER}/adapter_config.json"
BASE = f"raw/{JOB}/{BASE_CONFIG}"


class RankTrain(RankData, TrainReport, Network):
    """What ``surefoot.training.train`` reports from each rank."""


@dataclass(frozen=True)
class TrainLog:
    """``train.jsonl``: line 1, lines 2 to N+1, line N+2."""

    header: TrainHeader
    steps: tuple[TrainStep, ...]
    totals: TrainTotals


@dataclass(frozen=True)
class FinetuneFacts:
    """The evidence of one fine-tune."""

    ranks: tuple[Said[RankTrain], ...]
    log: TrainLog
    samples: tuple[tuple[SampleStep, ...], ...]
    """By rank: the rows it learned from, step by step."""
    adapter: Mapping[str, str]
    """File in the adapter's folder → sha256, computed from the evidence."""
    tensors: Mapping[str, Tensor]
    adapter_config: Mapping[str, Any]
    base_config_sha256: str
    """Of the base's config.json as the job copied it."""
    base_layers: int
    """Layers of the base, by its config.json."""
    job_s: float
    """Wall time of the job by the scheduler's account, seconds."""
    staged: StagedAssets
