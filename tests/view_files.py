"""A view's evidence as files in a folder, to be damaged, and back; and what it shows without the seal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mutations import Mutation
from rungs_harness import status_of
from surefoot.evidence import Blob, EvidenceSet
from surefoot.model.status import Status, combine
from surefoot.rungs.base import View
from surefoot.rungs.endings import ending_checks
from surefoot.rungs.table import RUNGS


def status(view: View) -> Status:
    """As the engine would conclude, without the seal."""
    ends = [check.status for check in ending_checks(view.evidence)]
    return combine([*ends, status_of(RUNGS[view.plan.rung], view)])


def undetected(view: View, source: Path, tried: Iterable[Mutation], explained: Callable[[Mutation], bool]) -> list[str]:
    """Damages to copies of `source`, the view's own files, with which it still passes and which nothing explains."""
    passed = []
    target = source.with_name("copy")
    for mutation in tried:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        mutation.apply(target)
        if status(read(view, target)) is Status.PASSED and not explained(mutation):
            passed.append(str(mutation))
    return passed


def written(view: View, folder: Path) -> Path:
    """The folder, with all files of the view in it."""
    for name, blob in view.evidence.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(blob.read())
    (folder / "plan.json").write_text(view.plan.model_dump_json())
    return folder


def read(view: View, folder: Path) -> View:
    """The view with the files of this folder."""
    files = {
        path.relative_to(folder).as_posix(): Blob(name=path.relative_to(folder).as_posix(), data=path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "plan.json"
    }
    return replace(view, evidence=EvidenceSet(plan=view.plan, files=files))
