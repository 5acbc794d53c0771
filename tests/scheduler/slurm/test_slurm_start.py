"""Between Slurm and the launcher: an interpreter that does not start is told with its host, by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.evidence import parse_record
from surefoot.model.job import RankExit
from surefoot.scheduler.slurm import launch
from surefoot.scheduler.slurm.start import START

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
HOST = os.uname().nodename
SLURM = {"SLURM_JOB_ID": "12", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURMD_NODENAME": "n2"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's folder with the starter, and a launcher that shows its arguments."""
    made = tmp_path / "a b'c"
    made.mkdir()
    (made / "start.sh").write_text(START)
    (made / "launch.py").write_text("import os, sys\nprint(os.getppid(), sys.argv)\n")
    return made


def start(folder: Path, python: str, *words: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
    command = [shell, *(["sh"] if shell == "busybox" else []), str(folder / "start.sh"), python, str(folder), *words]
    held = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**held, **SLURM, **env}, timeout=30
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_the_launcher_takes_the_shells_place_with_its_arguments(folder: Path, shell: str) -> None:
    launcher = str(folder / "launch.py")
    job = start(folder, sys.executable, "job", "--", "srun", "a b", "", '"', shell=shell)
    assert job.stdout == f"{os.getpid()} {[launcher, 'job', str(folder), '--', 'srun', 'a b', '', chr(34)]}\n"
    task = start(folder, sys.executable, "task", "ddp", "1", shell=shell)
    assert task.stdout == f"{os.getpid()} {[launcher, 'task', str(folder)]}\n"


def test_the_jobs_environment_is_the_launchers(folder: Path) -> None:
    (folder / "launch.py").write_text(
        "import os\nprint(*sorted(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')\n"
    )
    mine = {
        name: f"my {name}" for name in ("part", "said", "code", "host", "why", "id", "where", "life", "rank", "end")
    }
    kept = start(folder, sys.executable, "task", "ddp", "1", **mine).stdout.splitlines()
    assert [name for name, value in mine.items() if f"{name}={value}" not in kept] == []
    assert [line for line in kept if line.startswith("surefoot_")] == []


def foreign(path: Path) -> str:
    """A program for another machine."""
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xb7\0" + bytes(44))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_whose_interpreter_is_not_there_tells_host_reason_and_how_it_ended(folder: Path, shell: str) -> None:
    (folder / "exit-0-0.json").write_text("{}")  # the other rank has told
    answer = start(folder, "/opt/no python", "task", "ddp", "1", shell=shell)
    assert answer.returncode == 127
    account = launch.read_json(launch.exit_file(folder, 1))
    assert (account["host"], account["node"], account["exit_code"]) == (HOST, "n2", 127)
    kept = {key: account[key] for key in ("rank", "host", "exit_code", "signal")}
    assert parse_record(RankExit, kept, file="exit").rank == 1
    assert account["timed_out"] is False
    assert (folder / f"ddp-12-{HOST}.out").read_text().splitlines() == [
        f"surefoot: host {HOST}: /opt/no python is not there (exit code 127)",
        "→ install that interpreter there, or name one that every node has as python: in the cluster file",
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_whose_interpreter_is_for_another_machine_tells_so(folder: Path, tmp_path: Path, shell: str) -> None:
    (folder / "exit-0-0.json").write_text("{}")
    python = foreign(tmp_path / "python3")
    assert start(folder, python, "task", "ddp", "1", shell=shell).returncode == 126
    assert launch.read_json(launch.exit_file(folder, 1))["exit_code"] == 126
    assert f"host {HOST}: {python} cannot be run there (exit code 126" in (folder / f"ddp-12-{HOST}.out").read_text()


def test_a_task_that_stands_for_several_ranks_of_an_arrays_element_tells_for_each(folder: Path) -> None:
    (folder / "array-3").mkdir()
    env = {"SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}
    assert start(folder, "/nowhere", "task", "ddp", "4", **env).returncode == 127
    found = {path.name: json.loads(path.read_text())["rank"] for path in (folder / "array-3").glob("exit-*.json")}
    assert found == {f"exit-2-{rank}.json": rank for rank in (4, 5, 6, 7)}
    assert (folder / "array-3" / f"ddp-10_3-{HOST}.out").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_batch_script_without_interpreter_tells_it_in_the_jobs_output(folder: Path, shell: str) -> None:
    answer = start(folder, "/nowhere/python3", "job", "--", "srun", shell=shell)
    assert answer.returncode == 127
    assert answer.stdout.startswith(f"surefoot: host {HOST}: /nowhere/python3 is not there (exit code 127)\n→ install")


def test_an_interpreter_that_ends_badly_is_told_with_what_it_said(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho libpython3.11.so: cannot open >&2\nexit 5\n")
    broken.chmod(0o755)
    answer = start(folder, str(broken), "job", "--", "srun")
    assert answer.returncode == 5
    assert "broken -V ends with 5: libpython3.11.so: cannot open" in answer.stdout
