"""Cache and fine-tune with real processes: what the programs write is what the rungs judge."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import recorded
import rungs_harness
from surefoot.connection.local import LocalConnection
from surefoot.errors import EvidenceError
from surefoot.model.ladder import AnyRung, Cache, Finetune, Ladder
from surefoot.model.recipe import Recipe
from surefoot.model.run import JobsStep, RunInputs
from surefoot.paths import RootPaths
from surefoot.rungs import cache, finetune
from surefoot.rungs.base import Rung


def collect(
    rung: Rung[object, object], spec: AnyRung, inputs: RunInputs, root: Path, needs: dict[str, object]
) -> recorded.Recorded:
    """Plan, run every job, and record what lies there."""
    plan = recorded.plan_of(rung, spec, inputs, root, nonce="00112233aabb", needs=needs)
    for step in plan.steps:
        assert isinstance(step, JobsStep)
        rungs_harness.run_jobs(step)
    attempt = RootPaths(root).run(recorded.RUN).rung(rung.name).attempt(1).folder
    files = {p.relative_to(attempt).as_posix(): p.read_bytes() for p in attempt.rglob("*") if p.is_file()}
    return recorded.Recorded(rung=rung, spec=spec, inputs=inputs, plan=plan, files=files, needs=needs)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [None, 2])
def test_the_demonstration_is_staged_verified_and_trained(
    tmp_path: Path, micro: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(recorded, "PYTHON", sys.executable)
    recipe: Recipe = recorded.demo_recipe(micro_batch_size=micro)
    specs = (Cache(rung="cache"), Finetune(rung="finetune", needs=("cache",)))
    inputs = recorded.inputs_of(recipe, Ladder(name="l", rungs=specs))
    package = rungs_harness.package_of(inputs)
    inputs = inputs.model_copy(update={"code_digest": package.code.digest})
    LocalConnection().put_tree(package.code.files, RootPaths(tmp_path).pushed(package.code.digest))
    staged = collect(cache.RUNG, specs[0], inputs, tmp_path, {})
    assert staged.failed() == set()
    trained = collect(finetune.RUNG, specs[1], inputs, tmp_path, {"cache": staged.evidence()})
    assert trained.failed() == set()
    details = trained.judge().details
    assert (details["micro_batch_size"], details["accumulation"]) == ((4, 1) if micro is None else (2, 2))
    assert details["trainable"] == 41_472
    moved = dataclasses.replace(trained, needs={"cache": staged.evidence()}, files=dict(trained.files))
    moved.files["raw/finetune/adapter/adapter_model.safetensors"] = b""
    with pytest.raises(EvidenceError, match="not safetensors"):
        moved.judge()
