"""The trainer: the same adapter however a batch is split, bit for bit by the same seed, and a reason when it stops."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recorded
from surefoot.model.recipe import Recipe, TaskSource
from surefoot.training.shipped_demo import FOLDER
from surefoot.training.stage import stage
from surefoot.training.tensors import read_tensors

pytestmark = pytest.mark.slow

DEMO = TaskSource(source="builtin:demo-train", rows=24)
HELD = TaskSource(source="builtin:demo-eval")


def start(folder: Path, recipe: Recipe, world: int, cache: Path) -> list[subprocess.Popen[str]]:
    """The ranks of a training job, as processes."""
    staged = stage(recipe.base, recipe.train, recipe.evaluate, recipe.overlap, cache)
    request = {
        "recipe": recipe.canonical(), "device": "cpu", "backend": "gloo", "init_timeout_s": 60,
        "environment": None,
        "base": {"path": staged.base.path, "digest": staged.base.digest},
        "train": {"path": staged.train.path, "digest": staged.train.digest},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps(request))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "SUREFOOT_JOB_FOLDER": str(folder), "SUREFOOT_JOB_ID": "1", "SUREFOOT_JOB_NAME": "finetune",
        "SUREFOOT_RUN": "r", "SUREFOOT_NONCE": "n", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, "-m", "surefoot.training.train"],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip


def finish(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """(exit code, output) of every rank; none is left behind."""
    try:
        return [(rank.returncode, out) for rank in ranks for out in [rank.communicate(timeout=120)[0]]]
    finally:
        for rank in ranks:
            rank.kill()


def train(folder: Path, recipe: Recipe, world: int, cache: Path) -> list[dict[str, Any]]:
    """Reports of all ranks of a training that ended well."""
    for code, output in finish(start(folder, recipe, world, cache)):
        assert code == 0, output
    return [json.loads((folder / f"rank-{rank}.json").read_text())["data"] for rank in range(world)]


def steps(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()[1:-1]]


def adapter(folder: Path) -> dict[str, list[float]]:
    data = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    return {name: memoryview(bytes(t.raw)).cast("f").tolist() for name, t in read_tensors(data, file="a").items()}


def recipe_of(**changes: Any) -> Recipe:
    return recorded.demo_recipe(**{"train": DEMO.canonical(), "evaluate": HELD.canonical(), "epochs": 2, **changes})


def test_one_rank_of_eight_is_two_ranks_of_two_with_two_accumulations(tmp_path: Path) -> None:
    train(tmp_path / "one", recipe_of(), 1, tmp_path / "cache")
    train(tmp_path / "two", recipe_of(micro_batch_size=2), 2, tmp_path / "cache")
    for one, two in zip(steps(tmp_path / "one"), steps(tmp_path / "two"), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        assert one["grad_norm"] == pytest.approx(two["grad_norm"], rel=1e-4)
        assert [one[k] for k in ("samples", "tokens", "target_tokens")] == [two[k] for k in ("samples", "tokens", "target_tokens")]  # fmt: skip
    one_adapter, two_adapter = adapter(tmp_path / "one"), adapter(tmp_path / "two")
    assert one_adapter.keys() == two_adapter.keys()
    for name, values in one_adapter.items():
        assert values == pytest.approx(two_adapter[name], abs=1e-4), name
    header = json.loads((tmp_path / "two" / "train.jsonl").read_text().splitlines()[0])
    assert (header["micro_batch_size"], header["accumulation"], header["world_size"]) == (2, 2, 2)


def test_the_same_seed_gives_the_same_adapter_and_another_seed_another(tmp_path: Path) -> None:
    dropout = {"r": 8, "alpha": 16, "dropout": 0.1}
    first = train(tmp_path / "a", recipe_of(lora=dropout), 2, tmp_path / "cache")
    again = train(tmp_path / "b", recipe_of(lora=dropout), 2, tmp_path / "cache")
    other = train(tmp_path / "c", recipe_of(lora=dropout, seed=2), 2, tmp_path / "cache")
    assert {r["parameter_digest"] for r in first} == {r["parameter_digest"] for r in again}
    assert {r["adapter_digest"] for r in first} == {r["adapter_digest"] for r in again}
    assert first[0]["parameter_digest"] != other[0]["parameter_digest"]


def test_an_uneven_last_batch_drops_and_doubles_nothing_even_where_a_rank_has_none(tmp_path: Path) -> None:
    recipe = recipe_of(train={**DEMO.canonical(), "rows": 9}, epochs=2)
    reports = train(tmp_path / "a", recipe, 2, tmp_path / "cache")
    assert [r["samples"] for r in reports] == [10, 8]
    rows = [
        json.loads(line)
        for rank in range(2)
        for line in (tmp_path / "a" / f"samples-{rank}.jsonl").read_text().splitlines()
    ]
    for epoch in (1, 2):
        assert sorted(r for step in rows if step["epoch"] == epoch for r in step["rows"]) == list(range(9))
    assert [step["samples"] for step in steps(tmp_path / "a")] == [8, 1, 8, 1]
    train(tmp_path / "b", recipe, 1, tmp_path / "cache")
    assert [s["loss"] for s in steps(tmp_path / "a")] == pytest.approx([s["loss"] for s in steps(tmp_path / "b")], rel=1e-4)  # fmt: skip


def test_ranks_speak_of_the_files_that_lie_there(tmp_path: Path) -> None:
    first, second = train(tmp_path / "a", recipe_of(), 2, tmp_path / "cache")
    folder = tmp_path / "a"
    assert first["log_sha256"] == hashlib.sha256((folder / "train.jsonl").read_bytes()).hexdigest()
    assert second["log_sha256"] == ""
    assert second["samples_sha256"] == hashlib.sha256((folder / "samples-1.jsonl").read_bytes()).hexdigest()
    assert sorted(path.name for path in (folder / "adapter").iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]  # fmt: skip
    assert first["trainable_parameters"] == 41_472
    assert first["last_loss"] < first["first_loss"] or first["last_loss"] < 1


@pytest.mark.parametrize(
    ("changes", "world", "code", "told"),
    [
        ({"global_batch_size": 7}, 2, 3, "global_batch_size 7 cannot be shared evenly by 2 ranks"),
        ({"max_length": 48}, 1, 3, "training row 'demo-train-"),
        ({"lora": {"target_modules": ["q_proj", "c_attn"]}}, 1, 3, "no module named c_attn"),
        ({"lora": {"layers": 4}}, 1, 3, "lora.layers 4: the base model has 3 layers"),
        ({"learning_rate": 1e30, "warmup_ratio": 0}, 2, 1, "training has diverged"),
    ],
)
def test_what_cannot_be_trained_ends_with_a_reason_and_its_exit_code(
    tmp_path: Path, changes: dict[str, Any], world: int, code: int, told: str
) -> None:
    for found, output in finish(start(tmp_path / "a", recipe_of(**changes), world, tmp_path / "cache")):
        assert found == code, output
        assert told in output
        assert "Traceback" not in output
    assert not list((tmp_path / "a").glob("rank-*.json"))
    assert not (tmp_path / "a" / "adapter").exists()


def test_a_rank_that_cannot_prepare_ends_at_once_instead_of_waiting_for_the_others(tmp_path: Path) -> None:
    ranks = start(tmp_path / "a", recipe_of(max_length=48), 2, tmp_path / "cache")
    ranks[1].kill()  # the other rank never comes: joining first would wait for it
    ranks[1].communicate()
    output = ranks[0].communicate(timeout=45)[0]  # less than init_timeout_s
    assert ranks[0].returncode == 3, output
    assert "max_length is 48" in output


def test_a_base_that_was_damaged_after_staging_is_not_trained_on(tmp_path: Path) -> None:
    ranks = start(tmp_path / "a", recipe_of(), 1, tmp_path / "cache")
    config = next((tmp_path / "cache" / "models").glob("*/config.json"))
    config.write_text(config.read_text() + " ")
    ((code, output),) = finish(ranks)
    assert code == 4
    assert "staged was" in output


def test_a_chat_template_that_is_missing_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(FOLDER / "base", base)
    (base / "chat_template.jinja").unlink()
    ((code, output),) = finish(start(tmp_path / "a", recipe_of(base=f"path:{base}"), 1, tmp_path / "cache"))
    assert code == 3
    assert "no chat template" in output
