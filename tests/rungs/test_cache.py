"""The cache rung: what it claims holds, and damage to its evidence never stays PASSED."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recorded
import staged_run
from surefoot.engine.inputs import changed, configuration_digests
from surefoot.errors import EvidenceError, RequestError
from surefoot.files import sha256_file
from surefoot.model.recipe import TaskSource
from surefoot.model.status import Status
from surefoot.rungs.cache import staged_assets

STAGED = "raw/cache-stage/rank-0.json"
NODE = "raw/cache-verify/rank-0.json"
PROMPTS = "raw/cache-verify/prompts.json"
OTHER = "0" * 64


@pytest.fixture
def run(tmp_path: Path) -> recorded.Recorded:
    return staged_run.cached(tmp_path)


def test_the_demonstration_stages_verifies_and_passes(run: recorded.Recorded) -> None:
    judgement = run.judge()
    assert run.status() is Status.PASSED
    assert judgement.summary.startswith("base 0.8 MB, 240 training and 50 evaluation rows")
    assert {"cache.base.shipped", "cache.train.shipped", "cache.no_overlap", "cache.nodes"} <= {c.id for c in judgement.checks}  # fmt: skip


def test_what_was_staged_lies_under_its_digest_for_rungs_above(run: recorded.Recorded) -> None:
    assets = staged_assets(run.evidence())
    for name, asset in assets.items():
        assert Path(asset.path).name == asset.digest, name
        assert all((Path(asset.path) / file).is_file() for file in asset.files)
    assert (assets.train.rows, assets.evaluate.rows, assets.base.rows) == (240, 50, None)


@pytest.mark.parametrize("asset", ["base", "train", "evaluate"])
def test_a_node_that_reads_other_bytes_fails_and_is_named(run: recorded.Recorded, asset: str) -> None:
    file = {"base": "model.safetensors"}.get(asset, "tasks.jsonl")
    run.edit(NODE, "data", "assets", asset, "files", file, to=OTHER)
    check = next(c for c in run.judge().checks if c.id == f"cache.{asset}.verified")
    assert check.status is Status.FAILED
    assert "node-a" in str(check.actual)
    assert file in str(check.actual)


@pytest.mark.parametrize(
    ("path", "to", "failed"),
    [
        (("base", "files", "config.json"), OTHER, "cache.base.placed"),
        (("base", "digest"), OTHER, "cache.base.placed"),
        (("base", "path"), "/elsewhere", "cache.base.placed"),
        (("train", "source"), "builtin:demo-eval", "cache.train.placed"),
        (("train", "source_digest"), OTHER, "cache.train.shipped"),
        (("evaluate", "source_digest"), OTHER, "cache.evaluate.shipped"),
        (("evaluate", "rows"), 49, "cache.evaluate.rows"),
        (("train", "prompts_digest"), OTHER, "cache.train.verified"),
        (("base", "size_bytes"), 1, "cache.base.verified"),
        (("dropped",), ["demo-train-001"], "cache.dropped"),
    ],
)
def test_a_wrong_account_of_the_staging_fails(
    run: recorded.Recorded, path: tuple[str, ...], to: object, failed: str
) -> None:
    run.edit(STAGED, "data", *path, to=to)
    assert failed in run.failed()


@pytest.mark.parametrize(("asset", "rows"), [("train", None), ("evaluate", None), ("base", 7)])
def test_data_without_a_count_of_rows_and_a_model_with_one_prove_nothing(
    run: recorded.Recorded, asset: str, rows: int | None
) -> None:
    run.edit(STAGED, "data", asset, "rows", to=rows)
    with pytest.raises(EvidenceError, match=f"says {rows} rows of {asset}"):
        run.judge()


def test_a_changed_shipped_file_fails_even_when_everything_agrees_on_it(tmp_path: Path) -> None:
    run = staged_run.cached(tmp_path)
    digest = run.plan.expect["shipped"]["base"]["source"]
    run.plan.expect["shipped"]["base"] = {"source": OTHER, "staged": OTHER}
    assert digest != OTHER
    assert run.failed() == {"cache.base.shipped"}


def test_one_question_under_two_ids_is_no_two_items(tmp_path: Path) -> None:
    rows = [
        {"id": f"q{n}", "category": "c", "prompt": prompt, "answer": "a", "scorer": "exact"}
        for n, prompt in enumerate(["What is it?", "what  is\u200b IT?", "Who is it?"])
    ]
    twice = tmp_path / "twice.jsonl"
    twice.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run").mkdir()
    source = TaskSource(source=f"path:{twice}")
    run = staged_run.cached(tmp_path / "run", recorded.demo_recipe().model_copy(update={"evaluate": source}))
    check = next(c for c in run.judge().checks if c.id == "cache.evaluation_distinct")
    assert (check.status, check.actual) == (Status.FAILED, 1)
    assert "q1 = q0" in check.evidence[0].text


def test_an_evaluation_prompt_among_the_training_rows_fails(run: recorded.Recorded) -> None:
    prompts = json.loads(run.files[PROMPTS])
    run.edit(NODE, "data", "overlap", to=[prompts["train"][0][0]])
    assert run.failed() == {"cache.no_overlap"}


def test_prompts_that_are_not_those_the_node_read_prove_nothing(run: recorded.Recorded) -> None:
    prompts = json.loads(run.files[PROMPTS])
    prompts["train"][0][1] = prompts["evaluate"][0][1]
    run.files[PROMPTS] = json.dumps(prompts).encode()
    with pytest.raises(EvidenceError, match="train rows are not those"):
        run.judge()


@pytest.mark.parametrize("change", [lambda p: p.update(nonce="old"), lambda p: p["evaluate"].clear(), lambda p: p["train"].pop()])  # fmt: skip
def test_stale_empty_or_short_prompt_lists_prove_nothing(run: recorded.Recorded, change: object) -> None:
    prompts = json.loads(run.files[PROMPTS])
    change(prompts)  # type: ignore[operator]
    run.files[PROMPTS] = json.dumps(prompts).encode()
    with pytest.raises(EvidenceError):
        run.judge()


@pytest.mark.parametrize("name", [STAGED, NODE, PROMPTS, "raw/cache-stage/done.json", "raw/cache-verify/job.json"])
@pytest.mark.parametrize("damage", ["delete", "empty", "half"])
def test_no_file_can_be_missing_empty_or_cut(run: recorded.Recorded, name: str, damage: str) -> None:
    if damage == "delete":
        del run.files[name]
    else:
        run.files[name] = b"" if damage == "empty" else run.files[name][: len(run.files[name]) // 2]
    with pytest.raises(EvidenceError):
        run.judge()


def _overlapping(folder: Path, overlap: str) -> recorded.Recorded:
    rows = [{"q": "Where is  MY card?", "a": "card"}, {"q": "My pin?", "a": "pin"}, {"q": "A loan?", "a": "loan"}]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "test.jsonl").write_text(json.dumps({"q": "where is my card?", "a": "card"}) + "\n")
    source = {"prompt": "{q}", "answer": "{a}", "category": "classification"}
    return staged_run.cached(
        folder,
        recorded.demo_recipe(
            train={"source": f"path:{folder}/train.jsonl", **source},
            evaluate={"source": f"path:{folder}/test.jsonl", **source},
            overlap=overlap,
        ),
    )


def test_data_that_was_edited_after_the_run_was_started_is_not_what_was_staged(tmp_path: Path) -> None:
    run = _overlapping(tmp_path, "drop")
    digests = {
        name: sha256_file(tmp_path / file) for name, file in (("train", "train.jsonl"), ("evaluate", "test.jsonl"))
    }
    run.inputs = run.inputs.model_copy(update={"source_digests": digests})
    assert run.failed() == set()
    assert {"cache.train.source", "cache.evaluate.source"} <= {c.id for c in run.judge().checks}
    run.inputs = run.inputs.model_copy(update={"source_digests": {**digests, "train": OTHER}})
    assert run.failed() == {"cache.train.source"}


def test_edited_data_makes_the_cache_stale_and_nothing_below_it(tmp_path: Path) -> None:
    run = _overlapping(tmp_path, "drop")
    edited = run.inputs.model_copy(update={"source_digests": {"train": OTHER}})
    before, after = (configuration_digests(run.rung, run.spec, inputs) for inputs in (run.inputs, edited))
    assert changed(before, after) == ["sources"]


def test_overlap_is_refused_unless_the_recipe_drops_it_and_then_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"1 training rows have a prompt of the evaluation: train-000001 = test-0"):
        _overlapping(tmp_path, "refuse")
    run = _overlapping(tmp_path, "drop")
    assert run.status() is Status.PASSED
    assert run.judge().details["dropped"] == ["train-000001"]
    assert staged_assets(run.evidence()).train.rows == 2
