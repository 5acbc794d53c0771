"""Runs on the nodes: starts a job's ranks under srun, and writes ``done.json`` last.

Standard library only, one file: it is copied into the job's folder, so that it works before
anything else has been proved there.

    launch.py job FOLDER -- srun …    in the batch script, on the first node
    launch.py task FOLDER             one for each task of srun
    launch.py rank FOLDER             below torchrun, one for each rank
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

KILL_AFTER_S = 5.0
"""From TERM to KILL where a rank is over its time limit."""
TELL_WAIT_S = 5.0
"""From one rank's failure to the end of the others: they may still be telling why."""
PORTS = range(20000, 32000)  # below the kernel's ephemeral ports (32768 up)
POLL_S = 0.05
PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Atomically: a reader sees the old content or the new."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    with temporary.open("w") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def say(text: str) -> None:
    """A line in the job's output file."""
    sys.stdout.write(f"surefoot: {text}\n")
    sys.stdout.flush()


def life() -> int:
    """Which life of a job that was requeued this is: 0, 1, …"""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def job_id() -> str:
    """As squeue shows it: 12, or 12_3 for an element of an array."""
    if os.environ.get("SLURM_ARRAY_TASK_ID"):
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


def evidence_folder(folder: Path) -> Path:
    """The job's folder; below it, for an element of an array."""
    element = os.environ.get("SLURM_ARRAY_TASK_ID")
    return folder / f"array-{element}" if element else folder


def exit_file(folder: Path, rank: int | str) -> Path:
    return folder / f"exit-{life()}-{rank}.json"


def ending(code: int) -> dict[str, int | None]:
    """What Popen.returncode says, as it is recorded."""
    return {"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}


def end_like(code: int) -> NoReturn:
    """End as a child with this returncode did, so that Slurm's accounting says the same."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(5)
    sys.exit(min(abs(code), 255))


def await_end(child: subprocess.Popen[bytes], longest_s: float = 0.5) -> None:
    """Until it ends, at most so long. Asleep: a rank that measures is not to be disturbed."""
    descriptor = os.pidfd_open(child.pid)
    try:
        select.select([descriptor], [], [], longest_s)
    finally:
        os.close(descriptor)


# -- the batch script's part


def claim(folder: Path) -> None:
    """The folder is one submission's: a second one, sent because an answer was lost, ends here."""
    mine = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"]
    made, place = folder / f".claim-{mine}-{job_id()}", folder / "claim"
    made.mkdir(exist_ok=True)
    write_json(made / "claim.json", {"id": mine})
    try:
        made.rename(place)  # fails where it exists and is not empty
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        owner = read_json(place / "claim.json")["id"]
        if owner != mine:
            say(f"this folder is job {owner}'s, which was submitted before: nothing to do")
            sys.exit(76)


def is_claimed_by_me(folder: Path) -> bool:
    """False once the folder was handed to a later submission: on a node that was given up for lost, this may live on."""
    try:
        owner = read_json(folder / "claim" / "claim.json")["id"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(owner == (os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"]))


def reserve_port() -> tuple[int, socket.socket]:
    """(port, lock): free on this host, and kept from every other launcher of this host while `lock` is open.

    Derived from the job's id, so that two jobs begin at different ones. The lock is a name in the
    network's own name space (an abstract socket): no file, gone with its process.
    """
    first = int(os.environ["SLURM_JOB_ID"]) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(first + step * 101) % len(PORTS)]
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0surefoot-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            lock.close()
            continue
        return port, lock
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")


def ask(*argv: str) -> str:
    """Output of a Slurm command; empty where it fails."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def kill_wait_s(config: str) -> float:
    """Seconds that Slurm leaves between TERM and KILL, from ``scontrol show config``; 30 where it doesn't say."""
    for line in config.splitlines():
        words = line.split()
        if words[:2] == ["KillWait", "="] and len(words) > 2 and words[2].isdigit():
            return max(2.0, float(words[2]))
    return 30.0


def first_host() -> str:
    """Name of the first node, where rank 0 runs: as it resolves here, else the address that Slurm has for it."""
    name = os.environ["SLURMD_NODENAME"]
    listed = ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    name = listed[0] if listed else name
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        for word in ask("scontrol", "--oneliner", "show", "node", name).split():
            if word.startswith("NodeAddr="):
                return word[len("NodeAddr=") :]
    return name


class Job:
    """The batch script's life: srun, its time limit, the signals that Slurm sends, and done.json."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.root = folder
        self.folder = evidence_folder(folder)
        self.spec = read_json(folder / "spec.json")
        self.command = command
        self.started_at = time.time()
        self.deadline = time.monotonic() + self.spec["time_limit_s"]
        self.state = self.reason = ""
        self.kill_wait_s = 30.0
        self.world = self.spec["nodes"] * self.spec["ranks_per_node"]
        self.srun: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """The exit code of the batch script."""
        self.folder.mkdir(exist_ok=True)
        if self.folder != self.root:  # an element of an array: its ranks look for their request here
            with contextlib.suppress(FileNotFoundError):
                write_json(self.folder / "request.json", read_json(self.root / "request.json"))
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "done.json").unlink()  # of an earlier life
        here = {"id": job_id(), "host": socket.gethostname(), "at": self.started_at, "life": life()}
        write_json(self.folder / "started.json", here)
        try:
            port, lock = reserve_port()
        except OSError as error:
            self.state, self.reason = "FAILED", str(error)
            return self.finish(1)
        for number in (*PASSED_ON, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_signal)
        with lock:
            config = ask("scontrol", "show", "config")
            self.kill_wait_s = kill_wait_s(config)
            os.environ.update(
                MASTER_ADDR=first_host(),
                MASTER_PORT=str(port),
                SLURM_EXPORT_ENV="ALL",
                SUREFOOT_FORWARD_SIGNALS="0" if "proctrack/linuxproc" in config else "1",
                SUREFOOT_KILL_WAIT_S=str(self.kill_wait_s),
                SUREFOOT_TIME_LEFT_S=str(self.deadline - time.monotonic()),
            )
            self.srun = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
            self.watch(self.srun)
        return self.finish(self.srun.returncode)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """TERM is not passed on: srun would kill at once, and Slurm has told the ranks itself."""
        if number in PASSED_ON:
            if self.srun is not None:
                with contextlib.suppress(ProcessLookupError):
                    self.srun.send_signal(number)
        elif not self.state:
            late = time.monotonic() > self.deadline - 5  # Slurm counts from before we started, in minutes
            self.state = "TIMEOUT" if late else "CANCELLED"
            self.reason = self.limit() if late else "Slurm asked it to end"

    def limit(self) -> str:
        return f"time limit of {self.spec['time_limit_s']} s"

    def watch(self, srun: subprocess.Popen[bytes]) -> None:
        """Until srun has ended. The ranks end themselves at the time limit; this insists where they don't.

        Once Slurm has asked it to end, it kills KillWait later: what is known is written before.
        """
        insist_at = self.deadline + KILL_AFTER_S + 5
        write_at = None
        while srun.poll() is None:
            now = time.monotonic()
            if self.state and write_at is None:
                write_at = now + self.kill_wait_s - 1
            if write_at is not None and now > write_at:
                self.write_done()
                write_at = now + 3600
            if now > insist_at:
                srun.send_signal(signal.SIGTERM)
                insist_at = now + 10
            await_end(srun)

    def exits(self) -> list[dict[str, Any]]:
        found = [read_json(path) for path in self.folder.glob(exit_file(self.folder, "*").name)]
        return sorted(found, key=lambda entry: entry["rank"])

    def finish(self, code: int) -> int:
        exits = self.exits()
        deadline = time.monotonic() + 2  # the last rank's file, from another node
        while len(exits) < self.world and time.monotonic() < deadline:
            time.sleep(POLL_S)
            exits = self.exits()
        bad = [e for e in exits if e["exit_code"] != 0]
        silent = sorted(set(range(self.world)) - {e["rank"] for e in exits})
        if not self.state and any(e["timed_out"] for e in exits):
            self.state, self.reason = "TIMEOUT", self.limit()
        if not self.state:
            self.state = "COMPLETED" if not bad and not silent and code == 0 else "FAILED"
            if silent:
                self.reason = f"no word from rank {', '.join(map(str, silent[:8]))}; srun ended with {code}"
            elif not bad and code != 0:
                self.reason = f"every rank ended with 0, but srun with {code}"
        self.write_done()
        if self.state == "COMPLETED":
            return 0
        if bad:
            first = bad[0]
            return int(first["exit_code"] if first["exit_code"] is not None else 128 + first["signal"])
        return 1

    def write_done(self) -> None:
        if not is_claimed_by_me(self.root):
            say("the folder was handed to a later submission of this job: this one's end is not recorded there")
            return
        ranks = [{key: e[key] for key in ("rank", "host", "exit_code", "signal")} for e in self.exits()]
        done = {
            "id": job_id(),
            "name": self.spec["name"],
            "state": self.state,
            "reason": self.reason,
            "started_at": self.started_at,
            "ended_at": time.time(),
            "ranks": ranks,
        }
        write_json(self.folder / "done.json", done)


# -- the tasks' part


def rank_environment(spec: dict[str, Any], folder: Path) -> dict[str, str]:
    """What torchrun would give, from what Slurm gives."""
    rank, local = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_LOCALID"])
    world, per_node = spec["nodes"] * spec["ranks_per_node"], spec["ranks_per_node"]
    if int(os.environ["SLURM_NTASKS"]) != world or rank % per_node != local:
        sys.exit(
            f"surefoot: Slurm started task {rank} of {os.environ['SLURM_NTASKS']} as number {local} of its node; "
            f"wanted were {world} tasks in blocks of {per_node}"
        )
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": os.environ["SLURM_NODEID"],
        **job_environment(spec, folder),
    }


def job_environment(spec: dict[str, Any], folder: Path) -> dict[str, str]:
    return {
        "MASTER_ADDR": os.environ["MASTER_ADDR"],
        "MASTER_PORT": os.environ["MASTER_PORT"],
        "SUREFOOT_JOB_FOLDER": str(folder),
        "SUREFOOT_JOB_ID": job_id(),
        "SUREFOOT_JOB_NAME": spec["name"],
    }


def threads(spec: dict[str, Any]) -> dict[str, str]:
    return {name: str(spec["cpus_per_rank"]) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def into_file(spec: dict[str, Any], folder: Path) -> None:
    """This task's output goes to its host's file, named as the ranks name their host."""
    name = f"{spec['name']}-{job_id()}-{socket.gethostname()}.out"
    stream = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    os.close(stream)


def watch_child(argv: list[str], env: dict[str, str], folder: Path, slack_s: float = 0) -> tuple[int, bool]:
    """Run a command to its end: (Popen's returncode, it was over its time limit). 127 where it cannot start.

    At the time limit, and when Slurm asks it to end, it has a while from TERM to KILL; it is killed
    here, before Slurm kills this too, so that its ending can be told.
    """
    left_s = float(os.environ["SUREFOOT_TIME_LEFT_S"]) + slack_s
    limit = time.monotonic() + left_s
    try:
        child = subprocess.Popen(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        say(f"cannot start {argv[0]}: {error}")
        return 127, False
    # proctrack/cgroup signals Slurm's own children only, linuxproc every process.
    passing = os.environ["SUREFOOT_FORWARD_SIGNALS"] == "1"
    kill_at: list[float] = []

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM and not kill_at:
            kill_at.append(time.monotonic() + max(1.0, float(os.environ["SUREFOOT_KILL_WAIT_S"]) - 2) + slack_s)
        if passing:
            send(number)

    for number in (*PASSED_ON, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    timed_out = False
    while child.poll() is None:
        now = time.monotonic()
        if not kill_at and now > limit:
            timed_out = True
            kill_at.append(now + KILL_AFTER_S)
            send(signal.SIGTERM)
        if kill_at and now > kill_at[0]:
            send(signal.SIGKILL)
        await_end(child)
    send(signal.SIGKILL)  # what it left behind
    return child.returncode, timed_out


def run_rank(spec: dict[str, Any], folder: Path, env: dict[str, str]) -> NoReturn:
    """One rank: run it, record how it ended, end the same way."""
    rank = int(env["RANK"])
    started_at = time.time()
    code, timed_out = watch_child(spec["argv"], env, folder)
    account = {
        "rank": rank,
        "host": socket.gethostname(),
        "node": os.environ["SLURMD_NODENAME"],
        "started_at": started_at,
        "ended_at": time.time(),
        "timed_out": timed_out,
    }
    write_json(exit_file(folder, rank), {**account, **ending(code)})
    if code != 0 and spec["launch"] == "ranks":
        let_others_tell(spec, folder)
    end_like(code)


def let_others_tell(spec: dict[str, Any], folder: Path) -> None:
    """Srun ends the others as soon as this one is gone: they get a moment to say what they saw."""
    world = spec["nodes"] * spec["ranks_per_node"]
    deadline = time.monotonic() + TELL_WAIT_S
    while time.monotonic() < deadline:
        if all(exit_file(folder, rank).exists() for rank in range(world)):
            return
        time.sleep(POLL_S)


def task(root: Path) -> NoReturn:
    """One task of srun: a rank, or a node's torchrun."""
    folder, spec = evidence_folder(root), read_json(root / "spec.json")
    into_file(spec, folder)
    if spec["launch"] == "ranks":
        run_rank(spec, folder, {**threads(spec), **os.environ, **spec["env"], **rank_environment(spec, folder)})
    # The ranks' own interpreter has torch; the one that runs this may have nothing but its library.
    argv = [
        spec["argv"][0], "-m", "torch.distributed.run", f"--nnodes={spec['nodes']}",
        f"--nproc-per-node={spec['ranks_per_node']}", f"--node-rank={os.environ['SLURM_NODEID']}",
        f"--master-addr={os.environ['MASTER_ADDR']}", f"--master-port={os.environ['MASTER_PORT']}",
        "--no-python", sys.executable, str(Path(__file__).absolute()), "rank", str(root),
    ]  # fmt: skip
    end_like(watch_child(argv, {**threads(spec), **os.environ}, folder, slack_s=KILL_AFTER_S)[0])


def below_torchrun(root: Path) -> NoReturn:
    """One rank below torchrun, which has set RANK and its kin."""
    folder, spec = evidence_folder(root), read_json(root / "spec.json")
    run_rank(spec, folder, {**os.environ, **spec["env"], **job_environment(spec, folder)})


def main() -> None:
    """See the module's docstring."""
    part, folder = sys.argv[1], Path(sys.argv[2])
    if part == "job":
        claim(folder)
        sys.exit(Job(folder, sys.argv[4:]).run())
    elif part == "task":
        task(folder)
    else:
        below_torchrun(folder)


if __name__ == "__main__":
    main()
