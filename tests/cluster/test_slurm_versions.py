"""The oldest and the newest Slurm that a lab can be: a job of each kind, what is left, a node that dies, a climb.

Each is a lab of another Debian (``surefoot lab up --suite``), whose base root is fetched when it is
not there yet. Not part of ``make test``: ``make test-versions``, which takes the suites to try from
SUITES="bullseye trixie".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drilling import statuses
from held import Held
from lab_drill import LabDrill, lab, lab_here
from surefoot.config.load import load_cluster
from surefoot.connection.ssh import SshConnection
from surefoot.lab.places import LabPaths
from surefoot.model.job import EndCause, Job, JobSpec, JobState, JobStatus
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

pytestmark = [pytest.mark.lab, pytest.mark.versions, pytest.mark.timeout(900)]

OWN_PYTHON = "/usr/bin/python3"
"""Of the hosts: where the one that runs the tests does not start there."""
SUITES = os.environ.get("SUITES", "bullseye sid").split()


@dataclass(frozen=True)
class OnLab:
    """A lab of one suite, and a scheduler that reaches it over ssh."""

    paths: LabPaths
    scheduler: SlurmScheduler
    connection: SshConnection
    python: str

    def spec(self, name: str, code: str, **changes: Any) -> JobSpec:
        fields = {"argv": (self.python, "-c", code), "folder": str(self.paths.shared / "jobs" / name), **changes}
        return JobSpec.model_validate({"name": name, "memory_mib_per_node": 50, "time_limit_s": 300, **fields})

    def on_head(self, *argv: str) -> str:
        return self.connection.run(argv, timeout_s=60).stdout.decode()

    def wait(self, jobs: Mapping[str, Job], seconds: float = 200) -> dict[str, JobStatus]:
        """How jobs end, by name."""
        deadline = time.monotonic() + seconds
        while True:
            now = self.scheduler.poll(list(jobs.values()))
            if all(status.state.final for status in now.values()):
                return {name: now[job.id] for name, job in jobs.items()}
            assert time.monotonic() < deadline, now
            time.sleep(0.3)

    def until(self, job: Job, state: JobState, words: str = "", seconds: float = 60) -> JobStatus:
        deadline = time.monotonic() + seconds
        while True:
            status = self.scheduler.poll([job])[job.id]
            if status.state is state and words in status.reason:
                return status
            assert time.monotonic() < deadline, status
            assert not status.state.final, status
            time.sleep(0.2)


@pytest.fixture(scope="module", params=SUITES)
def on_lab(request: pytest.FixtureRequest, held: Held) -> Iterator[OnLab]:
    """A head and two nodes."""
    with lab_here(held, request.param[0], "--suite", request.param) as paths:
        python = load_cluster(paths.cluster).record.python or OWN_PYTHON
        connection = SshConnection("head", config=paths.ssh_config)
        scheduler = SlurmScheduler(connection, Site(python=python, partition="gpu", account="lab"))
        try:
            yield OnLab(paths, scheduler, connection, python)
        finally:
            scheduler.close()
            connection.close()


SLEEPS = "import time; open('begun', 'w').write('x'); time.sleep(600)"
TELLS = (
    "import json, os; json.dump(dict(os.environ), open('env-' + os.environ['RANK'], 'w')); print('here', flush=True)"
)
CATCHES = """\
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(41))
time.sleep(600)"""


def test_jobs_of_each_kind_end_as_they_should(on_lab: OnLab) -> None:
    asked = {
        "good": on_lab.spec("good", TELLS, nodes=2, ranks_per_node=2, gpus_per_node=2, env={"W": "a b\n$(id) é"}),
        "seven": on_lab.spec("seven", "exit(7)"),
        "killed": on_lab.spec("killed", "import os; os.kill(os.getpid(), 9)", ranks_per_node=2),
        "limit": on_lab.spec("limit", SLEEPS, time_limit_s=4),
        "array": on_lab.spec("array", "import os; exit(os.environ['SLURM_ARRAY_TASK_ID'] == '2')", array="0-2"),
        "memory": on_lab.spec("memory", "x = b'x' * 400_000_000; import time; time.sleep(20)"),
        "signal": on_lab.spec("signal", CATCHES, signal="USR1@30", time_limit_s=60),
        "requeued": on_lab.spec("requeued", "import os, time; time.sleep(0 if os.environ.get('SLURM_RESTART_COUNT') else 600)", requeue=True),
        "over": on_lab.spec("over", SLEEPS, time_limit_s=600),
    }  # fmt: skip
    if on_lab.python != OWN_PYTHON:  # with PyTorch
        asked["torchrun"] = on_lab.spec(
            "torchrun", TELLS, nodes=2, ranks_per_node=2, launch="torchrun", memory_mib_per_node=4000
        )
    jobs = {name: on_lab.scheduler.submit(spec) for name, spec in asked.items()}
    after = on_lab.spec("after", "pass", dependency=f"afterany:{jobs['seven'].id}")
    never = on_lab.spec("never", "pass", dependency=f"afterok:{jobs['seven'].id}")
    jobs |= {"after": on_lab.scheduler.submit(after), "never": on_lab.scheduler.submit(never)}
    for name in ("requeued", "over"):
        on_lab.until(jobs[name], JobState.RUNNING)
    on_lab.on_head("scontrol", "requeue", jobs["requeued"].id)
    on_lab.connection.run(["ssh", "root@head", "scontrol", "update", f"JobId={jobs['over'].id}", "EndTime=now+5"])
    ended = on_lab.wait(jobs)
    found = {name: (status.state, status.cause) for name, status in ended.items()}
    torchrun = {"torchrun": (JobState.COMPLETED, None)} if "torchrun" in asked else {}
    assert found == {
        **torchrun,
        "good": (JobState.COMPLETED, None),
        "seven": (JobState.FAILED, EndCause.EXIT),
        "killed": (JobState.FAILED, EndCause.EXIT),
        "limit": (JobState.TIMEOUT, EndCause.TIME),
        "array": (JobState.FAILED, EndCause.EXIT),
        # Without cgroups it is jobacct_gather that kills it, the launcher too, and does not say why.
        "memory": (JobState.FAILED, EndCause.EXIT),
        "signal": (JobState.FAILED, EndCause.EXIT),
        "requeued": (JobState.COMPLETED, None),
        "over": (JobState.TIMEOUT, EndCause.TIME),
        "after": (JobState.COMPLETED, None),
        "never": (JobState.CANCELLED, EndCause.CANCELLED),
    }, ended
    endings = {
        name: [(r.exit_code, r.signal) for r in status.done.ranks] for name, status in ended.items() if status.done
    }
    assert endings["seven"] == [(7, None)]
    assert (None, 9) in endings["killed"]
    assert endings["signal"] == [(41, None)]
    told = [json.loads((on_lab.paths.shared / f"jobs/good/env-{rank}").read_text()) for rank in range(4)]
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["SLURMD_NODENAME"]) for e in told] == [
        ("0", "0", "4", "n1"), ("1", "1", "4", "n1"), ("2", "0", "4", "n2"), ("3", "1", "4", "n2"),
    ]  # fmt: skip
    assert {e["W"] for e in told} == {"a b\n$(id) é"}
    assert [e["CUDA_VISIBLE_DEVICES"] for e in told] == ["0,1"] * 4
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in told}) == 1


def test_a_job_that_waits_says_why_and_what_was_left_is_listed_and_ended(on_lab: OnLab) -> None:
    mark = {"SUREFOOT_RUN": "run-1", "SUREFOOT_NONCE": "abc"}
    holds = on_lab.scheduler.submit(on_lab.spec("holds", SLEEPS, nodes=2, exclusive=True, env=mark))
    on_lab.until(holds, JobState.RUNNING)
    waits = on_lab.scheduler.submit(on_lab.spec("waits", "pass", nodes=2, env=mark))
    on_lab.until(waits, JobState.PENDING, words="[Resources]")
    assert "climber" in str(on_lab.scheduler.why_waiting(waits))
    listed = {job.name: (job.id, job.run, job.state) for job in on_lab.scheduler.tagged()}
    assert listed == {"holds": (holds.id, "run-1", "RUNNING"), "waits": (waits.id, "run-1", "PENDING")}
    assert on_lab.scheduler.reap(Path(waits.spec.folder))
    assert on_lab.scheduler.end(on_lab.scheduler.tagged()) == []
    assert on_lab.on_head("squeue", "-h") == ""
    ended = on_lab.wait({"holds": holds, "waits": waits})
    assert {status.state for status in ended.values()} == {JobState.CANCELLED}


def test_a_node_that_dies_is_the_cause_and_the_job_runs_elsewhere_after_it(on_lab: OnLab) -> None:
    code = "import os, time; time.sleep(0 if os.path.exists('try-1') else 600)"
    job = on_lab.scheduler.submit(on_lab.spec("dies", code))
    node = on_lab.until(job, JobState.RUNNING).nodes
    lab("break", "slurmd-killed", node, name=on_lab.paths.folder.name)
    try:
        status = on_lab.wait({"dies": job})["dies"]
        assert (status.state, status.cause) == (JobState.FAILED, EndCause.NODE), status
        again = on_lab.scheduler.try_again(job, status)
        assert again is not None
        status = on_lab.wait({"again": again.job})["again"]
        assert status.state is JobState.COMPLETED
        assert status.nodes not in ("", node)
    finally:
        lab("mend", name=on_lab.paths.folder.name)


def test_a_controller_that_is_away_for_a_while_changes_nothing(on_lab: OnLab) -> None:
    job = on_lab.scheduler.submit(on_lab.spec("away", "import time; open('begun', 'w').write('x'); time.sleep(12)"))
    on_lab.until(job, JobState.RUNNING)
    deadline = time.monotonic() + 20
    while not (Path(job.spec.folder) / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    lab("break", "slurmctld-stopped", name=on_lab.paths.folder.name)
    try:
        on_lab.until(job, JobState.RUNNING, words="does not answer", seconds=30)
    finally:
        lab("mend", name=on_lab.paths.folder.name)
    assert on_lab.wait({"away": job})["away"].state is JobState.COMPLETED


def test_a_climb_proves_slurms_part(on_lab: OnLab, tmp_path: Path) -> None:
    drill = LabDrill(tmp_path / "root", lab=on_lab.paths)
    answer = drill.json("climb", *drill.on_lab, "--to", "scheduler")
    asked = {name: status for name, status in statuses(answer).items() if status != "SKIPPED"}
    assert asked == dict.fromkeys(("runner", "sync", "scheduler"), "PASSED")
    assert drill.queue() == []
