"""Surefoot as a user starts it: real processes on the shipped ladder, found again to the last rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SETTINGS = {
    "collectives.max_size": "1KiB",
    "collectives.iterations": "1",
    "collectives.warmup": "0",
    "compute.seconds": "0.1",
    "compute.matrix_size": "64",
    "storage.file_size": "1MiB",
    "storage.stream_size": "1MiB",
    "storage.imports": "[]",
    "fake_trainer.seconds": "0.2",
    "evaluate.batch1_sample": "2",
}
QUICK = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
"""The shipped ladder with less of what only takes time."""


@dataclass
class Drill:
    """Commands on one root. Whatever they start carries a mark in its environment."""

    root: Path
    mark: str = field(default_factory=lambda: f"drill-{uuid.uuid4().hex}")
    before: tuple[str, ...] = ()
    """Words in front of each command: a program that starts it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What commands find in their environment beside what the tests have."""
    limit_s: float = 280
    """How long a command may take where it is not said."""

    def start(self, *arguments: str, root: bool = True) -> subprocess.Popen[str]:
        """A command that goes on; the caller ends it. In a session of its own, as a shell's job is."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if k != "SUREFOOT_ROOT"}
        environment.update(self.env, SUREFOOT_DRILL=self.mark, OMP_NUM_THREADS="1")
        return subprocess.Popen(
            [*self.before, sys.executable, "-m", "surefoot", *arguments, *(["--root", str(self.root)] if root else [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.root.parent,
            start_new_session=True,
        )

    def run(
        self, *arguments: str, timeout_s: float | None = None, root: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        process = self.start(*arguments, root=root)
        try:
            out, err = process.communicate(timeout=timeout_s or self.limit_s)
        finally:
            process.kill()
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The answer to a command with ``--json``, which must end with `code`."""
        done = self.run(*arguments, "--json")
        assert done.returncode == code, (done.returncode, done.stderr[-3000:], done.stdout[-3000:])
        return json.loads(done.stdout)

    def processes(self) -> dict[int, str]:
        """Pid → command line of everything alive that a command of this drill started."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it ended, or it is not ours
                continue
        return found

    def left_over(self, wait_s: float = 15) -> dict[int, str]:
        """What still lives after `wait_s`: supervisors have that long to end their ranks."""
        deadline = time.monotonic() + wait_s
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def run_folder(self, wait_s: float = 30) -> Path:
        """Folder of the only run under the root."""
        (manifest,) = wait_until(lambda: list((self.root / "runs").glob("*/run.json")), wait_s)
        return Path(manifest.parent)


def wait_until(ask: Any, wait_s: float = 120) -> Any:
    """What `ask` answers as soon as that is something; an error after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return answer


def training(run: Path, attempt: int) -> bool:
    """The fine-tune of this attempt has done its first steps."""
    logs = (run / f"rungs/finetune/attempt-{attempt:03d}").rglob("train.jsonl")
    return any(log.stat().st_size > 0 for log in logs)


def end(process: subprocess.Popen[str], number: signal.Signals, wait_s: float = 30) -> tuple[int, str, str]:
    """Send a signal to this process alone; its exit code and what it said."""
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=wait_s)
    finally:
        process.kill()
    return process.returncode, out, err


def attempts(run: Path) -> dict[str, int]:
    """How often each rung was run."""
    return {rung.name: len(list(rung.glob("attempt-*"))) for rung in sorted((run / "rungs").iterdir())}


def settled(run: Path) -> dict[str, tuple[int, bytes]]:
    """Time and content of the result and seal of every rung that PASSED."""
    found = {}
    for result in sorted(run.glob("rungs/*/result.json")):
        recorded = json.loads(result.read_text())
        if recorded["status"] == "PASSED":
            seal = result.parent / f"attempt-{recorded['attempt']:03d}" / "collection.json"
            for path in (result, seal):
                found[str(path.relative_to(run))] = (path.stat().st_mtime_ns, path.read_bytes())
    return found


def statuses(answer: Mapping[str, Any]) -> dict[str, str]:
    """Rung → status of a ``--json`` answer."""
    return {row["rung"]: row["status"] for row in answer["rungs"]}
