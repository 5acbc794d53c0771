"""Staging: complete or absent, named by content, the same when done twice or by two at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surefoot.errors import EvidenceError, MachineryError, RequestError
from surefoot.files import sha256_file, tree_digest, tree_files
from surefoot.model.recipe import TaskSource
from surefoot.training import models
from surefoot.training.shipped_demo import FOLDER, builtin_digest
from surefoot.training.stage import load_tasks, stage, stage_base
from surefoot.training.store import publish, put_in_place, workspace
from surefoot.training.tasks import parse_tasks, read_tasks

TRAIN, HELD = TaskSource(source="builtin:demo-train"), TaskSource(source="builtin:demo-eval")


def test_a_builtin_is_staged_then_found_and_is_what_was_shipped(tmp_path: Path) -> None:
    first = stage("builtin:demo-base", TRAIN, HELD, "refuse", tmp_path)
    second = stage("builtin:demo-base", TRAIN, HELD, "refuse", tmp_path)
    assert [a.state for _, a in first.items()] == ["staged"] * 3
    assert [a.state for _, a in second.items()] == ["found"] * 3
    assert first.base.digest == builtin_digest("demo-base", kind="models")
    assert first.train.digest == builtin_digest("demo-train", kind="data")
    assert len(read_tasks(Path(first.evaluate.path))) == 50


def test_nothing_but_staged_folders_is_left_in_the_cache(tmp_path: Path) -> None:
    staged = stage("builtin:demo-base", TRAIN, HELD, "refuse", tmp_path)
    left = {str(path) for kind in ("models", "data") for path in (tmp_path / kind).iterdir()}
    assert left == {asset.path for _, asset in staged.items()}


@pytest.mark.parametrize("damage", ["edit", "add", "remove"])
def test_a_damaged_folder_is_replaced_and_that_is_said(tmp_path: Path, damage: str) -> None:
    folder = Path(stage_base("builtin:demo-base", tmp_path).path)
    if damage == "edit":
        (folder / "config.json").write_text("{}")
    elif damage == "add":
        (folder / "extra").write_text("x")
    else:
        (folder / "tokenizer.json").unlink()
    again = stage_base("builtin:demo-base", tmp_path)
    assert again.state == "repaired"
    assert tree_digest(tree_files(folder)) == folder.name


def test_many_stagers_at_once_end_with_one_whole_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        staged = list(pool.map(lambda _: stage_base("builtin:demo-base", tmp_path), range(8)))
    assert {asset.digest for asset in staged} == {builtin_digest("demo-base", kind="models")}
    assert [path.name for path in (tmp_path / "models").iterdir()] == [staged[0].digest]
    assert tree_digest(tree_files(Path(staged[0].path))) == staged[0].digest


def test_a_stager_that_dies_leaves_nothing_under_a_name_that_counts(tmp_path: Path) -> None:
    def die() -> None:
        with workspace(tmp_path) as space:
            (space / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        die()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(handle: int) -> None:
        done.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        done.append("renamed")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    (tmp_path / ".adapter.writing").mkdir()
    (tmp_path / ".adapter.writing" / "weights").write_bytes(b"weights")
    put_in_place(tmp_path / ".adapter.writing", tmp_path / "adapter")
    assert done == ["weights", ".adapter.writing", "renamed", tmp_path.name]


def test_publishing_puts_content_under_its_digest_for_all_to_read(tmp_path: Path) -> None:
    with workspace(tmp_path) as space:
        (space / "a").write_text("x")
        (space / "a").chmod(0o600)
        folder, state = publish(space, tmp_path)
    assert state == "staged"
    assert folder.name == tree_digest(tree_files(folder))
    assert (folder / "a").stat().st_mode & 0o777 == 0o644


def test_a_model_folder_takes_only_what_belongs_to_the_model(tmp_path: Path) -> None:
    source = tmp_path / "mine"
    shutil.copytree(FOLDER / "base", source)
    (source / "pytorch_model.bin").write_bytes(b"pickle")
    (source / "notes.txt").write_text("x")
    staged = stage_base(f"path:{source}", tmp_path / "cache")
    assert staged.digest == builtin_digest("demo-base", kind="models")


@pytest.mark.parametrize(
    ("lacks", "told"),
    [("model.safetensors", "weights"), ("config.json", "config.json"), ("tokenizer", "a tokenizer")],
)
def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path: Path, lacks: str, told: str) -> None:
    shutil.copytree(FOLDER / "base", tmp_path / "mine")
    for path in (tmp_path / "mine").glob(f"{lacks}*"):
        path.unlink()
    with pytest.raises(RequestError, match=f"lacks {told}"):
        stage_base(f"path:{tmp_path}/mine", tmp_path / "cache")
    with pytest.raises(RequestError, match="no such"):
        stage_base(f"path:{tmp_path}/none", tmp_path / "cache")
    with pytest.raises(RequestError, match="no such file"):
        stage_base(f"path:{tmp_path}/none.gguf", tmp_path / "cache")


def test_a_gguf_file_without_its_reader_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in {"gguf", "datasets"} else found(name))
    with pytest.raises(RequestError, match="needs the Python package gguf"):
        stage_base(f"path:{tmp_path}/m.gguf", tmp_path / "cache")
    with pytest.raises(RequestError, match="needs the Python package datasets"):
        load_tasks(TaskSource(source="hf:someone/something"))


@pytest.mark.slow
def test_a_hub_model_without_a_way_to_the_hub_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MachineryError, match="cannot be fetched") as caught:
        stage_base("hf:someone/something", tmp_path)
    assert "path:FOLDER" in caught.value.next_action
    with pytest.raises(RequestError):
        models.download_model("not a name", tmp_path)


def test_the_digest_is_of_the_bytes_that_the_rows_were_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "d.jsonl"
    row = '{"id": "a", "category": "c", "prompt": "p", "answer": "%s"}\n'
    file.write_text(row % "old")
    wanted = tree_digest({"tasks.jsonl": sha256_file(file)})
    read = Path.read_bytes

    def read_then_edited(self: Path) -> bytes:
        content = read(self)
        file.write_text(row % "new")
        return content

    monkeypatch.setattr(Path, "read_bytes", read_then_edited)
    tasks, digest = load_tasks(TaskSource(source=f"path:{file}"))
    assert (tasks[0].answer, digest) == ("old", wanted)


@pytest.mark.parametrize("text", ["", "{}\n", '{"id": "a"', "\n"])
def test_a_staged_file_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(EvidenceError):
        parse_tasks(text)
