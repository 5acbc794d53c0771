"""Ranks as processes of this machine, behind the interface that Slurm implements."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import EvidenceError, SchedulerError
from surefoot.evidence import parse_json, parse_record
from surefoot.files import write_atomic
from surefoot.model.job import Job, JobDone, JobSpec, JobState, JobStatus
from surefoot.model.listed import TaggedJob
from surefoot.scheduler.base import Waiting
from surefoot.scheduler.processes import is_alive, start_ticks

_CANCEL_WAIT_S = 15.0
OVERDUE_S = 30.0
"""Beyond a job's time limit and what ending it takes: then its supervisor is the one that hangs."""


@dataclass
class _Running:
    """A job whose supervisor was started."""

    job: Job
    process: subprocess.Popen[bytes]
    started_at: float
    """Monotonic."""


class LocalScheduler:
    """First come, first served, as many ranks at once as there are CPUs; an exclusive job runs alone.

    Jobs are started by `poll`, so a job that nobody watches does not start: there is no daemon.
    """

    def __init__(self, cpus: int | None = None) -> None:
        self._cpus = cpus or len(os.sched_getaffinity(0))
        self._queue: list[Job] = []
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, int] = {}
        """Exit code of each supervisor that has ended."""
        self._cancelled: set[str] = set()
        self._unstarted: dict[str, str] = {}
        """Jobs that could not be started, and why."""
        self._lock = threading.RLock()

    def submit(self, spec: JobSpec) -> Job:
        if spec.nodes != 1:
            raise SchedulerError(
                f"job {spec.name!r} asks for {spec.nodes} nodes; the local scheduler has one",
                next_action="use a ladder with `nodes: 1`, or a cluster file with a Slurm scheduler",
            )
        job = Job(id=f"{int(time.time()) % 10**6}{secrets.token_hex(2)}", spec=spec, submitted_at=time.time())
        folder = Path(spec.folder)
        write_atomic(folder / "request.json", json.dumps(spec.request, indent=1, allow_nan=False) + "\n")
        write_atomic(folder / "job.json", json.dumps(job.canonical(), indent=1) + "\n")
        with self._lock:
            self._queue.append(job)
        return job

    def poll(self, jobs: Sequence[Job]) -> Mapping[str, JobStatus]:
        with self._lock:
            self._start_what_fits()
            return {job.id: self._status(job) for job in jobs}

    def cancel(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            for job in jobs:
                self._cancelled.add(job.id)
                if job in self._queue:
                    self._queue.remove(job)
                elif job.id in self._running:
                    with contextlib.suppress(ProcessLookupError):
                        self._running[job.id].process.send_signal(signal.SIGTERM)
            waiting = [self._running[job.id].process for job in jobs if job.id in self._running]
        deadline = time.monotonic() + _CANCEL_WAIT_S
        for process in waiting:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))

    def try_again(self, job: Job, status: JobStatus) -> None:
        """There is no other node."""

    def why_waiting(self, job: Job) -> Waiting:  # noqa: ARG002 - the interface's
        with self._lock:
            running = [other.job.spec.name for other in self._running.values()]
        return Waiting(held_by=f"CPUs by {', '.join(running)}" if running else "")

    def move(self, job: Job, partition: str, reason: str) -> Job:  # noqa: ARG002 - the interface's
        raise SchedulerError("processes of this machine have no partitions", next_action="drop then: move")

    def tagged(self, runs: Path) -> list[TaggedJob]:
        """Jobs whose supervisor or ranks run on this machine, of every run below `runs`."""
        folders = (path.parent for path in sorted(runs.glob("*/rungs/*/attempt-*/raw/*/supervisor.json")))
        return [job for folder in folders if (job := _running_in(folder)) is not None]

    def end(self, jobs: Sequence[TaggedJob]) -> list[TaggedJob]:
        """By their folders. Those that are still there."""
        return [job for job in jobs if not reap(Path(job.folder))]

    def reap(self, folder: Path) -> bool:
        return reap(folder)

    def close(self) -> None:
        with self._lock:
            jobs = [*self._queue, *(running.job for running in self._running.values())]
        self.cancel(jobs)
        with self._lock:
            self._forget_ended()

    def _forget_ended(self) -> None:
        for identifier, running in list(self._running.items()):
            code = running.process.poll()
            if code is not None:
                if running.process.stdin is not None:
                    running.process.stdin.close()
                self._ended[identifier] = code
                del self._running[identifier]
                if code != 0:
                    end_ranks(Path(running.job.spec.folder))
            elif time.monotonic() > running.started_at + running.job.spec.time_limit_s + OVERDUE_S:
                running.process.kill()  # it should have ended its job long ago, and may be stopped itself

    def _start_what_fits(self) -> None:
        self._forget_ended()
        while self._queue:
            running = [started.job.spec for started in self._running.values()]
            wanted = self._queue[0].spec
            busy = sum(spec.world_size for spec in running)
            alone = wanted.exclusive or any(spec.exclusive for spec in running)
            if running and (alone or busy + wanted.world_size > self._cpus):
                return
            job = self._queue.pop(0)
            try:
                self._start(job)
            except OSError as error:
                self._unstarted[job.id] = f"its supervisor cannot be started: {error}"

    def _start(self, job: Job) -> None:
        """Raises OSError."""
        argv = [sys.executable, "-m", "surefoot.scheduler.local_supervisor", job.spec.folder]
        log = Path(job.spec.folder) / "supervisor.log"
        with log.open("ab") as output:
            # The open pipe is the lifeline: it closes when this process ends, however it ends.
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        self._running[job.id] = _Running(job, process, time.monotonic())

    def _status(self, job: Job) -> JobStatus:
        if job in self._queue:
            ahead = self._queue.index(job)
            reason = f"{ahead} job(s) ahead of it" if ahead else "waits for CPUs that other jobs hold"
            return JobStatus(state=JobState.PENDING, reason=reason)
        if job.id in self._running:
            # While its supervisor lives, done.json may be anybody's: ranks can write there.
            return JobStatus(state=JobState.RUNNING)
        done = None
        lost = self._unstarted.get(job.id, "its supervisor ended without writing done.json")
        if self._ended.get(job.id, 0) == 0:
            try:
                done = read_done(Path(job.spec.folder))
            except SchedulerError as error:
                lost = str(error)
        if done is not None:
            return JobStatus(state=done.state, reason=done.reason, done=done)
        if job.id in self._cancelled:
            return JobStatus(state=JobState.CANCELLED, reason="cancelled")
        return JobStatus(state=JobState.LOST, reason=lost)


def read_done(folder: Path) -> JobDone | None:
    """``done.json`` of a job's folder; None while there is none. Raises SchedulerError when it is damaged."""
    path = folder / "done.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SchedulerError(f"cannot read {path}: {error}") from error
    try:
        return parse_record(JobDone, parse_json(text, file=str(path)), file=str(path))
    except EvidenceError as error:
        raise SchedulerError(str(error)) from error


def reap(folder: Path, wait_s: float = _CANCEL_WAIT_S) -> bool:
    """End a job that another, dead process submitted. True when nothing of it runs any more.

    Its supervisor ends by itself when its lifeline is cut; this waits for that, and insists.
    """
    try:
        supervisor = json.loads((folder / "supervisor.json").read_text())
        host, pid, ticks = supervisor["host"], int(supervisor["pid"]), supervisor["start_ticks"]
    except FileNotFoundError:
        return True  # never started
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if host != socket.gethostname():
        return False  # nothing can be known of it from here
    deadline = time.monotonic() + wait_s
    while is_alive(pid, ticks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    end_ranks(folder)
    return True


def _running_in(folder: Path) -> TaggedJob | None:
    """The job of a folder, while anything of it runs here."""
    try:
        who = json.loads((folder / "supervisor.json").read_text())
        processes = [(int(p["pid"]), p["start_ticks"]) for p in (who, *who["ranks"])]
        job = json.loads((folder / "job.json").read_text())
        spec, submitted_at = job["spec"], float(job["submitted_at"])
        if who["host"] != socket.gethostname() or not any(is_alive(*process) for process in processes):
            return None
        return TaggedJob(
            id=job["id"],
            name=spec["name"],
            state=JobState.RUNNING,
            run=folder.parents[4].name,
            nonce=spec["env"].get("SUREFOOT_NONCE", ""),
            nodes=who["host"],
            elapsed_s=time.time() - submitted_at,
            limit_s=spec["time_limit_s"],
            folder=str(folder),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # damaged, or in the making


def end_ranks(folder: Path) -> None:
    """Kill what ranks of a job left behind when its supervisor could not: their whole process groups."""
    try:
        ranks = json.loads((folder / "supervisor.json").read_text())["ranks"]
        groups = [(int(rank["pid"]), rank["start_ticks"]) for rank in ranks]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for pid, ticks in groups:
        now = start_ticks(pid)
        if pid > 1 and now in (None, ticks):  # else the number is another process's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
