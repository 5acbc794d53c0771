"""SlurmScheduler on a real Slurm: several slurmd on this machine, with accounting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import sshd
from slurm_here import SlurmHere
from surefoot.connection.base import CommandResult
from surefoot.connection.local import LocalConnection
from surefoot.connection.ssh import SshConnection
from surefoot.errors import ConnectionFailedError, SchedulerError
from surefoot.hostlist import compress, expand
from surefoot.model.job import EndCause, Job, JobSpec, JobState, JobStatus
from surefoot.scheduler.slurm.script import Site
from surefoot.scheduler.slurm.slurm import SlurmScheduler

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]
ENDS_S = 60.0
HOSTILE = "a b \"c\" 'd' $HOME $(id) `e` é; \n %j \\ #"


@pytest.fixture
def scheduler(slurm: SlurmHere) -> Iterator[SlurmScheduler]:
    made = SlurmScheduler(LocalConnection(), Site(python=sys.executable), env=slurm.env)
    yield made
    made.close()


def spec(folder: Path, code: str, name: str = "job", **changes: object) -> JobSpec:
    (folder / name).mkdir(parents=True, exist_ok=True)
    fields = {"argv": (sys.executable, "-c", code), "folder": str(folder / name), "memory_mib_per_node": 50, **changes}
    return JobSpec.model_validate({"name": name, **fields})


def until(scheduler: SlurmScheduler, job: Job, *, state: JobState | None = None, seconds: float = ENDS_S) -> JobStatus:
    """Poll until the job is in `state`, or over."""
    deadline = time.monotonic() + seconds
    while True:
        status = scheduler.poll([job])[job.id]
        if status.state is state or (state is None and status.state.final):
            return status
        assert time.monotonic() < deadline, status
        assert not status.state.final, status
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("pass", (0, None)),
        ("exit(7)", (7, None)),
        ("exit(255)", (255, None)),
        ("import os; os.kill(os.getpid(), 9)", (None, 9)),
        ("import os; os.kill(os.getpid(), 11)", (None, 11)),
    ],
)
def test_the_ending_of_a_rank_comes_back_as_it_was(
    scheduler: SlurmScheduler, tmp_path: Path, code: str, ending: tuple[int | None, int | None]
) -> None:
    status = until(scheduler, scheduler.submit(spec(tmp_path, code)))
    good = ending == (0, None)
    assert status.done is not None
    assert status.state is status.done.state is (JobState.COMPLETED if good else JobState.FAILED)
    assert [(r.rank, (r.exit_code, r.signal)) for r in status.done.ranks] == [(0, ending)]
    assert status.cause is (None if good else EndCause.EXIT)


TELL = "import json, os, time; open(f'env-{os.environ[\"RANK\"]}.json', 'w').write(json.dumps({**os.environ, 'cwd': os.getcwd()})); os.write(1, f'rank {os.environ[\"RANK\"]}\\n'.encode())"


@pytest.mark.parametrize("launch", ["ranks", "torchrun"])
def test_ranks_are_started_in_blocks_and_told_what_torchrun_would_tell(
    scheduler: SlurmScheduler, tmp_path: Path, launch: str
) -> None:
    job = scheduler.submit(
        spec(
            tmp_path, TELL, "two-by-two", nodes=2, ranks_per_node=2, gpus_per_node=2, launch=launch, env={"W": HOSTILE}
        )
    )
    status = until(scheduler, job)
    assert status.state is JobState.COMPLETED, status
    assert status.done is not None
    folder = Path(job.spec.folder)
    nodes = [json.loads((folder / f"exit-0-{rank}.json").read_text())["node"] for rank in range(4)]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    here = socket.gethostname()  # all nodes of this cluster are one host
    assert [r.host for r in status.done.ranks] == [here] * 4
    found = [json.loads((folder / f"env-{rank}.json").read_text()) for rank in range(4)]
    assert [(e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"], e["GROUP_RANK"]) for e in found] == [
        ("0", "0", "4", "2", "0"), ("1", "1", "4", "2", "0"), ("2", "0", "4", "2", "1"), ("3", "1", "4", "2", "1"),
    ]  # fmt: skip
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found}) == 1
    assert {e["W"] for e in found} == {HOSTILE}
    assert {(e["SUREFOOT_JOB_ID"], e["SUREFOOT_JOB_NAME"], e["SUREFOOT_JOB_FOLDER"]) for e in found} == {
        (job.id, "two-by-two", job.spec.folder)
    }
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["0,1"] * 4
    assert {e["cwd"] for e in found} == {job.spec.folder}
    text = (folder / f"two-by-two-{job.id}-{here}.out").read_text()
    assert sorted(line for line in text.splitlines() if line.startswith("rank")) == [f"rank {r}" for r in range(4)]


def test_hostile_characters_in_folder_command_and_environment_arrive_as_they_are(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    folder = tmp_path / "a b \"c\" 'd' $HOME $(id) `e` é; # *"
    code = "import sys, os; open('out', 'w').write(sys.argv[1] + os.environ['W'])"
    job = scheduler.submit(
        spec(folder, "", "x").model_copy(update={"argv": (sys.executable, "-c", code, HOSTILE), "env": {"W": HOSTILE}})
    )
    assert until(scheduler, job).state is JobState.COMPLETED
    assert (Path(job.spec.folder) / "out").read_text() == HOSTILE * 2


@pytest.mark.parametrize("bad", ["100%j", "back\\slash", "line\nbreak"])
def test_a_folder_that_slurm_would_write_elsewhere_is_refused(
    scheduler: SlurmScheduler, tmp_path: Path, bad: str
) -> None:
    with pytest.raises(SchedulerError, match="Slurm could not write there"):
        scheduler.submit(spec(tmp_path / bad, "pass"))


def test_a_failing_rank_ends_the_ones_that_hang_and_every_ending_is_told(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    code = "import os, time\nexit(3) if os.environ['RANK'] == '0' else time.sleep(600)"
    status = until(scheduler, scheduler.submit(spec(tmp_path, code, nodes=2, ranks_per_node=2)))
    assert status.state is JobState.FAILED
    assert status.done is not None
    assert [(r.rank, r.exit_code, r.signal) for r in status.done.ranks] == [
        (0, 3, None), (1, None, 15), (2, None, 15), (3, None, 15),
    ]  # fmt: skip


def test_cancel_ends_ranks_that_ignore_it_and_returns_when_they_are_gone(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('p', 'w').write(str(os.getpid()))\nos.rename('p', 'pid')\ntime.sleep(600)"
    )
    job = scheduler.submit(spec(tmp_path, code))
    until(scheduler, job, state=JobState.RUNNING)
    wait_for(tmp_path / "job/pid")
    scheduler.cancel([job])
    status = scheduler.poll([job])[job.id]
    assert (status.state, status.cause) == (JobState.CANCELLED, EndCause.CANCELLED)
    assert gone(int((tmp_path / "job/pid").read_text()))


def test_a_job_that_waits_says_why_and_can_be_cancelled(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    first = scheduler.submit(spec(tmp_path, "import time; time.sleep(600)", "all", nodes=4, exclusive=True))
    until(scheduler, first, state=JobState.RUNNING)
    second = scheduler.submit(spec(tmp_path, "pass", "waits", nodes=4))
    deadline = time.monotonic() + 15
    while "[Resources]" not in (status := scheduler.poll([second])[second.id]).reason:
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    assert "waits for nodes that other jobs hold" in status.reason
    scheduler.cancel([second])
    status = scheduler.poll([second])[second.id]
    assert (status.state, status.done) == (JobState.CANCELLED, None)
    scheduler.cancel([first])


def test_a_job_over_its_time_limit_is_ended_to_the_second_and_says_so(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    status = until(scheduler, scheduler.submit(spec(tmp_path, "import time; time.sleep(600)", time_limit_s=3)))
    assert (status.state, status.cause) == (JobState.TIMEOUT, EndCause.TIME)
    assert status.done is not None
    assert status.done.state is JobState.TIMEOUT
    assert [(r.exit_code, r.signal) for r in status.done.ranks] == [(None, 15)]
    assert 3 <= status.done.ended_at - status.done.started_at < 8


def test_slurm_s_own_time_limit_is_told_from_a_failure(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    job = scheduler.submit(spec(tmp_path, "import time; time.sleep(600)", time_limit_s=600))
    until(scheduler, job, state=JobState.RUNNING)
    slurm.command("scontrol", "update", f"JobId={job.id}", "EndTime=now+5")  # a limit counts in minutes
    status = until(scheduler, job, seconds=150)
    assert (status.state, status.cause) == (JobState.TIMEOUT, EndCause.TIME)


def test_an_array_is_over_when_all_its_elements_are_and_as_bad_as_the_worst(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    code = "import os; open('me', 'w').write(os.environ['SUREFOOT_JOB_ID']); exit(os.environ['SLURM_ARRAY_TASK_ID'] == '5')"
    job = scheduler.submit(spec(tmp_path, code, array="1-3,5%2"))
    status = until(scheduler, job)
    assert status.state is JobState.FAILED
    assert status.reason.startswith("1 of 4 not completed")
    states = {n: json.loads((tmp_path / f"job/array-{n}/done.json").read_text())["state"] for n in (1, 2, 3, 5)}
    assert states == {1: "COMPLETED", 2: "COMPLETED", 3: "COMPLETED", 5: "FAILED"}
    assert (tmp_path / "job/array-5/me").read_text() == f"{job.id}_5"


def test_fifty_jobs_are_no_more_questions_than_one(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    jobs = [scheduler.submit(spec(tmp_path, "pass", f"j{n}")) for n in range(50)]
    before = dict(scheduler.queries)
    deadline, polls, begun = time.monotonic() + 120, 0, time.monotonic()
    while not all(status.state.final for status in scheduler.poll(jobs).values()):
        assert time.monotonic() < deadline
        polls += 1
        time.sleep(0.1)
    assert {status.state for status in scheduler.poll(jobs).values()} == {JobState.COMPLETED}
    asked = {name: count - before.get(name, 0) for name, count in scheduler.queries.items()}
    rounds = (time.monotonic() - begun) / 0.8 + 2
    assert asked["squeue"] <= rounds
    assert asked.get("sacct", 0) <= asked["squeue"]
    assert asked["files"] <= rounds
    assert asked["sbatch"] == 0


def test_submitting_again_after_a_lost_answer_does_not_run_twice(slurm: SlurmHere, tmp_path: Path) -> None:
    class Forgetful(LocalConnection):
        """Runs sbatch, and loses what it said."""

        lost = 0

        def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
            result = super().run(argv, **options)
            if "sbatch" in argv and not self.lost:
                self.lost += 1
                raise ConnectionFailedError("the link broke while 'env' ran there; it may have run to its end")
            return result

    connection = Forgetful()
    scheduler = SlurmScheduler(connection, Site(python=sys.executable), env=slurm.env)
    job = scheduler.submit(spec(tmp_path, "open('runs', 'a').write('x')", env={"SUREFOOT_NONCE": "n1"}))
    assert until(scheduler, job).state is JobState.COMPLETED
    assert connection.lost == 1
    assert scheduler.queries["sbatch"] == 1
    assert (tmp_path / "job/runs").read_text() == "x"


def test_a_folder_s_second_submission_ends_at_once_and_leaves_the_first_alone(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    job = scheduler.submit(spec(tmp_path, "import time; open('runs', 'a').write('x'); time.sleep(3)"))
    until(scheduler, job, state=JobState.RUNNING)
    wait_for(tmp_path / "job/runs")
    second = slurm.command("sbatch", "--parsable", f"--chdir={tmp_path}/job", f"{tmp_path}/job/job.sh").strip()
    status = until(scheduler, job)
    assert (status.state, status.done and status.done.id) == (JobState.COMPLETED, job.id)
    deadline = time.monotonic() + 20
    while (
        "COMPLETING" in (shown := slurm.command("scontrol", "show", "job", second))
        or "State=RUNNING" in shown
        or "State=PENDING" in shown
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "ExitCode=76:0" in shown
    assert (tmp_path / "job/runs").read_text() == "x"


def test_what_can_never_run_is_said_before_it_is_submitted(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    for changes, says in (
        ({"nodes": 5}, "5 nodes are asked for, and 4"),
        ({"gpus_per_node": 9}, r"9 GPUs a node \(has 8\)"),
        ({"partition": "none"}, "partition 'none' does not exist; there are gpu, short"),
        ({"partition": "short", "time_limit_s": 301}, "above the 300 s of partition 'short'"),
        ({"hosts": "n9"}, "node 'n9' is not in partition 'gpu'"),
    ):
        with pytest.raises(SchedulerError, match=says):
            scheduler.submit(spec(tmp_path, "pass", **changes))
    assert scheduler.queries["sbatch"] == 0


def test_what_slurm_refuses_is_said_in_its_words(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match=r"constraint|feature"):
        scheduler.submit(spec(tmp_path, "pass", constraint="nosuch"))


def test_a_python_that_is_not_on_the_node_is_a_failure_with_its_reason(slurm: SlurmHere, tmp_path: Path) -> None:
    scheduler = SlurmScheduler(LocalConnection(), Site(python="/no/such/python"), env=slurm.env)
    job = scheduler.submit(spec(tmp_path, "pass"))
    status = until(scheduler, job)
    assert (status.state, status.done) == (JobState.FAILED, None)
    assert "it left no done.json" in status.reason


def test_a_killed_submitter_s_job_is_listed_and_can_be_reaped(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    submitter = (
        "import sys, time\nfrom surefoot.connection.local import LocalConnection\nfrom surefoot.model.job import JobSpec\n"
        "from surefoot.scheduler.slurm.script import Site\nfrom surefoot.scheduler.slurm.slurm import SlurmScheduler\n"
        "s = SlurmScheduler(LocalConnection(), Site(python=sys.executable))\n"
        "print(s.submit(JobSpec.model_validate_json(sys.argv[1])).id, flush=True)\ntime.sleep(600)"
    )
    wanted = spec(tmp_path, "import time; time.sleep(600)", env={"SUREFOOT_RUN": "run-1", "SUREFOOT_NONCE": "abc"})
    process = subprocess.Popen(
        [sys.executable, "-c", submitter, wanted.model_dump_json()], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **slurm.env},
    )  # fmt: skip
    assert process.stdout is not None
    identifier = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    assert [(j.id, j.tag) for j in scheduler.tagged()] == [(identifier, "surefoot:run-1:abc:job")]
    assert scheduler.reap(Path(wanted.folder))
    assert scheduler.tagged() == []
    assert scheduler.reap(tmp_path)  # nothing was ever submitted from there


def test_a_controller_that_is_away_for_a_while_changes_nothing(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    job = scheduler.submit(spec(tmp_path, "import time; open('begun', 'w').write('x'); time.sleep(18)"))
    until(scheduler, job, state=JobState.RUNNING)
    wait_for(tmp_path / "job/begun")  # a srun that asks for its step in vain waits for two minutes
    slurm.stop_one("slurmctld", signal.SIGTERM)  # it saves what it knows; after SIGKILL it would kill what it forgot
    try:
        seen = set()
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            status = scheduler.poll([job])[job.id]
            seen.add((status.state, status.reason))
            time.sleep(0.3)
        assert {state for state, _ in seen} == {JobState.RUNNING}
        assert any("does not answer" in reason for _, reason in seen)
    finally:
        slurm.start_controller()
    assert until(scheduler, job, seconds=200).state is JobState.COMPLETED


def test_a_node_that_dies_is_the_cause_and_the_job_runs_elsewhere_after_it(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    from surefoot.scheduler.slurm.retry import retry

    code = "import os, time; time.sleep(0 if os.path.exists('try-1') else 600)"
    job = scheduler.submit(spec(tmp_path, code, hosts="", constraint=""))
    status = until(scheduler, job, state=JobState.RUNNING)
    node = status.nodes
    slurm.stop_one(node)
    for pid in step_daemons(job.id):
        os.kill(pid, signal.SIGKILL)
    try:
        status = until(scheduler, job, seconds=120)
        assert (status.state, status.cause) == (JobState.FAILED, EndCause.NODE), status
        assert scheduler.bad_nodes(status) == node
        again = retry(job.spec, status, 1, node)
        assert again is not None
        second = scheduler.resubmit(job, exclude_hosts=again.exclude_hosts)
        ended = until(scheduler, second)
        assert ended.state is JobState.COMPLETED
        assert ended.nodes != node
        assert json.loads((tmp_path / "job/try-1/job.json").read_text())["id"] == job.id
    finally:
        slurm.start_node(node)


def test_a_job_that_was_requeued_runs_again_and_only_its_last_life_counts(
    scheduler: SlurmScheduler, tmp_path: Path, slurm: SlurmHere
) -> None:
    code = "import os, time; time.sleep(0 if os.environ.get('SLURM_RESTART_COUNT') else 600)"
    job = scheduler.submit(spec(tmp_path, code, requeue=True))
    until(scheduler, job, state=JobState.RUNNING)
    wait_for(tmp_path / "job/started.json")
    slurm.command("scontrol", "requeue", job.id)
    states = []
    deadline = time.monotonic() + 180
    while not (status := scheduler.poll([job])[job.id]).state.final:
        states.append(status.state)
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
    assert status.state is JobState.COMPLETED
    assert JobState.PENDING in states
    assert json.loads((tmp_path / "job/started.json").read_text())["life"] == 1


def test_a_done_file_that_a_rank_wrote_itself_is_not_believed(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    lie = (
        "import json, os, time\n"
        "lie = {'id': os.environ['SUREFOOT_JOB_ID'], 'name': 'job', 'state': 'COMPLETED', 'reason': '',\n"
        "       'started_at': time.time(), 'ended_at': time.time(),\n"
        "       'ranks': [{'rank': 0, 'host': 'x', 'exit_code': 0, 'signal': None}]}\n"
        "open('done.json', 'w').write(json.dumps(lie))\ntime.sleep(4)\nexit(7)"
    )
    status = until(scheduler, scheduler.submit(spec(tmp_path, lie)))
    assert (status.state, status.done and status.done.ranks[0].exit_code) == (JobState.FAILED, 7)


def test_a_damaged_done_file_loses_its_own_job_only(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    bad, good = (scheduler.submit(spec(tmp_path, "pass", name)) for name in ("bad", "good"))
    deadline = time.monotonic() + 30
    while not (tmp_path / "bad/done.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (tmp_path / "bad/done.json").write_bytes(b"\xff\xfe")
    assert until(scheduler, good).state is JobState.COMPLETED
    status = until(scheduler, bad)
    assert (status.state, "cannot read its done.json" in status.reason) == (JobState.LOST, True)


def test_two_jobs_at_once_on_one_node_have_different_ports(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    code = "import os, time\nopen('port', 'w').write(os.environ['MASTER_PORT'])\ntime.sleep(2)"
    jobs = [scheduler.submit(spec(tmp_path, code, name, hosts="n1")) for name in ("a", "b", "c")]
    assert {until(scheduler, job).state for job in jobs} == {JobState.COMPLETED}
    assert len({(tmp_path / name / "port").read_text() for name in ("a", "b", "c")}) == 3


def test_the_time_from_a_job_s_end_to_its_state_being_known_is_below_two_seconds(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    late = []
    for n in range(5):
        status = until(scheduler, scheduler.submit(spec(tmp_path, "import time; time.sleep(1)", f"t{n}")))
        assert status.done is not None
        late.append(time.time() - status.done.ended_at)
    assert sorted(late)[2] < 2


@pytest.mark.parametrize(
    "text",
    ["n1", "n[1-4]", "n[01-03,7,09-11]", "r[1-2]n[01-02]", "a,b[3-4],c", "n[99-101]", "n[099-101]", "x1y[2-3]"],
)
def test_hostlists_mean_what_slurm_says_they_mean(slurm: SlurmHere, text: str) -> None:
    hosts = slurm.command("scontrol", "show", "hostnames", text).split()
    assert expand(text) == hosts
    theirs = slurm.command("scontrol", "show", "hostlist", ",".join(hosts)).strip()
    assert expand(theirs) == hosts
    assert slurm.command("scontrol", "show", "hostnames", compress(hosts)).split() == hosts


def test_threads_may_submit_and_poll_at_once(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    states: list[JobState] = []

    def work(n: int) -> None:
        states.append(until(scheduler, scheduler.submit(spec(tmp_path, "pass", f"t{n}"))).state)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == [JobState.COMPLETED] * 6


def test_the_same_over_ssh_and_its_evidence_comes_back(slurm: SlurmHere, tmp_path: Path) -> None:
    assert sshd.problems() == []
    (tmp_path / "sshd").mkdir()
    with sshd.running(tmp_path / "sshd") as server:
        connection = SshConnection("there", config=server.config)
        scheduler = SlurmScheduler(connection, Site(python=sys.executable), env=slurm.env)
        try:
            wanted = spec(tmp_path, TELL, "far", nodes=2, ranks_per_node=2, env={"W": HOSTILE})
            Path(wanted.folder).rmdir()  # the other side's folder is made by submitting
            job = scheduler.submit(wanted)
            assert server.cut() > 0  # and the link breaks once
            status = until(scheduler, job)
            assert status.state is JobState.COMPLETED
            digests = connection.get_tree(Path(wanted.folder), tmp_path / "here" / "far")
            assert {"done.json", "job.json", "request.json", "env-3.json"} <= digests.keys()
            assert json.loads((tmp_path / "here/far/env-3.json").read_text())["W"] == HOSTILE
        finally:
            scheduler.close()
            connection.close()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def gone(pid: int) -> bool:
    from surefoot.scheduler.processes import start_ticks

    deadline = time.monotonic() + 10
    while start_ticks(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def step_daemons(job_id: str) -> list[int]:
    """Slurmstepd processes of a job, and what they started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"slurmstepd: [{job_id}.".encode() in command or f"SLURM_JOB_ID={job_id}\0".encode() in environ:
                found.append(int(entry.name))
    return found
