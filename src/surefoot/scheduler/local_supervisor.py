"""The local scheduler's slurmd: one process per job that starts its ranks, watches them, and
writes ``done.json`` last. Standard library only.

    python -m surefoot.scheduler.local_supervisor FOLDER

It ends its ranks and everything that they started when the time limit is over, when it gets TERM
(cancel), and when its standard input closes: the other end of that pipe is held by the climb, so
a climb that is killed leaves no process behind. Ranks die with the supervisor (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from surefoot.files import write_atomic
from surefoot.scheduler.processes import start_ticks

KILL_WAIT_S = 5.0
"""From TERM to KILL, and from one rank's failure to TERM for the others (they may still be telling why)."""
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Below the kernel's ephemeral range (32768 up), so that no outgoing connection takes it first.
_PORTS = range(20000, 32000)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def reserve_port() -> tuple[int, IO[str]]:
    """A free TCP port and the lock that keeps other supervisors of this machine off it."""
    folder = Path(tempfile.gettempdir()) / f"surefoot-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for port in random.sample(_PORTS, len(_PORTS)):
        lock = (folder / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        return port, lock
    raise OSError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


@dataclass
class Supervisor:
    """One job's life."""

    folder: Path
    job: dict[str, Any]
    cancelled: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    reason: str = ""
    state: str = ""

    def rank_environment(self, rank: int, port: int) -> dict[str, str]:
        """What torchrun and Slurm would give rank `rank`."""
        spec = self.job["spec"]
        world = spec["nodes"] * spec["ranks_per_node"]
        threads = str(spec["cpus_per_rank"])
        return {
            **os.environ,
            "OMP_NUM_THREADS": threads,  # what the job asked for, whatever the caller's shell says
            "MKL_NUM_THREADS": threads,
            **spec["env"],
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "SUREFOOT_JOB_FOLDER": str(self.folder),
            "SUREFOOT_JOB_ID": self.job["id"],
            "SUREFOOT_JOB_NAME": spec["name"],
        }

    def start(self, output: IO[bytes], port: int) -> None:
        spec = self.job["spec"]
        for rank in range(spec["nodes"] * spec["ranks_per_node"]):
            self.processes.append(
                subprocess.Popen(
                    spec["argv"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.rank_environment(rank, port),
                    cwd=self.folder,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
                )
            )

    def tell_who(self) -> None:
        """``supervisor.json``: who runs here, for whoever has to end it from outside."""
        who = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "ranks": [{"pid": p.pid, "start_ticks": start_ticks(p.pid)} for p in self.processes],
        }
        write_atomic(self.folder / "supervisor.json", json.dumps(who))

    def watch(self, deadline: float) -> None:
        """Until all ranks have ended, or a reason to end them."""
        failed_at: float | None = None
        while any(p.poll() is None for p in self.processes):
            if self.cancelled:
                self.state, self.reason = "CANCELLED", "cancelled"
            elif _lifeline_cut():
                self.state, self.reason = "CANCELLED", "the process that submitted it is gone"
            elif time.monotonic() > deadline:
                self.state = "TIMEOUT"
                self.reason = f"time limit of {self.job['spec']['time_limit_s']} s"
            if self.state:
                self.end()
                return
            if any(p.returncode for p in self.processes):
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > KILL_WAIT_S:
                    self.reason = "a rank failed and the others did not end by themselves"
                    self.end()
                    return
            time.sleep(_POLL_S)

    def end(self) -> None:
        """TERM, wait, KILL: every rank's whole session."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            until = time.monotonic() + KILL_WAIT_S
            while time.monotonic() < until and any(p.poll() is None for p in self.processes):
                time.sleep(_POLL_S)
        # A process in uninterruptible sleep (a dead file server, a stuck driver) does not even die of KILL.
        left = [process.pid for process in self.processes if process.poll() is None]
        if left:
            self.reason += f"; could not be ended: pid {', '.join(map(str, left))}"

    def sweep(self) -> None:
        """Kill what ranks left behind: as a subreaper, this process inherits their orphans."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        own = Path(f"/proc/self/task/{os.getpid()}/children")
        for _ in range(100):
            children = own.read_text().split() if own.exists() else []
            for child in children:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(int(child), signal.SIGKILL)
                    os.waitpid(int(child), os.WNOHANG)
            if not children:
                return
            time.sleep(_POLL_S)

    def finish(self, started_at: float) -> None:
        host = socket.gethostname()
        ranks = [
            {"rank": rank, "host": host, **_ending(process.returncode)} for rank, process in enumerate(self.processes)
        ]
        if not self.state:
            self.state = "FAILED" if any(p.returncode for p in self.processes) else "COMPLETED"
        done = {
            "id": self.job["id"],
            "name": self.job["spec"]["name"],
            "state": self.state,
            "reason": self.reason,
            "started_at": started_at,
            "ended_at": time.time(),
            "ranks": ranks,
        }
        write_atomic(self.folder / "done.json", json.dumps(done, indent=1) + "\n")


def _ending(code: int | None) -> dict[str, int | None]:
    """Exit code or signal of a rank; neither for one that could not be ended."""
    if code is None:
        return {"exit_code": None, "signal": None}
    return {"exit_code": code, "signal": None} if code >= 0 else {"exit_code": None, "signal": -code}


def _lifeline_cut() -> bool:
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable) and os.read(0, 1) == b""


def main() -> None:
    """Run the job in the folder named on the command line."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    supervisor = Supervisor(folder, job)

    def cancel(_number: int, _frame: object) -> None:
        supervisor.cancelled = True

    signal.signal(signal.SIGTERM, cancel)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the climb's to handle: it cancels
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    started_at = time.time()
    supervisor.tell_who()
    deadline = time.monotonic() + job["spec"]["time_limit_s"]
    output_name = f"{job['spec']['name']}-{job['id']}-{socket.gethostname()}.out"
    port, lock = reserve_port()
    with (folder / output_name).open("ab") as output, lock:
        try:
            supervisor.start(output, port)
            supervisor.tell_who()
            supervisor.watch(deadline)
        except OSError as error:  # a rank's program cannot be started
            supervisor.state, supervisor.reason = "FAILED", f"cannot start: {error}"
            output.write(f"surefoot: {supervisor.reason}\n".encode())
            supervisor.end()
        supervisor.sweep()
    supervisor.finish(started_at)


if __name__ == "__main__":
    main()
