"""Questions to a controller that is slow, or away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot.connection.base import CommandResult
from surefoot.connection.local import LocalConnection
from surefoot.errors import SchedulerError
from surefoot.model.job import JobSpec
from surefoot.scheduler.slurm.commands import SEPARATOR
from surefoot.scheduler.slurm.controller import Controller
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

BUSY = b"slurm_load_jobs error: Socket timed out on send/recv operation"


class Answering:
    """A connection whose answers are given."""

    def __init__(self, *answers: CommandResult) -> None:
        self.answers = list(answers)

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:  # noqa: ARG002 - the interface's
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def answer(code: int, stdout: bytes = b"", stderr: bytes = b"", *, timed_out: bool = False) -> CommandResult:
    ended: Any = {"exit_code": None, "signal": None} if timed_out else {"exit_code": code, "signal": None}
    return CommandResult(stdout=stdout, stderr=stderr, started_at=0, ended_at=1, **ended)


def controller(*answers: CommandResult, patience_s: float = 60) -> Controller:
    connection: Any = Answering(*answers)
    return Controller(connection, {}, patience_s)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by itself: a pause is as long as it says, and takes none."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("surefoot.scheduler.slurm.controller.time.sleep", sleep)
    monkeypatch.setattr("surefoot.scheduler.slurm.controller.time.monotonic", lambda: now[0])


def test_a_busy_controller_is_asked_again_until_it_answers() -> None:
    asked = controller(answer(1, stderr=BUSY), answer(0, timed_out=True), answer(0, b"12\n"))
    assert asked.output(["squeue"], patiently=True) == "12\n"
    assert asked.queries["squeue"] == 3


def test_one_that_stays_silent_is_told_with_how_long_it_was_asked() -> None:
    with pytest.raises(SchedulerError, match=r"squeue failed for 60 s: .*Socket timed out"):
        controller(answer(1, stderr=BUSY)).output(["squeue"], patiently=True)


def test_what_is_wrong_for_good_is_told_at_once_and_so_is_anything_where_nobody_is_patient() -> None:
    refused = controller(answer(1, stderr=b"squeue: error: Invalid user: nobody"))
    with pytest.raises(SchedulerError, match=r"squeue failed: .*Invalid user"):
        refused.output(["squeue"], patiently=True)
    assert refused.queries["squeue"] == 1
    with pytest.raises(SchedulerError, match=r"squeue failed: .*Socket"):
        controller(answer(1, stderr=BUSY), answer(0)).output(["squeue"])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tag": null}'])
def test_a_submission_that_cannot_be_read_is_the_machinery_s_fault_and_no_job_that_is_gone(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "submission.json").write_text(content)
    with pytest.raises(SchedulerError, match=r"submission\.json does not say its tag"):
        SlurmScheduler(LocalConnection(), Site(python="python3")).reap(tmp_path)


class Wrapped:
    """A connection on which sbatch takes the job and answers `said`; the queue has `rows` of this user."""

    remote = False
    host = "head"

    def __init__(self, said: str, rows: Callable[[str], list[list[str]]]) -> None:
        self.said, self.rows, self.tag = said, rows, ""
        self.sent = 0

    def write(self, files: Mapping[Path, bytes]) -> None:
        for path, content in files.items():
            if path.name == "submission.json":
                self.tag = json.loads(content)["tag"]

    def read_many(self, paths: Iterable[Path]) -> dict[Path, bytes]:  # noqa: ARG002 - the interface's
        return {}

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        if "sbatch" in argv:
            self.sent += 1
            return answer(0, self.said.encode())
        if argv[0] == "squeue":
            return answer(0, "".join(f"{SEPARATOR.join(row)}\n" for row in self.rows(self.tag)).encode())
        return answer(0, b"1000\n" if argv[0] == "id" else b"")


@pytest.mark.parametrize("said", ["thank you\n", "", "12\n13\n"])
def test_a_job_whose_id_sbatch_did_not_say_is_found_by_its_tag_and_not_left_behind(said: str) -> None:
    connection: Any = Wrapped(
        said, lambda tag: [["12", "PENDING", "None", "1", "1", "0:00", "1:00", "", "j", tag, "/f"]]
    )
    job = SlurmScheduler(connection, Site(python="python3")).submit(JobSpec(name="j", argv=("x",), folder="/f"))
    assert (job.id, connection.sent) == ("12", 1)


def test_a_job_that_is_nowhere_to_be_found_is_not_sent_twice() -> None:
    connection: Any = Wrapped("thank you\n", lambda _: [])
    with pytest.raises(SchedulerError, match=r"did not say a job id but 'thank you\\n'"):
        SlurmScheduler(connection, Site(python="python3")).submit(JobSpec(name="j", argv=("x",), folder="/f"))
    assert connection.sent == 1
