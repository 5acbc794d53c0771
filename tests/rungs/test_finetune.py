"""The fine-tune rung: what it claims holds, and damage to its evidence never stays PASSED."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

import recorded
import trained_run
from surefoot.errors import EvidenceError, RequestError
from surefoot.files import tree_digest
from surefoot.model.status import Status
from surefoot.rungs.finetune import RUNG, adapter_files, adapter_of
from surefoot.rungs.finetune_checks import greater_pairs, pairs_beyond_chance
from trained_run import edit_line, sign

RANK = ("raw/finetune/rank-0.json", "raw/finetune/rank-1.json")
LOG = "raw/finetune/train.jsonl"
WEIGHTS = "raw/finetune/adapter/adapter_model.safetensors"
CONFIG = "raw/finetune/adapter/adapter_config.json"
BASE = "raw/finetune/base-config.json"
OTHER = "0" * 64


@pytest.fixture
def run(tmp_path: Path) -> recorded.Recorded:
    return trained_run.trained(tmp_path)


def test_a_consistent_training_passes_and_its_report_has_the_curve(run: recorded.Recorded) -> None:
    judgement = run.judge()
    assert run.failed() == set()
    assert judgement.summary == "loss 1.83 → 0.000671 in 90 steps, 7,200 tok/s"
    assert len(judgement.details["loss"]) == 90
    assert set(judgement.details["loss"][0]) == {"step", "loss", "lr"}
    assert judgement.details["trainable"] == 480
    assert {m.metric: m.value for m in judgement.measurements}["train_tokens_per_second"] == 7200


def test_rungs_above_get_the_adapter_by_its_bytes(run: recorded.Recorded) -> None:
    reference = adapter_of(run.evidence())
    assert reference.digest == tree_digest(adapter_files(run.evidence()))
    assert reference.path == f"{run.plan.jobs[0].folder}/adapter"
    run.files[WEIGHTS] += b"x"
    assert adapter_of(run.evidence()).digest != reference.digest


def test_without_evidence_of_the_cache_nothing_is_planned_or_proved(run: recorded.Recorded, tmp_path: Path) -> None:
    run.needs = {}
    with pytest.raises(EvidenceError, match="cache"):
        run.judge()
    with pytest.raises(EvidenceError, match="cache"):
        recorded.plan_of(RUNG, run.spec, run.inputs, tmp_path, nonce="n", needs={})


def _rows(run: recorded.Recorded, rank: int) -> list[dict[str, list[int]]]:
    return [json.loads(line) for line in run.files[f"raw/finetune/samples-{rank}.jsonl"].decode().splitlines()]


def _put_rows(run: recorded.Recorded, rank: int, rows: list[dict[str, list[int]]]) -> None:
    run.files[f"raw/finetune/samples-{rank}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    sign(run)


def _repeat_row(run: recorded.Recorded) -> None:
    rows = _rows(run, 0)
    rows[3]["rows"][0] = rows[2]["rows"][0]
    _put_rows(run, 0, rows)


def _drop_row(run: recorded.Recorded) -> None:
    rows = _rows(run, 1)
    rows[3]["rows"].pop()
    _put_rows(run, 1, rows)


def _exchange_samples(run: recorded.Recorded) -> None:
    first, second = _rows(run, 0), _rows(run, 1)
    _put_rows(run, 0, second)
    _put_rows(run, 1, first)


def _flip_last_byte(run: recorded.Recorded) -> None:
    data = bytearray(run.files[WEIGHTS])
    data[-4] ^= 1
    run.files[WEIGHTS] = bytes(data)


Damage = Callable[[recorded.Recorded], object]

DAMAGES: dict[str, tuple[Damage, str]] = {
    "a step twice": (lambda r: edit_line(r, "train.jsonl", 11, "step", to=9), "finetune.steps"),
    "a step in the wrong epoch": (lambda r: edit_line(r, "train.jsonl", 32, "epoch", to=1), "finetune.steps"),
    "totals of fewer steps": (lambda r: edit_line(r, "train.jsonl", -1, "steps", to=89), "finetune.steps"),
    "a rank that stopped early": (lambda r: r.edit(RANK[1], "data", "steps", to=89), "finetune.steps"),
    "a rank with another loss": (lambda r: r.edit(RANK[1], "data", "last_loss", to=0.5), "finetune.steps"),
    "a row learned twice": (_repeat_row, "finetune.samples"),
    "a row left out": (_drop_row, "finetune.samples"),
    "ranks' rows exchanged": (_exchange_samples, "finetune.samples"),
    "samples counted wrong": (lambda r: edit_line(r, "train.jsonl", 5, "samples", to=7), "finetune.samples"),
    "tokens that do not add up": (lambda r: edit_line(r, "train.jsonl", -1, "tokens", to=1), "finetune.totals"),
    "a rank's tokens zeroed": (lambda r: r.edit(RANK[0], "data", "tokens", to=0), "finetune.totals"),
    "a rank's samples zeroed": (lambda r: r.edit(RANK[0], "data", "samples", to=0), "finetune.totals"),
    "a faster rate than tokens / seconds": (
        lambda r: edit_line(r, "train.jsonl", 3, "tokens_per_s", to=9e9),
        "finetune.times",
    ),
    "a loop longer than its job": (lambda r: edit_line(r, "train.jsonl", -1, "seconds", to=4000.0), "finetune.times"),
    "a loop shorter than its steps": (lambda r: edit_line(r, "train.jsonl", -1, "seconds", to=0.1), "finetune.times"),
    "a phase longer than its step": (
        lambda r: edit_line(r, "train.jsonl", 3, "time", "forward_s", to=9.0),
        "finetune.times",
    ),
    "a phase zeroed": (lambda r: edit_line(r, "train.jsonl", 3, "time", "forward_s", to=0.0), "finetune.times"),
    "another learning rate": (
        lambda r: edit_line(r, "train.jsonl", 50, "learning_rate", to=1e-3),
        "finetune.learning_rate",
    ),
    "a dead gradient": (lambda r: edit_line(r, "train.jsonl", 50, "grad_norm", to=0.0), "finetune.gradients"),
    "another world size": (lambda r: edit_line(r, "train.jsonl", 1, "world_size", to=4), "finetune.recipe"),
    "another micro-batch": (lambda r: edit_line(r, "train.jsonl", 1, "micro_batch_size", to=2), "finetune.recipe"),
    "another recipe": (lambda r: edit_line(r, "train.jsonl", 1, "recipe_digest", to=OTHER), "finetune.recipe"),
    "another dtype": (lambda r: edit_line(r, "train.jsonl", 1, "compute_dtype", to="bfloat16"), "finetune.recipe"),
    "another seed on one rank": (lambda r: r.edit(RANK[1], "data", "seed", to=7), "finetune.recipe"),
    "another device": (lambda r: r.edit(RANK[1], "data", "device", "kind", to="cuda"), "finetune.devices"),
    "other threads on one rank": (lambda r: r.edit(RANK[1], "data", "device", "threads", to=2), "finetune.devices"),
    "another base's configuration": (lambda r: r.edit(BASE, "hidden_size", to=97), "finetune.adapter.layers"),
    "a base of another depth": (lambda r: r.edit(BASE, "num_hidden_layers", to=4), "finetune.adapter.layers"),
    "other software on one rank": (
        lambda r: r.edit(RANK[1], "data", "versions", to={"torch": "1"}),
        "finetune.devices",
    ),
    "another base": (lambda r: r.edit(RANK[1], "data", "base_digest", to=OTHER), "finetune.base"),
    "other data": (lambda r: r.edit(RANK[0], "data", "data_digest", to=OTHER), "finetune.data"),
    "other parameters on one rank": (
        lambda r: r.edit(RANK[1], "data", "parameter_digest", to=OTHER),
        "finetune.adapter.same_on_all_ranks",
    ),
    "another adapter read by one rank": (
        lambda r: r.edit(RANK[1], "data", "adapter_digest", to=OTHER),
        "finetune.adapter.files",
    ),
    "other parameters counted": (
        lambda r: r.edit(RANK[1], "data", "trainable_parameters", to=481),
        "finetune.adapter.form",
    ),
    "another norm": (lambda r: r.edit(RANK[1], "data", "lora_b_norm", to=0.0), "finetune.adapter.learned"),
    "another rank of LoRA": (lambda r: r.edit(CONFIG, "r", to=16), "finetune.adapter.form"),
    "an adapter of another base": (
        lambda r: r.edit(CONFIG, "base_model_name_or_path", to="/x"),
        "finetune.adapter.form",
    ),
    "a byte of the weights": (_flip_last_byte, "finetune.adapter.same_on_all_ranks"),
    "a file beside the adapter": (lambda r: r.files.update({CONFIG + ".x": b"x"}), "finetune.adapter.files"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_by_the_check_that_speaks_of_it(run: recorded.Recorded, name: str) -> None:
    damage, check = DAMAGES[name]
    damage(run)
    assert check in run.failed()


def test_an_adapter_that_never_learned_fails(tmp_path: Path) -> None:
    assert trained_run.trained(tmp_path, b=0.0).failed() == {"finetune.adapter.learned"}


@pytest.mark.parametrize("falling", [0.0, 0.05, -1.0])
def test_a_loss_that_does_not_fall_by_the_margin_fails(tmp_path: Path, falling: float) -> None:
    assert trained_run.trained(tmp_path, falling=falling).failed() == {"finetune.loss_fell"}


def test_a_fall_that_its_steps_noise_could_give_is_not_proved(tmp_path: Path) -> None:
    steady, wild = 0.01, 0.6
    assert trained_run.trained(tmp_path / "a", falling=0.3, ripple=steady).failed() == set()
    run = trained_run.trained(tmp_path / "b", falling=0.3, ripple=wild)
    (check,) = [c for c in run.judge().checks if c.status is not Status.PASSED]
    assert (check.id, check.status) == ("finetune.loss_fell", Status.INCONCLUSIVE)
    assert "of 81 pairs" in check.derivation


def test_what_chance_gives_is_what_counting_all_orders_gives() -> None:
    # All C(10, 5) = 252 ways to deal ten ranks to two samples of five: 1 of 100 is 2.5 of them.
    ways = [greater_pairs(chosen, [r for r in range(10) if r not in chosen]) for chosen in combinations(range(10), 5)]
    assert sum(u >= pairs_beyond_chance(5) for u in ways) / len(ways) <= 0.01
    assert sum(u >= pairs_beyond_chance(5) for u in ways) >= 1
    assert greater_pairs([1.0, 2.0], [1.0, 0.0]) == 3.5


def test_the_margin_is_the_ladders_and_its_derivation_is_told(run: recorded.Recorded) -> None:
    assert run.plan.expect["min_loss_fall"] == 0.1
    run.plan.expect["min_loss_fall"] = 0.9999
    assert run.failed() == {"finetune.loss_fell"}
    (check,) = [c for c in run.judge().checks if c.id == "finetune.loss_fell"]
    assert check.status is Status.FAILED
    assert "min_loss_fall of the ladder" in check.derivation


def test_a_training_of_a_few_steps_proves_no_fall(tmp_path: Path) -> None:
    run = trained_run.trained(tmp_path, global_batch_size=120, epochs=3)
    check = next(c for c in run.judge().checks if c.id == "finetune.loss_fell")
    assert (check.status, check.actual) == (Status.INCONCLUSIVE, "6 steps")


@pytest.mark.parametrize(
    ("asked", "there", "ok"),
    [
        (None, (0, 1, 2), True),
        (2, (1, 2), True),
        (1, (2,), True),
        (None, (0, 1), False),
        (None, (1, 2), False),
        (2, (0, 1), False),
        (1, (0, 1, 2), False),
    ],
)
def test_the_adapter_lies_in_the_layers_that_the_recipe_names(
    tmp_path: Path, asked: int | None, there: tuple[int, ...], ok: bool
) -> None:
    run = trained_run.trained(tmp_path, layers=there, lora={"layers": asked})
    assert run.failed() == (set() if ok else {"finetune.adapter.layers"})


def test_an_adapter_without_layers_fails_where_layers_were_asked_for(run: recorded.Recorded) -> None:
    content = json.loads(run.files[BASE])
    del content["num_hidden_layers"]
    run.files[BASE] = json.dumps(content).encode()
    with pytest.raises(EvidenceError, match="names no number of layers"):
        run.judge()


def on_gpus(run: recorded.Recorded, *uuids: str, index: tuple[int, ...] = (0, 1)) -> recorded.Recorded:
    """The ranks' devices as GPUs, and the plan asking for them."""
    run.plan.expect.update(device="cuda")
    for rank, (uuid, at) in enumerate(zip(uuids, index, strict=True)):
        gpu = {
            "kind": "cuda",
            "index": at,
            "name": "H200",
            "uuid": uuid,
            "memory_bytes": 1,
            "nccl": "2.28",
            "cuda": "13",
        }
        content = json.loads(run.files[RANK[rank]])
        content["data"]["device"].update(gpu)
        run.files[RANK[rank]] = json.dumps(content).encode()
    return edit_line(run, "train.jsonl", 1, "device", to="cuda")


def test_ranks_on_gpus_of_their_own_pass_and_two_ranks_on_one_gpu_fail(tmp_path: Path) -> None:
    assert on_gpus(trained_run.trained(tmp_path / "a"), "GPU-a", "GPU-b").failed() == set()
    assert on_gpus(trained_run.trained(tmp_path / "b"), "GPU-a", "GPU-a").failed() == {"finetune.devices"}
    # A site that binds each task to one GPU: both call theirs cuda:0, and their UUIDs tell them apart.
    assert on_gpus(trained_run.trained(tmp_path / "c"), "GPU-a", "GPU-b", index=(0, 0)).failed() == set()
    assert on_gpus(trained_run.trained(tmp_path / "d"), "GPU-a", "GPU-a", index=(0, 0)).failed() == {"finetune.devices"}


def test_a_global_batch_that_the_ranks_cannot_share_is_refused_before_there_is_a_job(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="global_batch_size 7 cannot be shared evenly by 2 ranks"):
        trained_run.trained(tmp_path, global_batch_size=7)


def test_each_rank_may_use_its_share_of_the_nodes_cpus(run: recorded.Recorded, tmp_path: Path) -> None:
    group = run.inputs.cluster.node_groups[0].model_copy(update={"min_cpus": 20})
    cluster = run.inputs.cluster.model_copy(update={"node_groups": (group,)})
    inputs = run.inputs.model_copy(update={"cluster": cluster})
    plan = recorded.plan_of(RUNG, run.spec, inputs, tmp_path, nonce="nonce-cpus", needs=run.needs)
    assert plan.jobs[0].cpus_per_rank == 10
    assert run.plan.jobs[0].cpus_per_rank == 1


@pytest.mark.parametrize(
    "name", [LOG, WEIGHTS, CONFIG, BASE, *RANK, "raw/finetune/samples-1.jsonl", "raw/finetune/done.json"]
)
@pytest.mark.parametrize("damage", ["delete", "empty", "half"])
def test_no_file_can_be_missing_empty_or_cut(run: recorded.Recorded, name: str, damage: str) -> None:
    if damage == "delete":
        del run.files[name]
    else:
        run.files[name] = b"" if damage == "empty" else run.files[name][: len(run.files[name]) // 2]
    with pytest.raises(EvidenceError):
        run.judge()


@pytest.mark.parametrize("name", ["train.jsonl", "samples-0.jsonl"])
def test_a_log_that_its_rank_did_not_sign_proves_nothing(run: recorded.Recorded, name: str) -> None:
    run.files[f"raw/finetune/{name}"] = run.files[f"raw/finetune/{name}"].replace(b"{", b"{ ", 1)
    with pytest.raises(EvidenceError, match="sha256 differs"):
        run.judge()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "null"])
def test_a_loss_that_is_no_figure_proves_nothing(run: recorded.Recorded, value: str) -> None:
    lines = run.files[LOG].decode().splitlines()
    step = json.loads(lines[40])
    lines[40] = lines[40].replace(f'"loss": {step["loss"]}', f'"loss": {value}')
    run.files[LOG] = ("\n".join(lines) + "\n").encode()
    with pytest.raises(EvidenceError, match=r"train\.jsonl:41"):
        sign(run).judge()


def test_a_log_of_another_attempt_proves_nothing(run: recorded.Recorded) -> None:
    edit_line(run, "train.jsonl", 1, "nonce", to="nonce-old")
    with pytest.raises(EvidenceError, match="another run or attempt"):
        run.judge()


def test_reports_exchanged_between_ranks_prove_nothing(run: recorded.Recorded) -> None:
    run.files[RANK[0]], run.files[RANK[1]] = run.files[RANK[1]], run.files[RANK[0]]
    with pytest.raises(EvidenceError):
        run.judge()


def test_a_value_in_the_weights_that_is_not_finite_fails(run: recorded.Recorded) -> None:
    data = bytearray(run.files[WEIGHTS])
    data[-4:] = b"\x00\x00\xc0\x7f"
    run.files[WEIGHTS] = bytes(data)
    assert {"finetune.adapter.learned", "finetune.adapter.files"} <= run.failed()


def test_a_training_that_passes_is_judged_the_same_again(run: recorded.Recorded) -> None:
    assert run.judge() == run.judge()
    assert run.status() is Status.PASSED
