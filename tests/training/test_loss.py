"""The loss in one process: on answers only, the same for any split, and prompts rendered in one way."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from surefoot.errors import RequestError
from surefoot.model.score import Task
from surefoot.training.demo_tasks import train_tasks
from surefoot.training.shipped_demo import FOLDER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(str(FOLDER / "base"))


@pytest.fixture
def model() -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    from surefoot.model.recipe import Lora
    from surefoot.training.lora import add_adapter

    base = transformers.AutoModelForCausalLM.from_pretrained(str(FOLDER / "base"), dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's call into transformers
        return add_adapter(base, Lora(), seed=3).train()


def samples(tokenizer: Any, count: int) -> list[Any]:
    from surefoot.training.data import encode_all

    return encode_all(tokenizer, train_tasks()[:count], max_length=256)


def gradients(model: Any, groups: list[list[Any]], targets: int) -> tuple[float, list[Any]]:
    """Loss and gradients of the adapter, accumulated over groups of samples."""
    from surefoot.training.data import collate
    from surefoot.training.loss import LossModel

    model.zero_grad()
    total = 0.0
    for group in groups:
        batch = collate(group, pad_id=0)
        loss = LossModel(model)(batch.input_ids, batch.attention_mask, batch.labels) / targets
        loss.backward()
        total += loss.item()
    return total, [p.grad.clone() for p in model.parameters() if p.requires_grad]


def test_gradients_do_not_depend_on_how_a_batch_is_split(model: Any, tokenizer: Any) -> None:
    rows = samples(tokenizer, 8)
    assert len({row.targets for row in rows}) > 1, "equal answers would hide a wrong weighting"
    targets = sum(row.targets for row in rows)
    whole, expected = gradients(model, [rows], targets)
    for groups in ([[r] for r in rows], [rows[:3], rows[3:]], [rows[::2], rows[1::2]]):
        loss, found = gradients(model, groups, targets)
        assert loss == pytest.approx(whole, rel=1e-5)
        for a, b in zip(found, expected, strict=True):
            assert float((a - b).abs().max()) <= 1e-5 * max(1e-3, float(b.abs().max()))


def test_a_mean_of_means_would_be_found_out(model: Any, tokenizer: Any) -> None:
    rows = samples(tokenizer, 8)
    whole, _ = gradients(model, [rows], sum(row.targets for row in rows))
    means = [gradients(model, [[row]], row.targets)[0] for row in rows]
    assert abs(sum(means) / len(means) - whole) > 1e-3 * whole


def test_the_loss_is_the_one_that_transformers_computes(model: Any, tokenizer: Any) -> None:
    from surefoot.training.data import collate

    rows = samples(tokenizer, 8)
    targets = sum(row.targets for row in rows)
    batch = collate(rows, pad_id=0)
    theirs = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels).loss.item()
    assert gradients(model, [rows], targets)[0] == pytest.approx(theirs, rel=1e-5)


def test_only_answers_and_their_end_are_targets(tokenizer: Any) -> None:
    from surefoot.training.data import IGNORED, collate

    rows = samples(tokenizer, 3)
    batch = collate(rows, pad_id=0)
    for row, labels in zip(rows, batch.labels.tolist(), strict=True):
        learned = [token for token in labels if token != IGNORED]
        assert tuple(learned) == row.answer
        assert learned[-1] == tokenizer.eos_token_id
        assert labels[: len(row.prompt)] == [IGNORED] * len(row.prompt)
    assert batch.input_ids.shape[1] % 8 == 0


def test_a_batch_that_is_not_learned_from_gives_no_gradient(model: Any, tokenizer: Any) -> None:
    from surefoot.training.data import collate
    from surefoot.training.loss import LossModel

    batch = collate(samples(tokenizer, 1), pad_id=0, learn=False)
    model.zero_grad()
    LossModel(model)(batch.input_ids, batch.attention_mask, batch.labels).backward()
    assert all(float(p.grad.abs().max()) == 0 for p in model.parameters() if p.requires_grad)
    assert (batch.samples, batch.tokens, batch.targets) == (0, 0, 0)


def test_a_prompt_is_rendered_up_to_where_the_answer_begins(tokenizer: Any) -> None:
    from surefoot.training.prompts import render_answer, render_prompt

    assert tokenizer.decode(render_prompt(tokenizer, "Who?")) == "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"  # fmt: skip
    assert tokenizer.decode(render_answer(tokenizer, "Ada")) == "Ada<|im_end|>"


def test_rows_that_cannot_be_learned_from_are_named(tokenizer: Any) -> None:
    from surefoot.training.data import encode, encode_all

    task = Task(id="row-7", category="c", prompt="Who?", answer="Ada")
    with pytest.raises(RequestError, match=r"'row-7' has \d+ tokens, max_length is 8"):
        encode(tokenizer, task, max_length=8)
    with pytest.raises(RequestError, match="no training rows"):
        encode_all(tokenizer, [], max_length=8)


def test_the_base_is_rebuilt_by_the_command_that_the_docs_name(tmp_path: Any) -> None:
    from surefoot.training.build_demo_base import build, build_model, build_tokenizer
    from surefoot.training.demo_tasks import make_items
    from surefoot.training.shipped_demo import MANIFEST
    from surefoot.training.stage import stage_base

    losses = build(tmp_path, steps=12, items=600)
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    for name in ("demo-train.jsonl", "demo-eval.jsonl"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    assert (tmp_path / MANIFEST).is_file()
    assert stage_base(f"path:{tmp_path}/base", tmp_path / "cache").state == "staged"
    made = make_items(600, 1)
    assert sum(p.numel() for p in build_model(build_tokenizer(i.prompt for i in made)).parameters()) == 379_104
