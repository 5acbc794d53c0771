"""``surefoot.training.stage``: bring base model, training and evaluation data to shared storage.

One rank. Request: ``{"cache": FOLDER, "base": SOURCE, "train": {...}, "evaluate": {...}, "overlap":
"refuse"|"drop"}``, the data as `TaskSource`. Reports where each lies, every file's digest, and
which training rows were left out because their prompt is an evaluation prompt.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from surefoot.errors import MachineryError, RequestError
from surefoot.files import sha256_file, tree_digest, tree_files, write_atomic
from surefoot.model.recipe import TaskSource
from surefoot.model.score import Task
from surefoot.node import program
from surefoot.node.rank import Rank, say
from surefoot.training import models
from surefoot.training.assets import StagedAsset, StagedAssets
from surefoot.training.rows import RawRow, read_rows, tasks_of
from surefoot.training.shipped_demo import builtin_path
from surefoot.training.store import State, holds, publish, workspace
from surefoot.training.tasks import TASKS_FILE, keys_digest, prompt_key, task_lines

PROGRAM = "surefoot.training.stage"


def _asset(source: str, source_digest: str, folder: Path, state: State, tasks: Sequence[Task] = ()) -> StagedAsset:
    files = tree_files(folder, skip=())
    return StagedAsset(
        source=source,
        source_digest=source_digest,
        path=str(folder),
        digest=tree_digest(files),
        files=files,
        size_bytes=sum((folder / name).stat().st_size for name in files),
        rows=len(tasks) or None,
        prompts_digest=keys_digest((task.id, prompt_key(task.prompt)) for task in tasks) if tasks else "",
        state=state,
    )


def _stage_folder(source: str, folder: Path, kind_folder: Path) -> StagedAsset:
    """A model folder as it is: copied only when its content is not there yet."""
    digest = tree_digest(models.model_files(folder))
    if holds(kind_folder / digest, digest):
        return _asset(source, digest, kind_folder / digest, "found")
    with workspace(kind_folder) as space:
        models.copy_model(folder, space)
        target, state = publish(space, kind_folder)
        return _asset(source, target.name, target, state)  # of what was copied, not of what lay there before


def _stage_gguf(source: str, file: Path, kind_folder: Path) -> StagedAsset:
    """A GGUF file, converted once: a note keyed by the file's digest says which folder came of it."""
    if not file.is_file():
        raise RequestError(f"{file}: no such file", next_action="check base in the recipe; it is read on the node that stages it")  # fmt: skip
    source_digest = sha256_file(file)
    note = kind_folder / f".gguf-{source_digest}.json"
    if note.is_file():
        known = str(json.loads(note.read_text())["digest"])
        if holds(kind_folder / known, known):
            return _asset(source, source_digest, kind_folder / known, "found")
    with workspace(kind_folder) as space:
        models.convert_gguf(file, space)
        if sha256_file(file) != source_digest:
            raise MachineryError(
                f"{file}: changed while it was converted", next_action="let it be written whole, then --resume RUN"
            )
        folder, state = publish(space, kind_folder)
    write_atomic(note, json.dumps({"file": file.name, "digest": folder.name}) + "\n")
    return _asset(source, source_digest, folder, state)


def stage_base(source: str, cache: Path) -> StagedAsset:
    """Stage a base model from ``builtin:``, ``path:`` or ``hf:``. Raises RequestError, MachineryError."""
    kind_folder = cache / "models"
    if source.startswith("builtin:"):
        return _stage_folder(source, builtin_path(source.removeprefix("builtin:"), kind="models"), kind_folder)
    if source.startswith("path:"):
        path = models.source_path(source)
        stage = _stage_gguf if path.suffix == ".gguf" else _stage_folder
        return stage(source, path, kind_folder)
    with workspace(kind_folder) as space:
        models.download_model(source.removeprefix("hf:"), space)
        digest = tree_digest(models.model_files(space))
        return _asset(source, digest, *publish(space, kind_folder))


def _hub_rows(name: str) -> list[RawRow]:
    """Rows of ``ORG/DATASET[@revision][:split]``. Raises RequestError or MachineryError."""
    if importlib.util.find_spec("datasets") is None:
        raise RequestError(
            f"hf:{name}: hf: data needs the Python package datasets on the node that stages it",
            next_action="pip install datasets there, or give the data as path:FILE",
        )
    import datasets

    repository, _, split = name.partition(":")
    repository, _, revision = repository.partition("@")
    try:
        table = datasets.load_dataset(repository, split=split or "train", revision=revision or None)
    except (OSError, ValueError) as error:
        raise MachineryError(
            f"hf:{name}: cannot be fetched: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            next_action="check the name and split; a node without a way to the hub takes path:FILE",
        ) from error
    return [RawRow(f"hf:{name} row {number}", row) for number, row in enumerate(table, 1)]


def load_tasks(source: TaskSource) -> tuple[list[Task], str]:
    """Tasks of a data source, and the digest of the content that they were read from.

    Raises RequestError, MachineryError.
    """
    if source.source.startswith("hf:"):
        name = source.source.removeprefix("hf:")
        rows = _hub_rows(name)
        content = "".join(json.dumps(row.columns, sort_keys=True, default=str) + "\n" for row in rows)
        return tasks_of(rows, source, name=name), hashlib.sha256(content.encode()).hexdigest()
    if source.source.startswith("builtin:"):
        path = builtin_path(source.source.removeprefix("builtin:"), kind="data")
    else:
        path = models.source_path(source.source)
    found, sha256 = read_rows(path, source.format)
    return tasks_of(found, source, name=str(path)), tree_digest({TASKS_FILE: sha256})


def without_overlap(train: list[Task], evaluate: list[Task], overlap: str) -> tuple[list[Task], tuple[str, ...]]:
    """Training rows whose prompt is no evaluation prompt, and the ids of the others.

    Raises RequestError where there are others and `overlap` is ``refuse``.
    """
    held = {prompt_key(task.prompt): task.id for task in evaluate}
    shared = tuple(task.id for task in train if prompt_key(task.prompt) in held)
    if shared and overlap == "refuse":
        pairs = ", ".join(
            f"{task.id} = {held[prompt_key(task.prompt)]}" for task in train if prompt_key(task.prompt) in held
        )
        raise RequestError(
            f"{len(shared)} training rows have a prompt of the evaluation: {pairs[:300]}",
            next_action="take them out of the training data, or let the recipe say overlap: drop",
        )
    kept = [task for task in train if task.id not in set(shared)]
    if not kept:
        raise RequestError("every training row has a prompt of the evaluation: nothing is left to train on")
    return kept, shared


def _stage_tasks(source: str, tasks: list[Task], source_digest: str, cache: Path) -> StagedAsset:
    kind_folder = cache / "data"
    with workspace(kind_folder) as space:
        (space / TASKS_FILE).write_text(task_lines(tasks))
        return _asset(source, source_digest, *publish(space, kind_folder), tasks)


def stage(base: str, train: TaskSource, evaluate: TaskSource, overlap: str, cache: Path) -> StagedAssets:
    """Stage all three. Raises RequestError, MachineryError."""
    train_tasks, train_digest = load_tasks(train)
    eval_tasks, eval_digest = load_tasks(evaluate)
    train_tasks, dropped = without_overlap(train_tasks, eval_tasks, overlap)
    return StagedAssets(
        base=stage_base(base, cache),
        train=_stage_tasks(train.source, train_tasks, train_digest, cache),
        evaluate=_stage_tasks(evaluate.source, eval_tasks, eval_digest, cache),
        dropped=dropped,
    )


def main(rank: Rank) -> None:
    """Stage what the request asks for, and report it."""
    asked = rank.request
    staged = stage(
        asked["base"],
        TaskSource.model_validate(asked["train"]),
        TaskSource.model_validate(asked["evaluate"]),
        asked["overlap"],
        Path(asked["cache"]),
    )
    for name, asset in staged.items():
        say(f"{name}: {asset.source} {asset.state} at {asset.path}")
    if staged.dropped:
        say(f"left out of training, their prompt is in the evaluation: {', '.join(staged.dropped)}")
    rank.report({"rank": rank.rank, **staged.canonical()})


if __name__ == "__main__":
    program.run(PROGRAM, main)
