"""The table of rungs. A ladder names them; nothing else is looked up or discovered."""

from __future__ import annotations

from typing import Any

from surefoot.rungs import (
    cache,
    collectives,
    compute,
    ddp,
    drift,
    evaluate,
    fake_trainer,
    finetune,
    gate,
    inventory,
    mesh,
    precheck,
    review,
    runner,
    scheduler_smoke,
    storage,
    sync,
)
from surefoot.rungs.base import Rung

RUNGS: dict[str, Rung[Any, Any]] = {
    "runner": runner.RUNG,
    "sync": sync.RUNG,
    "inventory": inventory.RUNG,
    "drift": drift.RUNG,
    "scheduler": scheduler_smoke.RUNG,
    "precheck": precheck.RUNG,
    "mesh": mesh.RUNG,
    "storage": storage.RUNG,
    "collectives": collectives.RUNG,
    "compute": compute.RUNG,
    "cache": cache.RUNG,
    "ddp": ddp.RUNG,
    "fake_trainer": fake_trainer.RUNG,
    "finetune": finetune.RUNG,
    "evaluate": evaluate.RUNG,
    "gate": gate.RUNG,
    "review": review.RUNG,
}
