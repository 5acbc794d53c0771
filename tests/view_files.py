"""A view's evidence as files in a folder, to be damaged, and back; and what it shows without the seal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
