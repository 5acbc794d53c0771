"""Climbing with real jobs: order, blocking, resuming, interrupting, several at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.engine.claims import Owner
from surefoot.engine.judge import Judge
from surefoot.engine.session import Session, resume
from surefoot.engine.store import load_results, write_record
from surefoot.errors import RequestError
from surefoot.model.events import Event, Note
from surefoot.model.ladder import Ladder
from surefoot.model.status import Status
from surefoot.paths import RunPaths
from surefoot.scheduler.processes import start_ticks
from toy_ladder import NAMES, SLEEPS, WRITES_42, ToyRung, attempts, chosen, climb, ladder, new_session, statuses, toys

ALL_PASSED = dict.fromkeys(NAMES, Status.PASSED)


def judge(session: Session) -> dict[str, Status]:
    return statuses(Judge(session.run_paths, session.manifest, toys()).run())


def test_every_rung_passes_and_is_recorded_where_judging_finds_the_same(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    results = climb(session, toys())
    assert statuses(results) == ALL_PASSED
    assert load_results(session.run_paths, session.manifest) == results
    assert Judge(session.run_paths, session.manifest, toys()).run() == results


def test_rungs_above_one_that_failed_are_blocked_and_not_run(tmp_path: Path) -> None:
    rungs = toys(sync="open('answer', 'w').write('41')")
    session = new_session(tmp_path)
    results = climb(session, rungs)
    assert statuses(results) == {
        "runner": Status.PASSED,
        "sync": Status.FAILED,
        "scheduler": Status.BLOCKED,
        "precheck": Status.BLOCKED,
    }
    assert attempts(session.run_paths) == {"runner": 1, "sync": 1, "scheduler": 0, "precheck": 0}
    assert "sync is FAILED" in results["scheduler"].reason


def test_a_job_that_exits_with_1_fails_its_rung_with_the_line_that_says_why(tmp_path: Path) -> None:
    results = climb(new_session(tmp_path), toys(runner=f"{WRITES_42}; raise SystemExit('no such device: cuda:7')"))
    check = next(c for c in results["runner"].judgement.checks if c.id == "job.toy.ended")
    assert results["runner"].status is Status.FAILED
    assert check.status is Status.FAILED
    assert any("no such device: cuda:7" in e.text and e.line == 1 for e in check.evidence)


def test_what_to_do_is_told_together_with_what_went_wrong(tmp_path: Path) -> None:
    fails = (
        "import sys; print('cannot read /data/x', file=sys.stderr); print('  → mount it', file=sys.stderr); sys.exit(1)"
    )
    results = climb(new_session(tmp_path), toys(runner=fails))
    check = next(c for c in results["runner"].judgement.checks if c.id == "job.toy.ended")
    assert any(e.text == "cannot read /data/x → mount it" and e.line == 1 for e in check.evidence)


def test_a_recipe_whose_data_is_not_there_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    recipe = chosen(tmp_path).recipe
    assert recipe is not None
    missing = recipe.model_copy(update={"base": f"path:{tmp_path}/no-model"})
    with pytest.raises(RequestError, match=r"base: .*no-model"):
        new_session(tmp_path, recipe=missing)
    assert not (tmp_path / "runs").exists()


def test_a_job_that_succeeds_and_leaves_nothing_is_inconclusive(tmp_path: Path) -> None:
    assert climb(new_session(tmp_path), toys(runner="pass"))["runner"].status is Status.INCONCLUSIVE


def test_independent_rungs_run_side_by_side(tmp_path: Path) -> None:
    meets = (
        "import os, time, pathlib\nme = pathlib.Path(os.getcwd()).parts[-4]\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n(here / me).touch()\n"
        "end = time.time() + 20\n"
        "while not all((here / n).exists() for n in ('scheduler', 'precheck')):\n"
        "    assert time.time() < end\n    time.sleep(0.02)\n"
        f"{WRITES_42}"
    )
    assert statuses(climb(new_session(tmp_path / "root"), toys(scheduler=meets, precheck=meets))) == ALL_PASSED


def test_resume_runs_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    climb(session, toys(precheck="open('answer', 'w').write('41')"))
    again = toys()
    resumed = resume(session.run_paths, chosen(tmp_path))
    assert statuses(climb(resumed, again)) == ALL_PASSED
    assert attempts(session.run_paths) == {"runner": 1, "sync": 1, "scheduler": 1, "precheck": 2}


def test_resume_with_a_changed_parameter_runs_that_rung_again_and_says_which(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    climb(session, toys())
    changed = resume(session.run_paths, chosen(tmp_path, ladder=ladder(precheck={"time_limit_s": 77})))
    assert changed.changes == ("ladder: rungs[3].time_limit_s: 300 → 77",)
    again, notes = toys(), []
    climb(changed, again, emit=lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    assert attempts(session.run_paths) == {**dict.fromkeys(NAMES, 1), "precheck": 2}
    assert notes == ["precheck runs again: inputs changed: rung"]


def test_evidence_that_was_collected_anew_makes_the_rungs_that_read_it_stale(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    rungs = {**toys(), "precheck": ToyRung("precheck", reads="sync")}
    climb(session, rungs)
    shutil.rmtree(session.run_paths.rung("sync").folder)
    again = {**toys(), "precheck": ToyRung("precheck", reads="sync")}
    assert statuses(climb(resume(session.run_paths, chosen(tmp_path)), again)) == ALL_PASSED
    assert attempts(session.run_paths) == {"runner": 1, "sync": 1, "scheduler": 1, "precheck": 2}


def test_a_rung_that_passed_is_run_again_when_asked(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    climb(session, toys())
    resumed = resume(session.run_paths, chosen(tmp_path))
    results = resumed.climb(toys(), frozenset(NAMES), lambda _event: None, again=frozenset({"sync"})).run()
    assert statuses(results) == ALL_PASSED
    assert attempts(session.run_paths) == {"runner": 1, "sync": 2, "scheduler": 1, "precheck": 1}


def test_code_that_somebody_removed_is_sent_again(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    climb(session, toys(precheck="raise SystemExit(1)"))
    code = session.root.pushed(session.manifest.inputs.code_digest)
    shutil.rmtree(code)
    notes: list[str] = []
    climb(
        resume(session.run_paths, chosen(tmp_path)),
        toys(),
        emit=lambda e: notes.append(e.text) if isinstance(e, Note) else None,
    )
    assert (code / "src/surefoot/node/rank.py").is_file()
    assert any("sent again" in note for note in notes)


def test_ranks_that_say_that_the_machinery_broke_are_an_error_not_a_failure(tmp_path: Path) -> None:
    results = climb(new_session(tmp_path), toys(runner="raise SystemExit(4)", sync="raise SystemExit(1)"))
    assert results["runner"].status is Status.ERROR


def test_ranks_that_say_that_the_request_is_wrong_prove_nothing(tmp_path: Path) -> None:
    assert climb(new_session(tmp_path), toys(runner="raise SystemExit(3)"))["runner"].status is Status.INCONCLUSIVE


STRANGE = {
    "a pipe": "os.mkfifo('f')",
    "a link": "os.symlink('/nonexistent', 'l')",
    "a link to a folder": "os.symlink('/', 'd')",
    "a name that is not UTF-8": "open(b'x\\xff', 'w').close()",
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_cannot_be_evidence_spoils_that_rung_alone_and_is_not_opened(tmp_path: Path, what: str) -> None:
    results = climb(new_session(tmp_path), toys(scheduler=f"import os\n{STRANGE[what]}\n{WRITES_42}"))
    assert results["scheduler"].status is Status.INCONCLUSIVE
    assert re.search("no regular file|link to|not UTF-8", results["scheduler"].reason)
    assert results["precheck"].status is Status.PASSED


def test_a_rung_asked_alone_is_blocked_until_its_needs_have_passed(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    assert statuses(climb(session, toys(), frozenset({"sync"}))) == {
        "runner": Status.SKIPPED,
        "sync": Status.BLOCKED,
        "scheduler": Status.SKIPPED,
        "precheck": Status.SKIPPED,
    }
    for name in NAMES:
        climb(resume(session.run_paths, chosen(tmp_path)), toys(), frozenset({name}))
    assert judge(session) == ALL_PASSED


def test_an_interrupt_cancels_the_jobs_and_records_them_as_aborted(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    pids = session.run_paths.rung("sync").attempt(1).job("toy") / "pid"
    made = session.climb(toys(sync=SLEEPS), frozenset(NAMES), lambda _event: None)
    threading.Thread(target=_set_when, args=(pids, made.stop)).start()
    results = made.run()
    assert results["runner"].status is Status.PASSED
    assert (results["sync"].status, results["sync"].reason[:7]) == (Status.INCONCLUSIVE, "ABORTED")
    assert results["scheduler"].status is Status.BLOCKED
    assert start_ticks(int(pids.read_text())) is None
    assert statuses(climb(resume(session.run_paths, chosen(tmp_path)), toys())) == ALL_PASSED


def _set_when(path: Path, event: threading.Event) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    event.set()


def test_a_climb_killed_with_9_leaves_a_run_that_resume_continues(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\nfrom pathlib import Path\nimport toy_ladder as t\n"
        "s = t.new_session(Path(sys.argv[1])); print(s.run_paths.folder, flush=True)\n"
        "t.climb(s, t.toys(sync=t.SLEEPS))"
    )
    tests = str(Path(__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), tests], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    process.stdout.close()
    pid_file = folder / "rungs/sync/attempt-001/raw/toy/pid"
    _set_when(pid_file, threading.Event())
    process.kill()
    process.wait()
    run_paths = RunPaths(folder)
    again = toys()
    results = climb(resume(run_paths, chosen(tmp_path)), again)
    assert statuses(results) == ALL_PASSED
    assert attempts(run_paths) == {"runner": 1, "sync": 2, "scheduler": 1, "precheck": 1}
    assert start_ticks(int(pid_file.read_text())) is None


def test_two_climbs_at_once_on_one_root_do_not_disturb_each_other(tmp_path: Path) -> None:
    sessions = [new_session(tmp_path) for _ in range(3)]
    outcomes: list[dict[str, Status]] = []
    threads = [threading.Thread(target=lambda s=s: outcomes.append(statuses(climb(s, toys())))) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [ALL_PASSED] * 3
    assert len({s.run_paths.folder for s in sessions}) == 3


def test_a_rung_that_a_live_process_collects_is_not_taken_from_it(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    paths = session.run_paths.rung("runner").attempt(1)
    paths.folder.mkdir(parents=True)
    owner = Owner.this_process()
    parent = owner.model_copy(update={"pid": os.getppid(), "start_ticks": start_ticks(os.getppid())})
    write_record(paths.owner, parent)
    with pytest.raises(RequestError, match="being collected by process"):
        climb(session, toys())


def test_events_tell_what_started_and_what_ended(tmp_path: Path) -> None:
    events: list[Event] = []
    climb(new_session(tmp_path), toys(), emit=events.append)
    kinds = [
        (e.kind, getattr(e, "rung", "") or e.result.rung) for e in events if e.kind in ("rung_started", "rung_ended")
    ]  # type: ignore[union-attr]
    assert kinds[:3] == [("rung_started", "runner"), ("rung_ended", "runner"), ("rung_started", "sync")]
    assert len(kinds) == 8


DAMAGE = {
    "an answer edited to look right": lambda a: (a / "raw/toy/answer").write_text("42 "),
    "an answer deleted": lambda a: (a / "raw/toy/answer").unlink(),
    "a file that was not sealed": lambda a: (a / "raw/toy/rank-7.json").write_text("{}"),
    "no seal": lambda a: (a / "collection.json").unlink(),
    "an empty seal": lambda a: (a / "collection.json").write_text(""),
    "a seal over nothing": lambda a: _edit(a / "collection.json", files={}),
    "no plan": lambda a: (a / "plan.json").unlink(),
    "a plan of another run": lambda a: _edit(a / "plan.json", run_id="other"),
    "a plan that asks for less": lambda a: _edit(a / "plan.json", steps=[]),
    "no done.json": lambda a: (a / "raw/toy/done.json").unlink(),
    "everything gone": shutil.rmtree,
    "an answer that is a link": lambda a: _swap(a / "raw/toy/answer", lambda path: path.symlink_to("/etc/hostname")),
    "an answer that is a pipe": lambda a: _swap(a / "raw/toy/answer", os.mkfifo),
    "an endless answer": lambda a: _swap(a / "raw/toy/answer", lambda path: path.symlink_to("/dev/zero")),
}


def _swap(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_evidence_is_never_judged_passed(tmp_path: Path, what: str) -> None:
    session = new_session(tmp_path)
    assert climb(session, toys(), frozenset({"runner"}))["runner"].status is Status.PASSED
    DAMAGE[what](session.run_paths.rung("runner").attempt(1).folder)
    assert judge(session)["runner"] not in (Status.PASSED, Status.SKIPPED)


def test_a_ladder_refuses_needs_that_do_not_stand_before() -> None:
    with pytest.raises(ValueError, match="does not stand before it"):
        Ladder.model_validate({"name": "x", "rungs": [{"rung": "sync", "needs": ["runner"]}, {"rung": "runner"}]})
