"""The local scheduler with real processes: every way a job can end comes back as what it was."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.errors import SchedulerError
from surefoot.model.job import Job, JobSpec, JobState, JobStatus
from surefoot.scheduler.local import LocalScheduler, reap
from surefoot.scheduler.processes import is_alive, start_ticks

ENDS_S = 30


@pytest.fixture
def scheduler() -> Iterator[LocalScheduler]:
    made = LocalScheduler(cpus=4)
    yield made
    made.close()


def spec(folder: Path, code: str, name: str = "job", **more: object) -> JobSpec:
    """A job whose ranks run a line of Python."""
    where = folder / name
    where.mkdir()
    return JobSpec(name=name, argv=(sys.executable, "-c", code), folder=str(where), **more)  # type: ignore[arg-type]


def ended(scheduler: LocalScheduler, job: Job) -> JobStatus:
    """Poll until the job is in a final state."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        status = scheduler.poll([job])[job.id]
        if status.state.final:
            return status
        time.sleep(0.02)
    raise AssertionError(f"{job.spec.name} did not end within {ENDS_S} s")


def running(scheduler: LocalScheduler, job: Job, marker: Path) -> None:
    """Poll until the job's ranks have made `marker`."""
    deadline = time.monotonic() + ENDS_S
    while not marker.exists():
        assert time.monotonic() < deadline
        scheduler.poll([job])
        time.sleep(0.02)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if start_ticks(pid) is None:
            return True
        time.sleep(0.05)
    return False


def test_exit_codes_and_signals_come_back_for_each_rank(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = "import os, signal\nr = int(os.environ['RANK'])\nos.kill(os.getpid(), signal.SIGKILL) if r == 1 else exit(r * 7)"
    done = ended(scheduler, scheduler.submit(spec(tmp_path, code, ranks_per_node=3))).done
    assert done is not None
    assert [(r.exit_code, r.signal) for r in done.ranks] == [(0, None), (None, signal.SIGKILL), (14, None)]
    assert done.state is JobState.FAILED


def test_ranks_get_the_environment_that_torchrun_gives(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = "import json, os\njson.dump(dict(os.environ), open(f\"env-{os.environ['RANK']}.json\", 'w'))"
    job = scheduler.submit(spec(tmp_path, code, ranks_per_node=2, env={"MINE": "a b\n$(x)é"}))
    assert ended(scheduler, job).state is JobState.COMPLETED
    found = [json.loads((Path(job.spec.folder) / f"env-{rank}.json").read_text()) for rank in (0, 1)]
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]) for e in found] == [
        ("0", "0", "2", "2"),
        ("1", "1", "2", "2"),
    ]
    assert found[0]["MASTER_PORT"] == found[1]["MASTER_PORT"]
    assert found[0]["MASTER_ADDR"] == "127.0.0.1"
    assert found[0]["MINE"] == "a b\n$(x)é"
    assert found[0]["SUREFOOT_JOB_ID"] == job.id


def test_two_jobs_at_once_have_different_ports(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = "import os, time\nopen('port', 'w').write(os.environ['MASTER_PORT'])\ntime.sleep(1)"
    jobs = [scheduler.submit(spec(tmp_path, code, name)) for name in ("a", "b", "c")]
    assert {ended(scheduler, job).state for job in jobs} == {JobState.COMPLETED}
    assert len({(Path(job.spec.folder) / "port").read_text() for job in jobs}) == 3


def test_output_goes_to_a_file_named_after_job_id_and_host(scheduler: LocalScheduler, tmp_path: Path) -> None:
    job = scheduler.submit(spec(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)", "talks"))
    ended(scheduler, job)
    text = (Path(job.spec.folder) / f"talks-{job.id}-{socket.gethostname()}.out").read_text()
    assert sorted(text.split()) == ["err", "out"]


def test_a_job_over_its_time_limit_is_ended_and_says_so(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    status = ended(scheduler, scheduler.submit(spec(tmp_path, code, time_limit_s=1)))
    assert status.state is JobState.TIMEOUT
    assert "1 s" in status.reason
    assert status.done is not None
    assert status.done.ranks[0].signal == signal.SIGKILL


def test_cancel_ends_the_whole_process_group_even_a_daemon(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, os\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('pids.tmp', 'w').write(f'{os.getpid()} {p.pid}')\nos.rename('pids.tmp', 'pids')\ntime.sleep(600)"
    )
    job = scheduler.submit(spec(tmp_path, code))
    pids = Path(job.spec.folder) / "pids"
    running(scheduler, job, pids)
    scheduler.cancel([job])
    assert ended(scheduler, job).state is JobState.CANCELLED
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_a_queued_job_can_be_cancelled_before_it_starts(tmp_path: Path) -> None:
    scheduler = LocalScheduler(cpus=1)
    first, second = (scheduler.submit(spec(tmp_path, "import time; time.sleep(600)", name)) for name in ("a", "b"))
    assert scheduler.poll([first, second])[second.id].state is JobState.PENDING
    scheduler.cancel([second])
    assert ended(scheduler, second).state is JobState.CANCELLED
    assert not (Path(second.spec.folder) / "supervisor.json").exists()
    scheduler.close()
    assert ended(scheduler, first).state is JobState.CANCELLED


def test_an_exclusive_job_runs_alone(tmp_path: Path) -> None:
    scheduler = LocalScheduler(cpus=8)
    jobs = [
        scheduler.submit(spec(tmp_path, "import time; time.sleep(0.4)", name, exclusive=name == "alone"))
        for name in ("before", "alone", "after")
    ]
    spans = []
    for job in jobs:
        done = ended(scheduler, job).done
        assert done is not None
        spans.append((done.started_at, done.ended_at))
    scheduler.close()
    assert spans[0][1] <= spans[1][0] < spans[1][1] <= spans[2][0]


def test_a_failing_rank_ends_the_ones_that_hang(scheduler: LocalScheduler, tmp_path: Path) -> None:
    code = "import os, time\nexit(3) if os.environ['RANK'] == '0' else time.sleep(600)"
    status = ended(scheduler, scheduler.submit(spec(tmp_path, code, ranks_per_node=2)))
    assert status.state is JobState.FAILED
    assert status.done is not None
    assert [(r.exit_code, r.signal) for r in status.done.ranks] == [(3, None), (None, signal.SIGTERM)]


def test_a_program_that_does_not_exist_fails_and_is_named(scheduler: LocalScheduler, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    job = scheduler.submit(JobSpec(name="job", argv=("/no/such/program",), folder=str(tmp_path / "job")))
    status = ended(scheduler, job)
    assert status.state is JobState.FAILED
    assert "/no/such/program" in status.reason


def test_a_killed_supervisor_takes_its_ranks_along_and_the_job_is_lost(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    code = "import os, time\nopen('p', 'w').write(str(os.getpid()))\nos.rename('p', 'pid')\ntime.sleep(600)"
    job = scheduler.submit(spec(tmp_path, code))
    marker = Path(job.spec.folder) / "pid"
    running(scheduler, job, marker)
    os.kill(json.loads((Path(job.spec.folder) / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    status = ended(scheduler, job)
    assert status.state is JobState.LOST
    assert gone(int(marker.read_text()))


def test_a_submitter_killed_with_9_leaves_no_process_and_a_done_file(tmp_path: Path) -> None:
    code = "import os, time\nopen('p', 'w').write(str(os.getpid()))\nos.rename('p', 'pid')\ntime.sleep(600)"
    job_spec = spec(tmp_path, code)
    submitter = (
        "import sys, time\nfrom surefoot.model.job import JobSpec\nfrom surefoot.scheduler.local import LocalScheduler\n"
        "s = LocalScheduler()\nj = s.submit(JobSpec.model_validate_json(sys.argv[1]))\n"
        "while True:\n    s.poll([j]); time.sleep(0.05)"
    )
    process = subprocess.Popen([sys.executable, "-c", submitter, job_spec.model_dump_json()])
    folder = Path(job_spec.folder)
    deadline = time.monotonic() + ENDS_S
    while not (folder / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert gone(int((folder / "pid").read_text()))
    assert reap(folder)
    assert json.loads((folder / "done.json").read_text())["state"] == "CANCELLED"


def test_a_damaged_done_file_loses_its_own_job_only(scheduler: LocalScheduler, tmp_path: Path) -> None:
    bad, good = (scheduler.submit(spec(tmp_path, "pass", name)) for name in ("bad", "good"))
    (Path(bad.spec.folder) / "done.json").write_bytes(b"\xff\xfe")
    assert {ended(scheduler, job).state for job in (good, bad)} == {JobState.COMPLETED}
    (Path(bad.spec.folder) / "done.json").write_bytes(b"\xff\xfe")
    status = scheduler.poll([bad])[bad.id]
    assert status.state is JobState.LOST
    assert "cannot read" in status.reason


def test_a_done_file_that_a_rank_wrote_itself_is_not_believed(scheduler: LocalScheduler, tmp_path: Path) -> None:
    lie = (
        "import json, os, time\n"
        "done = {'id': os.environ['SUREFOOT_JOB_ID'], 'name': 'job', 'state': 'COMPLETED', 'started_at': 0, 'ended_at': 1,"
        " 'ranks': [{'rank': 0, 'host': 'x', 'exit_code': 0}]}\n"
        "json.dump(done, open('d', 'w'))\nos.rename('d', 'done.json')\ntime.sleep(1)\nraise SystemExit(1)"
    )
    job = scheduler.submit(spec(tmp_path, lie))
    running(scheduler, job, Path(job.spec.folder) / "done.json")
    assert scheduler.poll([job])[job.id].state is JobState.RUNNING
    assert ended(scheduler, job).state is JobState.FAILED


def test_a_stopped_supervisor_does_not_outlive_its_time_limit(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.scheduler.local.OVERDUE_S", 1.0)
    code = "import os, time\nopen('p', 'w').write(str(os.getpid()))\nos.rename('p', 'pid')\ntime.sleep(600)"
    job = scheduler.submit(spec(tmp_path, code, time_limit_s=1))
    marker = Path(job.spec.folder) / "pid"
    running(scheduler, job, marker)
    os.kill(json.loads((Path(job.spec.folder) / "supervisor.json").read_text())["pid"], signal.SIGSTOP)
    assert ended(scheduler, job).state is JobState.LOST
    assert gone(int(marker.read_text()))


def test_a_killed_supervisor_takes_along_what_a_wrapper_started(scheduler: LocalScheduler, tmp_path: Path) -> None:
    inner = "import os, time; open('p', 'w').write(str(os.getpid())); os.rename('p', 'pid'); time.sleep(600)"
    code = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {inner!r}]))"
    job = scheduler.submit(spec(tmp_path, code))
    marker = Path(job.spec.folder) / "pid"
    running(scheduler, job, marker)
    while not json.loads((Path(job.spec.folder) / "supervisor.json").read_text())["ranks"]:
        time.sleep(0.02)
    os.kill(json.loads((Path(job.spec.folder) / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    assert ended(scheduler, job).state is JobState.LOST
    assert gone(int(marker.read_text()))


def test_threads_are_what_the_job_asked_for_whatever_the_shell_says(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    job = scheduler.submit(
        spec(tmp_path, "import os; open('n', 'w').write(os.environ['OMP_NUM_THREADS'])", cpus_per_rank=2)
    )
    ended(scheduler, job)
    assert (Path(job.spec.folder) / "n").read_text() == "2"


def test_two_nodes_are_refused_with_what_to_do(scheduler: LocalScheduler, tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="has one"):
        scheduler.submit(spec(tmp_path, "", nodes=2))


def test_a_reused_pid_is_not_taken_for_the_process_that_had_it() -> None:
    assert is_alive(os.getpid(), start_ticks(os.getpid()))
    assert not is_alive(os.getpid(), (start_ticks(os.getpid()) or 0) + 1)
    assert not is_alive(2**22 - 1, 1)
