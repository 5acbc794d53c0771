"""Collecting: execute a plan's steps, keep everything verbatim, seal it. Nothing here judges."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.connection.base import Connection
from surefoot.connection.local import LocalConnection
from surefoot.engine.jobs import JobsRunner
from surefoot.engine.mirror import Mirror
from surefoot.engine.package import Package
from surefoot.engine.store import UNSEALED, evidence_files, write_record
from surefoot.engine.waiting import ShrinkError
from surefoot.engine.watch import JobWatch
from surefoot.errors import MachineryError, RequestError, StorageError
from surefoot.files import sha256_file, write_atomic
from surefoot.model.events import Event
from surefoot.model.job import Job
from surefoot.model.ladder import Pending
from surefoot.model.run import (
    Collection,
    CollectionOutcome,
    CommandStep,
    JobsStep,
    Plan,
    PushStep,
    SealedFile,
    Shrunk,
    Step,
)
from surefoot.paths import AttemptPaths


class _Stopped(Exception):  # noqa: N818 - not an error: the user asked
    """Collecting was interrupted."""


@dataclass
class Collector:
    """Executes plans on one cluster."""

    connection: Connection
    watch: JobWatch
    package: Package
    mirror: Mirror
    emit: Callable[[Event], None]
    stop: threading.Event

    def collect(self, plan: Plan, paths: AttemptPaths, pending: Pending | None = None) -> Collection:
        """Execute `plan` and seal what it left. Always returns a seal, unless the disk refuses it.

        `pending`: how long its jobs may wait. Where that is over and the plan is to ask for fewer
        nodes, the seal says so (`Collection.shrunk`): the attempt was given up.

        Steps after one that did not end as expected are not executed: their evidence could not
        mean what it says.
        """
        started_at = time.time()
        jobs: list[Job] = []
        outcome, error = CollectionOutcome.COMPLETE, ""
        shrunk: Shrunk | None = None
        try:
            write_record(paths.plan, plan)
            self.mirror.begin(paths)
            paths.raw.mkdir(exist_ok=True)
            for step in plan.steps:
                self._check_stop()
                if not self._execute(step, plan, paths, jobs, pending):
                    break
        except _Stopped:
            outcome, error = CollectionOutcome.ABORTED, "interrupted; its jobs were cancelled"
        except ShrinkError as smaller:
            shrunk = smaller.shrunk
            outcome, error = CollectionOutcome.ABORTED, f"{shrunk.reason}; nodes asked for now: {shrunk.nodes}"
        except (MachineryError, RequestError) as broken:
            outcome, error = CollectionOutcome.BROKEN, str(broken)
        except OSError as broken:
            outcome, error = CollectionOutcome.BROKEN, f"{type(broken).__name__}: {broken}"
        collection = Collection(
            outcome=outcome,
            error=error,
            started_at=started_at,
            ended_at=time.time(),
            jobs=tuple(jobs),
            files=_seal(paths.folder),
            shrunk=shrunk,
        )
        write_record(paths.collection, collection)
        self.mirror.send_attempt(paths)
        return collection

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise _Stopped

    def _execute(self, step: Step, plan: Plan, paths: AttemptPaths, jobs: list[Job], pending: Pending | None) -> bool:
        match step:
            case CommandStep():
                return self._command(step, paths)
            case PushStep():
                return self._push(step, paths)
            case JobsStep():
                runner = JobsRunner(self.connection, self.watch, self.emit, self.stop, plan.rung, pending)
                ended_well = runner.run(step, paths, jobs)
                self._check_stop()
                return ended_well

    def _command(self, step: CommandStep, paths: AttemptPaths) -> bool:
        connection = LocalConnection() if step.here else self.connection
        stdin = step.stdin.encode() if step.stdin else None
        result = connection.run(step.argv, env=step.env, timeout_s=step.timeout_s, cancel=self.stop, stdin=stdin)
        write_atomic(paths.raw / f"{step.name}.stdout", result.stdout)
        write_atomic(paths.raw / f"{step.name}.stderr", result.stderr)
        ending = {
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "started_at": result.started_at,
            "ended_at": result.ended_at,
        }
        write_atomic(paths.raw / f"{step.name}.exit.json", json.dumps(ending, indent=1) + "\n")
        self._check_stop()
        return result.exit_code == 0

    def _push(self, step: PushStep, paths: AttemptPaths) -> bool:
        tree = self.package.tree(step.digest)
        pushed = self.connection.put_tree(tree.files, Path(step.destination))
        account = {
            "digest": tree.digest,
            "destination": step.destination,
            "files": dict(tree.digests),
            "pushed": pushed,
        }
        write_atomic(paths.raw / f"push-{step.name}.json", json.dumps(account, indent=1) + "\n")
        return True


def _seal(folder: Path) -> dict[str, SealedFile]:
    sealed = {}
    for name in evidence_files(folder):
        if name in UNSEALED:
            continue
        path = folder / name
        try:
            sealed[name] = SealedFile(sha256=sha256_file(path), size_bytes=path.stat().st_size)
        except OSError as error:
            raise StorageError(f"cannot read back {path}: {error.strerror}") from error
    return sealed
