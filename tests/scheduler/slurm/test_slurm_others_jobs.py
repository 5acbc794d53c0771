"""Jobs that others submitted are ended, and only then said to be gone. Slurm's answers are scripted; labs have real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot.connection.base import CommandResult
from surefoot.scheduler.slurm import slurm as module
from surefoot.scheduler.slurm.commands import SEPARATOR
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

TAG = "surefoot:r1:0123456789abcdef:j"
FOLDER = Path("/root/runs/r1/rungs/sync/attempt-001/raw/j")


class ScriptedQueue:
    """A queue that holds `before`, and after the first scancel each of `after` in turn; the last one stays."""

    remote = False
    host = "head"

    def __init__(self, before: Sequence[str], after: Sequence[Sequence[str]]) -> None:
        self.now, self.after = list(before), [list(ids) for ids in after]
        self.cancelled: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        said = ""
        if argv[0] == "id":
            said = "2001\n"
        elif argv[0] == "scancel":
            self.cancelled += [word for word in argv[1:] if not word.startswith("-")]
        elif argv[0] == "squeue":
            if self.cancelled:
                self.now = self.after.pop(0) if len(self.after) > 1 else self.after[0]
            rows = [(i, "RUNNING", "None", "1", "1", "0:01", "1:00", "n1", "j", TAG, str(FOLDER)) for i in self.now]
            said = "".join(f"{SEPARATOR.join(row)}\n" for row in rows)
        return CommandResult(0, None, said.encode(), b"", 0.0, 0.0)

    def read_many(self, paths: Iterable[Path]) -> Mapping[Path, bytes]:
        return {path: json.dumps({"tag": TAG}).encode() for path in paths}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CANCEL_WAIT_S", 0.5)
    monkeypatch.setattr(module, "_END_WAIT_S", 0.5)


def scheduler(queue: ScriptedQueue) -> SlurmScheduler:
    return SlurmScheduler(queue, Site(python="python3"))  # type: ignore[arg-type]


def test_a_job_that_does_not_end_is_not_said_to_be_gone() -> None:
    queue = ScriptedQueue(["7"], [["7"]])
    assert not scheduler(queue).reap(FOLDER)
    assert queue.cancelled == ["7"]
    queue = ScriptedQueue(["7"], [["7"]])
    mine = scheduler(queue)
    assert [job.id for job in mine.end(mine.tagged())] == ["7"]


def test_a_job_that_ends_after_a_while_is_waited_for() -> None:
    queue = ScriptedQueue(["7"], [["7"], []])
    assert scheduler(queue).reap(FOLDER)


def test_an_array_is_gone_when_all_of_its_elements_are() -> None:
    queue = ScriptedQueue(["7_0", "7_1", "7_2"], [["7_2"]])
    mine = scheduler(queue)
    assert {job.id for job in mine.end(mine.tagged())} == {"7_0", "7_1", "7_2"}
    assert queue.cancelled == ["7"]


def test_nothing_is_cancelled_where_nothing_is_left() -> None:
    queue = ScriptedQueue([], [[]])
    assert scheduler(queue).reap(FOLDER)
    assert scheduler(queue).end([]) == []
    assert queue.cancelled == []
