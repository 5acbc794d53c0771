"""The cache rung's evidence of the demonstration, from a real staging into a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import recorded
from surefoot.model.ladder import Cache, Ladder
from surefoot.model.recipe import Recipe, TaskSource
from surefoot.node.rank import Rank
from surefoot.rungs.cache import RUNG, STAGE, VERIFY
from surefoot.training import verify_cache
from surefoot.training.stage import stage

NONCE = "nonce-cache"


def cached(root: Path, recipe: Recipe | None = None) -> recorded.Recorded:
    """Stage, verify as one node does, and record both jobs."""
    recipe = recipe or recorded.demo_recipe()
    spec = Cache(rung="cache")
    inputs = recorded.inputs_of(recipe, Ladder(name="l", rungs=(spec,)))
    plan = recorded.plan_of(RUNG, spec, inputs, root, nonce=NONCE, needs={})
    asked = plan.jobs[0].request
    staged = stage(
        asked["base"],
        TaskSource.model_validate(asked["train"]),
        TaskSource.model_validate(asked["evaluate"]),
        asked["overlap"],
        Path(asked["cache"]),
    )
    files = recorded.job_files(plan, plan.jobs[0], [staged.canonical()])
    folder = root / "verify"
    folder.mkdir(exist_ok=True)
    account = root / "staged.json"
    account.write_bytes(files[f"raw/{STAGE}/rank-0.json"])
    seen = verify(folder, account)
    files |= recorded.job_files(plan, plan.jobs[1], [seen])
    files[f"raw/{VERIFY}/prompts.json"] = (folder / "prompts.json").read_bytes()
    return recorded.Recorded(rung=RUNG, spec=spec, inputs=inputs, plan=plan, files=files)


def verify(folder: Path, account: Path) -> dict[str, Any]:
    """What the verification program reports, run in this process."""
    said: dict[str, Any] = {}
    rank = Rank(verify_cache.PROGRAM, 0, 0, 1, folder, {"staged": str(account)}, 0.0)
    with mock.patch.dict(os.environ, {"SUREFOOT_NONCE": NONCE}), mock.patch.object(Rank, "report", lambda _, data: said.update(data)):  # fmt: skip
        verify_cache.main(rank)
    return said
