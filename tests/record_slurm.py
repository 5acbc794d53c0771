"""Writes ``golden/slurm/VERSION``: what the Slurm of a lab prints, of every kind that Surefoot reads. Not a test.

    surefoot lab up --suite trixie --name rec && python tests/record_slurm.py rec
    python tests/record_slurm.py rec --run RUN    # of a climb there: the documents of runner and scheduler

A few minutes for each lab: it waits for a time limit, and breaks and mends the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from surefoot.lab.breaking import break_lab, mend_lab
from surefoot.lab.hosts import on_host
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, lab_home
from surefoot.lab.spec import CLIMBER, HEAD
from surefoot.lab.state import load
from surefoot.rungs.runner_slurm import COMMANDS
from surefoot.scheduler.slurm import commands

GOLDEN = Path(__file__).parent / "golden/slurm"
HOME = lab_home(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))
SLEEP = "exec sleep 600"
BLOAT = "exec python3 -c 'x = b\"x\" * 300_000_000; import time; time.sleep(20)'"


class Recorder:
    """One lab, and the folder that its answers go to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = load(HOME, name)
        self.folder = GOLDEN / re.sub(r"[^\d.]", "", self.ask(["sbatch", "--version"])["stdout"][0])
        self.folder.mkdir(exist_ok=True)
        self.ids: dict[str, str] = {}

    def ask(self, argv: Sequence[str]) -> dict[str, Any]:
        """One command on the head, as the lab's user."""
        env = ["env", "-C", "/tmp", "LC_ALL=C.UTF-8", *(f"{k}={v}" for k, v in commands.TIMES.items())]  # noqa: S108 - the lab's
        done = on_host(self.state, HEAD, [*env, *argv], user=CLIMBER, check=False, timeout_s=60)
        said = {"stdout": done.stdout.splitlines(), "stderr": done.stderr.splitlines()}
        return {"argv": list(argv), "exit_code": done.returncode, **said}

    def keep(self, case: str, argv: Sequence[str]) -> None:
        """What a command says, as a file."""
        self.write(case, self.ask(argv))

    def write(self, case: str, document: Any) -> None:
        text = json.dumps(document, indent=1).replace(f'"{self.name}"', '"lab"')
        text = text.replace(self.state.spec.python or "/usr/bin/python3", "/usr/bin/python3")
        text = re.sub(rf"\b{self.name}\b", "lab", text.replace(str(HOME.lab(self.name).shared), "/shared"))
        (self.folder / f"{case}.json").write_text(text + "\n")
        print(case, flush=True)  # noqa: T201 - for who waits

    def submit(self, name: str, command: str, *options: str) -> str:
        argv = ["sbatch", "--parsable", f"--job-name={name}", f"--comment=surefoot:run-1:abc:{name}"]
        argv += ["--output=/dev/null", "--partition=gpu", "--mem=50M", "--time=10", *options, f"--wrap={command}"]
        said = self.ask(argv)
        assert said["exit_code"] == 0, said
        self.ids[name] = said["stdout"][0].split(";")[0]
        if name == "ok":
            self.write("sbatch", said)
        return self.ids[name]

    def until(self, name: str, *states: str, seconds: float = 120) -> None:
        self.wait(lambda: self.state_of(name) in states, f"{name} {states}", seconds)

    def state_of(self, name: str) -> str:
        said = self.ask(["squeue", "-h", "--states=all", "-o", "%T", "-j", self.ids[name]])["stdout"]
        return said[0] if said else "GONE"

    def wait(self, holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                sys.exit(f"it did not happen: {what}")
            time.sleep(0.5)

    def queue(self, case: str, *names: str) -> None:
        self.keep(case, commands.squeue([self.ids[name] for name in names or self.ids]))

    def accounts(self, case: str, *names: str) -> None:
        self.keep(case, commands.sacct([self.ids[name] for name in names or self.ids]))

    def root(self, *argv: str) -> None:
        on_host(self.state, HEAD, argv)

    # -- what there is to see

    def site(self) -> None:
        for name, argv in COMMANDS.items():
            self.keep(name, argv)
        self.keep("sinfo", commands.sinfo())
        self.keep("partitions", commands.show_partitions())
        self.keep("hostnames", ["scontrol", "show", "hostnames", "n[1-3,07-08],head"])

    def jobs(self) -> None:
        """Every state that a job is in or ends with, and every reason to wait that a lab has."""
        self.submit("low", SLEEP, "--partition=low", "--requeue", "--exclusive", "--nodes=2")
        self.until("low", "RUNNING")
        self.submit("high", "exec sleep 8", "--exclusive", "--nodes=2")
        self.until("high", "RUNNING", "COMPLETED")
        self.queue("squeue-preempted", "low", "high")
        self.accounts("sacct-preempted", "low", "high")
        self.until("high", "COMPLETED")
        self.ask(commands.scancel([self.ids["low"]]))
        self.until("low", "CANCELLED")
        self.submit("limit", SLEEP, "--time=1", "--nodes=2", "--ntasks-per-node=2", "--gres=gpu:2")
        self.submit("ok", "true")
        self.submit("seven", "exit 7")
        self.submit("segv", "ulimit -c 0; kill -SEGV $$")
        self.submit("array", "exit $((SLURM_ARRAY_TASK_ID == 2))", "--array=1-3")
        self.submit("bloat", BLOAT, "--mem=100M")
        self.submit("cancelled", SLEEP)
        self.submit("requeued", SLEEP, "--requeue")
        for name in ("cancelled", "requeued"):
            self.until(name, "RUNNING")
        self.ask(commands.scancel([self.ids["cancelled"]]))
        self.ask(["scontrol", "requeue", self.ids["requeued"]])
        self.submit("waits", "true", "--exclusive", "--nodes=2")
        self.submit("after", "true", f"--dependency=afterok:{self.ids['limit']}")
        self.submit("never", "true", f"--dependency=afterok:{self.ids['seven']}")
        self.submit("held", "true", "--hold")
        self.submit("begin", "true", "--begin=now+1hour")
        self.submit("elements", SLEEP, "--array=0-9%1", "--hold")
        self.until("bloat", "OUT_OF_MEMORY", "FAILED", "CANCELLED", "COMPLETED")
        time.sleep(4)
        self.queue("squeue")
        self.keep("squeue-user", commands.squeue_of_user("2001"))
        self.keep("squeue-holders", commands.squeue_of_holders())
        self.accounts("sacct-running")
        for name in ("limit", "seven", "held"):
            self.keep(f"job-{name}", ["scontrol", "--oneliner", "show", "job", self.ids[name]])
        self.until("limit", "TIMEOUT", seconds=200)
        self.queue("squeue-over", "ok", "limit", "cancelled", "after")
        self.ask(commands.scancel([*self.ids.values()]))
        time.sleep(8)
        self.accounts("sacct")

    def refusals(self) -> None:
        """What Slurm says when it will not."""
        for case, option in {
            "partition": "--partition=none",
            "gres": "--gres=gpu:9",
            "nodes": "--nodes=9",
            "account": "--account=none",
            "qos": "--qos=none",
            "constraint": "--constraint=none",
            "nodelist": "--nodelist=n9",
            "dependency": "--dependency=afterok:4711",
            "reservation": "--reservation=none",
            "memory": "--mem=9000G",
            "time": "--time=3-0",
            "option": "--no-such-option",
        }.items():
            self.keep(f"sbatch-bad-{case}", ["sbatch", "--parsable", "--output=/dev/null", option, "--wrap=true"])
        known = self.submit("known", "true")
        self.keep("squeue-unknown", commands.squeue(["4711"]))
        self.keep("squeue-one-unknown", commands.squeue([known, "4711"]))
        self.keep("sacct-unknown", commands.sacct(["4711"]))
        self.keep("scancel-unknown", commands.scancel(["4711"]))
        self.until("known", "COMPLETED")
        self.keep("scancel-over", commands.scancel([known]))
        self.keep("job-unknown", ["scontrol", "--oneliner", "show", "job", "4711"])
        self.keep("node-unknown", ["scontrol", "--oneliner", "show", "node", "n9"])
        self.ask(commands.scancel([*self.ids.values()]))

    def faults(self) -> None:
        """Nodes that are out, and daemons that do not answer."""
        self.submit("lost", SLEEP, "--nodelist=n2", "--no-requeue")
        self.submit("put-back", SLEEP, "--nodelist=n2", "--requeue")
        for name in ("lost", "put-back"):
            self.until(name, "RUNNING")
        self.root("scontrol", "update", "nodename=n1", "state=drain", "reason=bad rail, row 3")
        with Broken(self, "slurmd-killed", "n2"):
            self.until("lost", "NODE_FAIL")
            self.queue("squeue-node-fail", "lost", "put-back")
            self.out("down")
        self.accounts("sacct-node-fail", "lost", "put-back")
        self.ask(commands.scancel([self.ids["put-back"]]))
        with Broken(self, "gres-missing", "n1"):
            deadline = time.monotonic() + 20  # 20.11 with config_overrides says nothing of it but in its log
            while "INVAL" not in str(self.ask(COMMANDS["nodes"])["stdout"]) and time.monotonic() < deadline:
                time.sleep(0.5)
            self.out("inval")
        with Broken(self, "slurmctld-stopped", "head"):
            for case in ("ping", "queue", "accounting", "config"):
                self.keep(f"{case}-away", COMMANDS[case])
            self.keep("sinfo-away", commands.sinfo())
            self.keep("scancel-away", commands.scancel(["1"]))
            self.keep("sbatch-away", ["sbatch", "--parsable", "--output=/dev/null", "--wrap=true"])
        with Broken(self, "slurmdbd-stopped", "head"):
            self.accounts("sacct-away", "lost")

    def out(self, case: str) -> None:
        self.keep(f"sinfo-{case}", commands.sinfo())
        self.keep(f"nodes-{case}", COMMANDS["nodes"])

    def documents(self, run: Path) -> None:
        """What the programs of two rungs printed there, with the run's nonce as NONCE."""
        for rung, file, case in (
            ("runner", "runner.stdout", "runner-good"),
            ("scheduler", "head.stdout", "scheduler-head"),
            ("scheduler", "decoded.stdout", "scheduler-decoded"),
            ("scheduler", "nodes/rank-0.json", "scheduler-node-0"),
            ("scheduler", "nodes/rank-1.json", "scheduler-node-1"),
        ):
            text = (run / f"rungs/{rung}/attempt-001/raw/{file}").read_text()
            document = json.loads(text)
            nonce = document["nonce"]
            document = document["data"] if "rank" in case.rsplit("/")[-1] or "node-" in case else document
            self.write(case, json.loads(json.dumps(document).replace(nonce, "NONCE")))


class Broken:
    """A fault of the lab, while something is recorded."""

    def __init__(self, recorder: Recorder, fault: str, host: str) -> None:
        self.recorder, self.fault, self.host = recorder, fault, host

    def __enter__(self) -> None:
        break_lab(HOME, self.recorder.name, self.fault, self.host, None)

    def __exit__(self, *_: object) -> None:
        proofs = mend_lab(HOME, self.recorder.name, lambda _: None)
        self.recorder.state = load(HOME, self.recorder.name)
        print(*(proof.found for proof in proofs if not proof.holds))  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--only", choices=["site", "jobs", "refusals", "faults"])
    given = parser.parse_args()
    recorder = Recorder(given.lab)
    if given.run:
        recorder.documents(given.run)
        return
    for part in [given.only] if given.only else ["site", "jobs", "refusals", "faults"]:
        getattr(recorder, part)()


if __name__ == "__main__":
    main()
