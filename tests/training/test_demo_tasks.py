"""The demonstration's data: what is shipped is what its generator makes, and nothing leaks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from surefoot.errors import RequestError
from surefoot.files import sha256_file, tree_files
from surefoot.training import demo_tasks, shipped_demo
from surefoot.training.tasks import parse_tasks, prompt_key


def test_the_shipped_data_is_what_the_generator_makes(tmp_path: Path) -> None:
    demo_tasks.write_demo_data(tmp_path)
    for name in ("demo-train.jsonl", "demo-eval.jsonl"):
        assert (tmp_path / name).read_bytes() == (shipped_demo.FOLDER / name).read_bytes()


def test_the_manifest_names_every_shipped_file_with_its_digest() -> None:
    found = tree_files(shipped_demo.FOLDER)
    found.pop(shipped_demo.MANIFEST)
    assert json.loads((shipped_demo.FOLDER / shipped_demo.MANIFEST).read_text()) == {"files": found}


def test_the_shipped_base_is_small() -> None:
    files = list((shipped_demo.FOLDER / "base").iterdir())
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_the_evaluation_has_thirty_ten_and_ten_tasks_with_their_scorers() -> None:
    tasks = parse_tasks((shipped_demo.FOLDER / "demo-eval.jsonl").read_text())
    assert Counter((task.category, task.scorer) for task in tasks) == {
        ("classification", "exact"): 30, ("closed_qa", "qa"): 10, ("json_extraction", "json"): 10,
    }  # fmt: skip


def test_no_evaluation_prompt_is_among_the_training_rows() -> None:
    train, held = demo_tasks.train_tasks(), demo_tasks.eval_tasks()
    assert len({prompt_key(task.prompt) for task in train}) == 240
    assert not {prompt_key(task.prompt) for task in train} & {prompt_key(task.prompt) for task in held}


def test_items_depend_on_the_seed_only() -> None:
    assert demo_tasks.make_items(50, 7) == demo_tasks.make_items(50, 7)
    assert demo_tasks.make_items(50, 7) != demo_tasks.make_items(50, 8)


def test_every_sentence_holds_its_label_and_every_json_answer_parses() -> None:
    items = demo_tasks.make_items(400, 3)
    assert all(item.answer in item.sentence for item in items)
    assert all(isinstance(json.loads(i.answer), dict) for i in items if i.category == "json_extraction")


def test_an_unknown_builtin_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="builtin:demo-train, builtin:demo-eval"):
        shipped_demo.builtin_path("demo-tain", kind="data")


def test_builtin_digests_are_those_of_the_files_as_they_are_staged() -> None:
    files = {path.name: sha256_file(path) for path in (shipped_demo.FOLDER / "base").iterdir()}
    assert shipped_demo.builtin_digest("demo-base", kind="models") == shipped_demo.tree_digest(files)
