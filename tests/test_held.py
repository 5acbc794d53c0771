"""What a test session leaves when it is killed is taken away by the next, and by none while it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import held
import slurm_here

SESSION = """
import sys, time
from pathlib import Path
import held
mine = held.Held(Path(sys.argv[1]))
folder = mine.folder("held-")
(folder / "log").touch()
held.start(["sh", "-c", "sleep 60 & echo up; exec sleep 60"], folder, folder / "log")
print(folder, flush=True)
time.sleep(60)
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A session that holds a folder with two processes, a server and what that started."""
    process = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path / "records")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()
    eventually(lambda: not held.sweep(tmp_path / "records") and not list((tmp_path / "records").iterdir()))


def told(session: subprocess.Popen[str]) -> Path:
    assert session.stdout is not None
    folder = Path(session.stdout.readline().strip())
    eventually(lambda: bool(Path(folder, "log").read_text()))
    eventually(lambda: len(held.processes_with(str(folder))) == 2)  # one may be just starting another program
    return folder


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def guard_of(session: subprocess.Popen[str]) -> int:
    """Process id of the one that waits for the session's death."""
    children = Path(f"/proc/{session.pid}/task/{session.pid}/children").read_text().split()
    (guard,) = [pid for pid in children if b"held.guard" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return int(guard)


def test_what_a_killed_session_left_is_gone_at_once(session: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = told(session)
    session.kill()
    session.wait()
    eventually(lambda: not folder.exists() and not list((tmp_path / "records").iterdir()))
    assert held.processes_with(str(folder)) == []


def test_where_all_of_a_session_was_killed_the_next_one_takes_away_what_it_left(
    session: subprocess.Popen[str], tmp_path: Path
) -> None:
    folder = told(session)
    os.kill(guard_of(session), signal.SIGKILL)
    session.kill()
    session.wait()
    assert held.sweep(tmp_path / "records") == [f"folder {folder}"]
    assert held.processes_with(str(folder)) == []
    assert not folder.exists()
    assert list((tmp_path / "records").iterdir()) == []


def test_what_a_living_session_holds_is_left_alone(session: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = told(session)
    assert held.sweep(tmp_path / "records") == []
    assert len(held.processes_with(str(folder))) == 2


def test_a_session_that_ends_leaves_no_record(tmp_path: Path) -> None:
    mine = held.Held(tmp_path)
    assert mine.lab("x") == f"t{os.getpid()}x"
    assert [path.read_text() for path in tmp_path.iterdir()] == [f"lab t{os.getpid()}x\n"]
    mine.close()
    assert list(tmp_path.iterdir()) == []


def test_two_slurms_at_once_have_different_ports() -> None:
    one, anchor = slurm_here.free_ports(4)
    other, second = slurm_here.free_ports(4)
    anchor.close()
    second.close()
    assert abs(one - other) >= 200
