"""A cluster whose storage this machine doesn't see: evidence comes home, and the shared root holds the whole run.

The other machine is a folder of this one here (tests/cluster has real ones, over ssh); the engine's part is the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.connection.local import LocalConnection
from surefoot.engine import session as sessions
from surefoot.engine.judge import Judge
from surefoot.engine.session import Chosen, Session, resume, start
from surefoot.engine.store import load_manifest
from surefoot.errors import RequestError, StorageError
from surefoot.files import tree_files
from surefoot.model.cluster import Cluster, LocalScheduler, NodeGroup, SlurmScheduler, SshConnection
from surefoot.model.events import Event, JobChanged, Note, event_line
from surefoot.model.job import JobState
from surefoot.model.status import Status
from surefoot.paths import RootPaths, RunPaths
from surefoot.scheduler.local import LocalScheduler as Processes
from toy_ladder import NAMES, SLEEPS, chosen, climb, statuses, toys

LOCAL_ONLY = {"owner.json", "report.html", "junit.xml", "summary.json"}


class Away(LocalConnection):
    """Files of the other side count as no files of this machine."""

    @property
    def remote(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "connect", lambda _cluster, **_: (Away(), Processes()))


def asked(tmp_path: Path, home: str = "home") -> Chosen:
    cluster = Cluster(
        name="away",
        connection=SshConnection(kind="ssh", host="head"),
        scheduler=SlurmScheduler(kind="slurm"),
        root=str(tmp_path / "shared"),
        node_groups=(NodeGroup(name="all", count=1),),
    )
    return replace(chosen(tmp_path), cluster=cluster, root=str(tmp_path / home))


def new(tmp_path: Path, home: str = "home", run_id: str = "r1") -> Session:
    return start(asked(tmp_path, home), ("surefoot", "climb"), run_id=run_id)


def whole(folder: Path) -> Mapping[str, str]:
    return {name: sha for name, sha in tree_files(folder, skip=()).items() if Path(name).name not in LOCAL_ONLY}


def test_evidence_comes_home_and_the_shared_root_holds_the_same_run(tmp_path: Path) -> None:
    session = new(tmp_path)
    results = climb(session, toys())
    assert statuses(results) == dict.fromkeys(NAMES, Status.PASSED)
    here, there = tmp_path / "home/runs/r1", tmp_path / "shared/runs/r1"
    assert session.run_paths.folder == here
    assert whole(here) == whole(there)
    assert {name for name in whole(here) if name.endswith("answer")}
    copied = RunPaths(there)
    judged = Judge(copied, load_manifest(copied), toys()).run()
    assert statuses(judged) == statuses(results)


def test_the_log_of_events_lies_there_too_and_as_far_as_the_last_rung_that_ended_when_the_climb_is_killed(
    tmp_path: Path,
) -> None:
    session = new(tmp_path)
    here, there = session.run_paths.events, tmp_path / "shared/runs/r1/events.jsonl"
    seen = list[str]()

    def log(event: Event) -> None:
        with here.open("a") as stream:
            stream.write(event_line(event) + "\n")
        seen.append(there.read_text() if there.exists() else "")

    climb(session, toys(), emit=log)
    assert '"kind":"rung_started"' in seen[-1].replace(" ", "")
    assert there.read_text() == here.read_text()


def test_a_run_of_the_same_name_from_another_machine_is_refused_before_any_job(tmp_path: Path) -> None:
    climb(new(tmp_path), toys(), frozenset({"runner"}))
    before = whole(tmp_path / "shared/runs/r1")
    with pytest.raises(RequestError, match="was climbed from another machine"):
        climb(new(tmp_path, home="elsewhere"), toys(), frozenset({"runner"}))
    assert whole(tmp_path / "shared/runs/r1") == before


def test_an_attempt_of_the_same_name_from_another_machine_is_not_written_over(tmp_path: Path) -> None:
    climb(new(tmp_path), toys(), frozenset({"runner"}))
    (tmp_path / "shared/runs/r1/run.json").unlink()  # so that only the attempt tells
    before = whole(tmp_path / "shared/runs/r1/rungs")
    results = climb(new(tmp_path, home="elsewhere"), toys(), frozenset({"runner"}))
    assert results["runner"].status is Status.ERROR
    assert "was climbed from another machine" in results["runner"].reason
    assert whole(tmp_path / "shared/runs/r1/rungs") == before


def test_a_copy_that_cannot_be_written_is_told_once_and_the_climb_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new(tmp_path)
    monkeypatch.setattr(Away, "write", _refuse)
    events: list[Event] = []
    results = climb(session, toys(), emit=events.append)
    assert statuses(results) == dict.fromkeys(NAMES, Status.PASSED)
    told = [event.text for event in events if isinstance(event, Note) and "sent again" not in event.text]
    assert [text for text in told if "not complete" in text] == told
    assert len(told) == 1
    assert "No space left" in told[0]


def test_a_host_that_is_slow_to_answer_at_first_is_told_of_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.engine.mirror.SAY_AFTER_S", 0.05)
    session, events, late = new(tmp_path), list[Event](), list[bool]()

    def slow(self: Away, paths: Iterable[Path]) -> Mapping[Path, bytes]:
        if not late:
            late.append(True)
            time.sleep(0.5)
        return LocalConnection.read_many(self, paths)

    monkeypatch.setattr(Away, "read_many", slow)
    climb(session, toys(), emit=events.append)
    first = events[0]
    assert isinstance(first, Note)
    assert "has not answered for 0.05 s" in first.text


def test_a_copy_that_could_not_be_written_for_a_while_is_whole_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, writes, tries = new(tmp_path), Away.write, list[int]()

    def full_at_first(self: Away, files: Mapping[Path, bytes]) -> None:
        tries.append(len(files))
        if len(tries) == 1:
            raise StorageError("cannot write: No space left on device")
        writes(self, files)

    monkeypatch.setattr(Away, "write", full_at_first)
    events: list[Event] = []
    climb(session, toys(), emit=events.append)
    assert len(tries) == 2, "a link that has just failed is not tried at every file"
    assert whole(tmp_path / "home/runs/r1") == whole(tmp_path / "shared/runs/r1")
    told = [event.text for event in events if isinstance(event, Note) and event.text.startswith("the copy of this run")]
    assert ["is not complete: cannot write" in text for text in told] == [True, False]
    assert told[1].endswith("is complete again")


def test_what_an_earlier_climb_could_not_send_is_sent_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(Away, "write", _refuse)
        climb(session, toys())
    there = tmp_path / "shared/runs/r1"
    assert not (there / "run.json").exists()
    climb(resume(RootPaths(tmp_path / "home").run("r1"), Chosen()), toys())
    assert whole(tmp_path / "home/runs/r1") == whole(there)


def test_a_run_of_another_machine_is_not_written_over_where_it_could_not_be_seen_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    climb(new(tmp_path), toys(), frozenset({"runner"}))
    before, reads, tries = whole(tmp_path / "shared/runs/r1"), Away.read_many, list[object]()

    def away_at_first(self: Away, paths: Iterable[Path]) -> dict[Path, bytes]:
        tries.append(paths)
        if len(tries) == 1:
            raise StorageError("no answer")
        return reads(self, paths)

    monkeypatch.setattr(Away, "read_many", away_at_first)
    climb(new(tmp_path, home="elsewhere"), toys(), frozenset({"runner"}))
    assert whole(tmp_path / "shared/runs/r1") == before


def _refuse(*_: object) -> None:
    raise StorageError("cannot write: No space left on device")


def test_what_an_interrupted_job_left_comes_home(tmp_path: Path) -> None:
    session, stop = new(tmp_path), threading.Event()

    def interrupt(event: Event) -> None:
        if isinstance(event, JobChanged) and event.state is JobState.RUNNING:
            there = session.root.run("r1").rung("runner").attempt(1).job("toy")
            threading.Thread(target=lambda: (_wait_for(there / "pid"), stop.set())).start()

    session.climb(toys(runner=SLEEPS), frozenset({"runner"}), interrupt, stop).run()
    attempt = session.run_paths.rung("runner").attempt(1)
    assert (attempt.job("toy") / "pid").exists()
    assert (attempt.job("toy") / "done.json").exists()
    assert '"ABORTED"' in attempt.collection.read_text()


def _wait_for(path: Path) -> None:
    while not path.exists():
        threading.Event().wait(0.02)


def test_a_resume_finds_the_run_at_home_and_its_jobs_below_the_shared_root(tmp_path: Path) -> None:
    climb(new(tmp_path), toys(precheck="open('answer', 'w').write('41')"))
    session = resume(RootPaths(tmp_path / "home").run("r1"), Chosen())
    assert (session.home.root, session.root.root) == (tmp_path / "home", tmp_path / "shared")
    assert statuses(climb(session, toys()))["precheck"] is Status.PASSED
    assert (tmp_path / "shared/runs/r1/rungs/precheck/attempt-002/raw/toy/answer").read_text() == "42"


def test_local_processes_over_ssh_are_refused(tmp_path: Path) -> None:
    wanted = asked(tmp_path)
    assert wanted.cluster is not None
    cluster = wanted.cluster.model_copy(update={"scheduler": LocalScheduler()})
    with pytest.raises(RequestError, match="scheduler is local processes, which would run here"):
        start(replace(wanted, cluster=cluster), ("surefoot", "climb"))
    assert not (tmp_path / "home").exists()
