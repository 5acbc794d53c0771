"""The launcher without a Slurm: its environment is given, and srun is the task itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot.model.job import JobDone, JobSpec
from surefoot.scheduler.slurm import launch

LAUNCHER = launch.__file__
ONE_RANK = {
    "SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NODEID": "0",
    "SLURMD_NODENAME": "localhost", "SLURM_JOB_NODELIST": "localhost", "PATH": "/nonexistent",
}  # fmt: skip


def start(folder: Path, code: str, env: dict[str, str] | None = None, **changes: Any) -> subprocess.Popen[bytes]:
    fields = {"name": "j", "argv": (sys.executable, "-c", code), "folder": str(folder), **changes}
    spec = JobSpec.model_validate(fields)
    (folder / "spec.json").write_text(spec.model_dump_json())
    command = [sys.executable, LAUNCHER, "job", str(folder), "--", sys.executable, LAUNCHER, "task", str(folder)]
    return subprocess.Popen(command, env={**ONE_RANK, **(env or {})}, cwd=folder, stdout=subprocess.DEVNULL)


def done(folder: Path) -> JobDone:
    return JobDone.model_validate_json((folder / "done.json").read_text())


@pytest.mark.parametrize(
    ("code", "state", "ending", "exit_code"),
    [
        ("print('hello')", "COMPLETED", (0, None), 0),
        ("exit(7)", "FAILED", (7, None), 7),
        ("import os; os.kill(os.getpid(), 9)", "FAILED", (None, 9), 137),
    ],
)
def test_how_a_rank_ended_is_told_and_the_script_ends_so_too(
    tmp_path: Path, code: str, state: str, ending: tuple[int | None, int | None], exit_code: int
) -> None:
    assert start(tmp_path, code).wait(20) == exit_code
    told = done(tmp_path)
    assert (told.id, told.name, told.state) == ("12", "j", state)
    assert [(r.rank, (r.exit_code, r.signal), r.host) for r in told.ranks] == [(0, ending, os.uname().nodename)]


def test_output_goes_to_the_host_s_file_and_environment_and_folder_are_the_job_s(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['RANK'], os.environ['W'], os.environ['OMP_NUM_THREADS'])"
    start(tmp_path, code, env={"W": "outer"}, cpus_per_rank=3).wait(20)
    assert (tmp_path / f"j-12-{os.uname().nodename}.out").read_text() == f"{tmp_path} 0 outer 3\n"


def test_a_rank_over_its_time_is_killed_and_told(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(60)"
    assert start(tmp_path, code, time_limit_s=1).wait(20) == 143
    assert (done(tmp_path).state, done(tmp_path).reason) == ("TIMEOUT", "time limit of 1 s")
    assert [(r.exit_code, r.signal) for r in done(tmp_path).ranks] == [(None, 15)]


def test_asked_to_end_it_says_so_when_its_ranks_have_ended(tmp_path: Path) -> None:
    process = start(tmp_path, "import time; open('up', 'w').close(); time.sleep(60)")
    deadline = time.monotonic() + 10
    while not (tmp_path / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    for pid in (process.pid, child):  # Slurm signals the batch script and its steps
        os.kill(pid, signal.SIGTERM)
    assert process.wait(20) == 143
    assert (done(tmp_path).state, done(tmp_path).reason) == ("CANCELLED", "Slurm asked it to end")


def test_a_program_that_is_not_there_is_named_in_its_output(tmp_path: Path) -> None:
    assert start(tmp_path, "", argv=("/no/such",)).wait(20) == 127
    assert "cannot start /no/such" in (tmp_path / f"j-12-{os.uname().nodename}.out").read_text()


def test_tasks_that_slurm_placed_otherwise_than_asked_fail(tmp_path: Path) -> None:
    assert start(tmp_path, "pass", env={"SLURM_NTASKS": "2"}).wait(20) == 1
    assert (done(tmp_path).state, done(tmp_path).ranks) == ("FAILED", ())
    assert "no word from rank 0" in done(tmp_path).reason


def test_a_second_submission_ends_without_touching_anything(tmp_path: Path) -> None:
    start(tmp_path, "pass").wait(20)
    before = (tmp_path / "done.json").read_text()
    assert start(tmp_path, "exit(1)", env={"SLURM_JOB_ID": "13"}).wait(20) == 76
    assert (tmp_path / "done.json").read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".claim")]


def test_a_requeued_job_runs_again_in_its_folder_and_only_its_last_life_is_told(tmp_path: Path) -> None:
    assert start(tmp_path, "exit(3)").wait(20) == 3
    assert start(tmp_path, "pass", env={"SLURM_RESTART_COUNT": "1"}).wait(20) == 0
    assert [(r.exit_code, r.signal) for r in done(tmp_path).ranks] == [(0, None)]
    assert json.loads((tmp_path / "exit-0-0.json").read_text())["exit_code"] == 3


def test_an_element_of_an_array_has_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"a": 1}')
    for element in ("1", "2"):
        env = {"SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": element}
        assert start(tmp_path, "pass", env=env, array="1-2").wait(20) == 0
    assert [done(tmp_path / f"array-{n}").id for n in (1, 2)] == ["11_1", "11_2"]
    assert json.loads((tmp_path / "array-2/request.json").read_text()) == {"a": 1}, "where its ranks look for it"


def test_two_jobs_of_one_host_never_get_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []
    locks = []
    for identifier in ("12", "12012", "24012"):  # ids that lead to the same first choice
        monkeypatch.setenv("SLURM_JOB_ID", identifier)
        port, lock = launch.reserve_port()
        ports.append(port)
        locks.append(lock)
    for lock in locks:
        lock.close()
    assert len(set(ports)) == 3
    assert set(ports) <= set(launch.PORTS)


def test_a_launcher_on_a_node_given_up_for_lost_does_not_overwrite_what_the_next_try_wrote(tmp_path: Path) -> None:
    first = start(tmp_path, "import time; open('up', 'w').close(); time.sleep(3)")
    deadline = time.monotonic() + 10
    while not (tmp_path / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (tmp_path / "try-1").mkdir()
    for name in ("claim", "started.json"):
        (tmp_path / name).rename(tmp_path / "try-1" / name)
    assert start(tmp_path, "pass", env={"SLURM_JOB_ID": "13"}).wait(20) == 0
    assert first.wait(20) == 0
    assert done(tmp_path).id == "13"
