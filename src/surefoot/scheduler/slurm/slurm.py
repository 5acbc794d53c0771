"""Slurm behind the interface that local processes have: the one module here that runs commands."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot.connection.base import Connection
from surefoot.errors import ConnectionFailedError, EvidenceError, SchedulerError
from surefoot.evidence import parse_json, parse_record
from surefoot.hostlist import compress, expand
from surefoot.model.job import EndCause, Job, JobDone, JobSpec, JobState, JobStatus
from surefoot.model.listed import TaggedJob
from surefoot.scheduler.base import Retried, Waiting
from surefoot.scheduler.slurm import commands, parse
from surefoot.scheduler.slurm.controller import Controller, is_busy, words
from surefoot.scheduler.slurm.parse import Holder, NodeRow, Partition
from surefoot.scheduler.slurm.pending import explain, never_runs, waits_for, word_of
from surefoot.scheduler.slurm.retry import not_launched, retry
from surefoot.scheduler.slurm.script import LAUNCHER, SCRIPT, STARTER, Site, array_elements, batch_script
from surefoot.scheduler.slurm.start import START
from surefoot.scheduler.slurm.states import FINAL, AccountingRow, QueueRow, Witnesses, combine, reconcile

TAG = "surefoot"
_FASTEST_S = 0.8
"""Between two questions to the controller while something is new."""
_SLOWEST_S = 10.0
_GROWTH = 1.3
_FILES_S = 1.2
"""Between two looks for done.json: a question to the storage, not to the controller."""
_INVENTORY_S = 60.0
_HOLDERS_S = 10.0
"""So old may be what is told of a job that waits: all that wait share one question."""
_CANCEL_WAIT_S = 15.0
_CANCEL_PATIENCE_S = 30.0
"""How long a controller that is too busy to cancel is asked again."""
_END_WAIT_S = 60.0
"""Slurm's own KillWait, 30 s, and as long again for a controller that is slow."""
_NOT_KNOWN = "Invalid job id specified"


@dataclass
class _Tracked:
    """What is remembered of a job between two polls."""

    job: Job
    elements: tuple[str, ...]
    status: JobStatus = field(default_factory=lambda: JobStatus(state=JobState.PENDING))
    last: dict[str, JobStatus] = field(default_factory=dict)
    silent_since: dict[str, float] = field(default_factory=dict)

    def done_file(self, element: str) -> Path:
        folder = Path(self.job.spec.folder)
        return folder / f"array-{element.split('_')[1]}" / "done.json" if "_" in element else folder / "done.json"

    def over(self, element: str) -> bool:
        """Nothing of it runs any more, whether or not it is known how it ended."""
        return element in self.silent_since or (element in self.last and self.last[element].state.final)

    def open_elements(self) -> list[str]:
        return [e for e in self.elements if e not in self.last or not self.last[e].state.final]


@dataclass(frozen=True)
class _Heard:
    """What Slurm answered to one round of questions."""

    answered: bool
    rows: Mapping[str, QueueRow] = field(default_factory=dict)
    accounting: Sequence[AccountingRow] = ()


class SlurmScheduler:
    """Submits, asks and cancels by Slurm's command line, on the connection's host.

    `env` is added to the environment of Slurm's commands. `queries` counts them by name. Raises
    SchedulerError where Slurm refuses, or does not answer for `patience_s`.
    """

    def __init__(
        self,
        connection: Connection,
        site: Site,
        *,
        env: Mapping[str, str] | None = None,
        patience_s: float = 600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._site = site
        self._env = dict(env or {})
        self._patience_s = patience_s
        self._clock = clock
        self._tracked: dict[str, _Tracked] = {}
        self._lock = threading.RLock()
        self._ask_at = self._look_at = 0.0
        self._pause = _FASTEST_S
        self._busy_since: float | None = None
        self._no_accounting = False
        self._inventory: tuple[float, list[NodeRow], list[Partition]] | None = None
        self._holders: tuple[float, list[Holder]] | None = None
        self._moved: dict[str, str] = {}
        """Partition by folder, of jobs that were moved to another than was asked for."""
        self._hinted: set[str] = set()
        self._damaged: dict[str, str] = {}
        self._excluded: dict[str, str] = {}
        """By folder: nodes that a job is not to have, since it was submitted again."""
        self._count: Counter[str] = Counter()
        self._slurm = Controller(connection, self._env, patience_s)
        self.queries = self._slurm.queries

    # -- submitting

    def submit(self, spec: JobSpec, *, exclude_hosts: str = "", why: str = "") -> Job:
        """Hand over a job. Where the answer is lost, it is looked for by its tag before it is sent again.

        `exclude_hosts`: nodes not to use this time. That is no part of what was asked, nor is the
        partition that a job was moved to: the record of the job keeps `spec` as it is, and
        ``submission.json`` says both, and `why` it was submitted again.
        """
        site = self._site_for(spec, exclude_hosts)
        tag = _tag(spec)
        script = batch_script(spec, site, tag)
        self._refuse_impossible(spec, site)
        folder = Path(spec.folder)
        submitted_at = self._clock()
        intent = {
            "tag": tag,
            "submitted_at": submitted_at,
            "exclude_hosts": exclude_hosts,
            "moved_to": site.moved_to,
            "why": why,
        }
        self._connection.write(
            {
                folder / "request.json": _json(spec.request),
                folder / "spec.json": _json(spec.canonical()),
                folder / "submission.json": _json(intent),
                folder / LAUNCHER: Path(__file__).with_name("launch.py").read_bytes(),
                folder / STARTER: START.encode(),
                folder / SCRIPT: script.encode(),
            }
        )
        identifier = self._sbatch(folder, tag)
        job = Job(id=identifier, spec=spec, submitted_at=submitted_at)
        with self._lock:
            self._tracked.pop(identifier, None)  # of an older job, where Slurm counts ids from the start again
            self._track(job)
        self._connection.write({folder / "job.json": _json(job.canonical())})
        return job

    def _site_for(self, spec: JobSpec, exclude_hosts: str) -> Site:
        return replace(self._site, exclude_hosts=exclude_hosts, moved_to=self._moved.get(spec.folder, ""))

    def resubmit(self, job: Job, *, exclude_hosts: str = "", why: str = "") -> Job:
        """The same job again. What it left goes to ``try-<n>/`` of its folder."""
        script = (
            'cd -- "$1" || exit 1; n=1; while [ -e "try-$n" ]; do n=$((n+1)); done; mkdir "try-$n" || exit 1; '
            'for f in * .claim*; do case $f in try-*) ;; *) [ ! -e "$f" ] || mv -- "$f" "try-$n/" || exit 1;; esac; done'
        )
        moved = self._connection.run(["sh", "-c", script, "sh", job.spec.folder], timeout_s=120)
        if moved.exit_code != 0:
            raise SchedulerError(f"cannot set aside what job {job.id} left: {words(moved)}")
        return self.submit(job.spec, exclude_hosts=exclude_hosts, why=why)

    def move(self, job: Job, partition: str, reason: str) -> Job:
        """Cancel a job that waits, and submit it to `partition`. Raises SchedulerError where it can't run there."""
        excluded = self._excluded.get(job.spec.folder, "")
        self._refuse_impossible(job.spec, replace(self._site, exclude_hosts=excluded, moved_to=partition))
        self.cancel([job])
        if not self.poll([job])[job.id].state.final:
            raise SchedulerError(f"job {job.id} was cancelled and is still there", next_action=f"scancel {job.id}")
        self._moved[job.spec.folder] = partition
        return self.resubmit(job, exclude_hosts=excluded, why=reason)

    def try_again(self, job: Job, status: JobStatus) -> Retried | None:
        """After a node's failure, without the nodes at fault: see `retry`.

        Those are the ones that are not usable now, and those that would not start its ranks. None
        also where too few other nodes are left. Raises SchedulerError.
        """
        refused = self._not_launched(job, status)
        if refused is not None:
            status = refused[0]
        elif status.cause is not EndCause.NODE:
            return None
        at_fault = (self._excluded.get(job.spec.folder, ""), self.bad_nodes(status), refused[1] if refused else "")
        bad = ",".join(part for part in at_fault if part)
        tries = self._count[job.spec.folder] + 1
        again = retry(job.spec, status, tries, bad)
        if again is None or self._impossible(job.spec, self._site_for(job.spec, again.exclude_hosts)):
            return None
        self._count[job.spec.folder] += 1
        self._excluded[job.spec.folder] = again.exclude_hosts
        return Retried(self.resubmit(job, exclude_hosts=again.exclude_hosts, why=again.reason), again.reason)

    def _not_launched(self, job: Job, status: JobStatus) -> tuple[JobStatus, str] | None:
        hosts = expand(status.nodes)
        if status.state is not JobState.FAILED or job.spec.array or not hosts:
            return None
        output = Path(job.spec.folder) / f"{job.spec.name}-{job.id}-{hosts[0]}.out"
        text = self._connection.read_many([output]).get(output, b"")
        return not_launched(job.spec, status, text.decode(errors="replace"))

    def _sbatch(self, folder: Path, tag: str) -> str:
        deadline = time.monotonic() + self._patience_s
        pause = 1.0
        while True:
            said = self._hand_over(folder)
            if isinstance(said, str):
                return said
            # The controller may have taken it, and may still be about to.
            for _ in range(3):
                time.sleep(pause)
                found = self._find(folder, tag)
                if found:
                    return found
            if isinstance(said, SchedulerError):
                raise said
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"Slurm took no job for {self._patience_s:g} s: {said}",
                    next_action="check slurmctld (`scontrol ping` on the login host), then resume the run",
                )
            pause = min(pause * 2, 15.0)

    def _hand_over(self, folder: Path) -> str | ConnectionFailedError | SchedulerError:
        """The job's id; ConnectionFailedError: no answer; SchedulerError: it was taken, and its id was not said."""
        self.queries["sbatch"] += 1
        try:
            result = self._connection.run(
                commands.sbatch(str(folder), str(folder / SCRIPT)), env=self._env, timeout_s=120
            )
        except ConnectionFailedError as error:
            if "it may have run" not in error.message:
                raise
            return error
        if result.exit_code == 0:
            try:
                return parse.job_id(result.stdout.decode(errors="replace"))
            except SchedulerError as unread:
                return unread
        if not result.timed_out and not is_busy(result):
            raise SchedulerError(
                f"Slurm refuses the job in {folder}: {words(result)}",
                next_action=f"mend the cluster file or the ladder; by hand: sbatch --test-only {folder}/{SCRIPT}",
            )
        return ConnectionFailedError(words(result))

    def _find(self, folder: Path, tag: str) -> str | None:
        """Id of a submission whose answer was lost: from the queue, or from the file that it began with."""
        started = folder / "started.json"
        written = self._connection.read_many([started]).get(started)
        if written is not None:
            return _word_in(started, written, "id").split("_")[0]
        for job in self.tagged():
            if job.tag == tag:
                return job.id.split("_")[0]
        return None

    def _refuse_impossible(self, spec: JobSpec, site: Site) -> None:
        """Say before submitting what can never run. What cannot be found out is left to Slurm."""
        problems = self._impossible(spec, site)
        if problems:
            raise SchedulerError(
                f"job {spec.name!r} can never run: {'; '.join(problems)}",
                next_action="ask for less in the ladder, or name another partition in the cluster file",
            )

    def _impossible(self, spec: JobSpec, site: Site) -> list[str]:
        try:
            nodes, partitions = self.inventory()
        except SchedulerError:
            return []
        return never_runs(_within(spec, site), site.partition_of(spec), nodes, partitions) if nodes else []

    def inventory(self, oldest_s: float = _INVENTORY_S) -> tuple[list[NodeRow], list[Partition]]:
        """Nodes and partitions, at most so old. Raises SchedulerError."""
        with self._lock:
            if self._inventory is None or self._clock() - self._inventory[0] > oldest_s:
                nodes = parse.nodes(self._slurm.output(commands.sinfo()))
                partitions = parse.partitions(self._slurm.output(commands.show_partitions()))
                self._inventory = (self._clock(), nodes, partitions)
            return self._inventory[1], self._inventory[2]

    def bad_nodes(self, status: JobStatus) -> str:
        """Hostlist: which of the nodes that a job had are not usable now."""
        nodes, _ = self.inventory(0)
        unusable = {node.name for node in nodes if not node.usable}
        return compress(host for host in expand(status.nodes) if host in unusable)

    def _with_bad_nodes(self, status: JobStatus) -> JobStatus:
        """The status with the nodes named that are out, of those that the job had. What cannot be found out stays."""
        try:
            nodes, _ = self.inventory(0)
        except SchedulerError:
            return status
        had = set(expand(status.nodes))
        out = {node.name: node for node in nodes if node.name in had and not node.usable}
        if not out:
            return status
        named = "; ".join(node.told for node in out.values())
        return status.model_copy(update={"reason": f"{status.reason}: {named}", "cause": EndCause.NODE})

    def _never_began(self, t: _Tracked, element: str, status: JobStatus) -> bool:
        """Whether a cancelled job had its nodes and did not begin there: where a node cannot take the batch
        script (its spool is full, its prolog fails), Slurm drains the node and cancels the job itself.
        """
        if status.cause is not EndCause.CANCELLED or status.done is not None or status.nodes in ("", "None assigned"):
            return False
        began = t.done_file(element).with_name("started.json")
        return not self._connection.read_many([began])

    def why_waiting(self, job: Job) -> Waiting:
        """What keeps its nodes from a job: at most 10 s old, and asked once for all that wait. Raises SchedulerError."""
        with self._lock:
            nodes, _ = self.inventory(_HOLDERS_S)
            if self._holders is None or self._clock() - self._holders[0] > _HOLDERS_S:
                self._holders = (self._clock(), parse.holders(self._slurm.output(commands.squeue_of_holders())))
            holders = self._holders[1]
            site = self._site_for(job.spec, self._excluded.get(job.spec.folder, ""))
        return waits_for(_within(job.spec, site), site.partition_of(job.spec), nodes, holders)

    # -- asking

    def poll(self, jobs: Sequence[Job]) -> Mapping[str, JobStatus]:
        """States by id. Slurm is asked once for all jobs, and not at every call: see `_pause`."""
        with self._lock:
            for job in jobs:
                self._track(job)
            tracked = [self._tracked[job.id] for job in jobs]
            wanted = [(t, e) for t in tracked for e in t.open_elements()]
            now = time.monotonic()
            if wanted and now >= self._ask_at:
                self._ask(wanted)
            elif wanted and now >= self._look_at:
                self._look(wanted)
            return {t.job.id: t.status for t in tracked}

    def _track(self, job: Job) -> None:
        if job.id not in self._tracked:
            numbers = array_elements(job.spec.array) if job.spec.array else []
            self._tracked[job.id] = _Tracked(job, tuple(f"{job.id}_{n}" for n in numbers) or (job.id,))
            self._hurry()

    def _hurry(self) -> None:
        self._pause = _FASTEST_S
        self._ask_at = 0.0

    def _ask(self, wanted: list[tuple[_Tracked, str]]) -> None:
        """All witnesses, the queue first: what it says of the others is then older, never newer."""
        ids = list(dict.fromkeys(element.split("_")[0] for _, element in wanted))
        queue = self._queue(ids)
        done = self._done(wanted)
        now = self._clock()
        rows = {row.id: row for row in queue or ()}
        gone = [e for _, e in wanted if queue is not None and not _active(rows.get(e)) and e not in done]
        accounting = self._accounting(gone) if gone else []
        for t, element in wanted:
            if queue is not None:
                if _active(rows.get(element)):
                    t.silent_since.pop(element, None)
                else:
                    t.silent_since.setdefault(element, now)
            self._settle(t, element, _Heard(queue is not None, rows, accounting), done.get(element))
        self._after_asking(wanted, rows)

    def _look(self, wanted: list[tuple[_Tracked, str]]) -> None:
        """Only whether what runs has left a done.json: where it has, Slurm is asked now and not later."""
        running = [(t, e) for t, e in wanted if e in t.last and t.last[e].state is JobState.RUNNING]
        news = self._done(running).keys() - self._hinted
        self._look_at = time.monotonic() + _FILES_S
        if news:
            self._hinted |= news
            self._hurry()
            self._ask(wanted)

    def _settle(self, t: _Tracked, element: str, heard: _Heard, done: JobDone | None) -> None:
        now, row = self._clock(), heard.rows.get(element)
        status = reconcile(
            Witnesses(
                job_id=element,
                submitted_at=t.job.submitted_at,
                now=now,
                answered=heard.answered,
                queue=row,
                accounting=heard.accounting,
                done=done,
                ranks=t.job.spec.world_size,
                requeue=t.job.spec.requeue,
                silent_since=t.silent_since.get(element),
                before=t.last.get(element),
            )
        )
        if status.state is JobState.PENDING and row is not None:
            said = status.reason or "None"
            status = status.model_copy(update={"reason": explain(said), "word": word_of(said)})
        if element in self._damaged and heard.answered and not _active(row):
            status = JobStatus(state=JobState.LOST, reason=self._damaged[element], cause=EndCause.LOST)
        if status.cause is EndCause.NODE or self._never_began(t, element, status):
            status = self._with_bad_nodes(status)
        before = t.last.get(element)
        if before is None or before.state is not status.state:
            self._hurry()
        t.last[element] = status
        known = [t.last.get(e) or JobStatus(state=JobState.PENDING) for e in t.elements]
        t.status = known[0] if t.elements == (t.job.id,) else combine(known)

    def _after_asking(self, wanted: list[tuple[_Tracked, str]], rows: Mapping[str, QueueRow]) -> None:
        """Ask again soon while something is new or about to end, else less and less often."""
        now = time.monotonic()
        ages = [rows[e].elapsed_s or 0 for _, e in wanted if e in rows and rows[e].state == "RUNNING"]
        young = any(age < 30 for age in ages) or any(self._clock() - t.job.submitted_at < 30 for t, _ in wanted)
        self._pause = _FASTEST_S if young else min(self._pause * _GROWTH, _SLOWEST_S)
        self._ask_at = now + self._pause
        self._look_at = now + _FILES_S

    def _queue(self, ids: Sequence[str]) -> list[QueueRow] | None:
        """Squeue's rows; None where the controller is silent. Raises SchedulerError when it is for too long."""
        result = self._slurm.run(commands.squeue(ids))
        said = words(result)
        if result.exit_code == 0 or (_NOT_KNOWN in said and not result.timed_out):
            self._busy_since = None
            return parse.queue(result.stdout.decode(errors="replace"))
        if result.timed_out or is_busy(result):
            now = time.monotonic()
            self._busy_since = self._busy_since or now
            if now - self._busy_since > self._patience_s:
                raise SchedulerError(
                    f"Slurm's controller has not answered for {self._patience_s:g} s: {said}",
                    next_action="jobs go on running: mend slurmctld, then resume the run",
                )
            self._pause = min(max(self._pause, 1.0) * 2, 30.0)
            return None
        raise SchedulerError(f"squeue failed: {said}", next_action="try it on the login host by hand")

    def _accounting(self, elements: Sequence[str]) -> list[AccountingRow]:
        """Sacct's rows; none where there is no accounting, or it does not answer: it is one witness of three."""
        if self._no_accounting:
            return []
        result = self._slurm.run(commands.sacct(list(dict.fromkeys(element.split("_")[0] for element in elements))))
        if result.exit_code != 0:
            self._no_accounting = "accounting storage is disabled" in words(result)
            return []
        return parse.accounting(result.stdout.decode(errors="replace"))

    def _done(self, wanted: Sequence[tuple[_Tracked, str]]) -> dict[str, JobDone]:
        """Every ``done.json`` that is there, in one question."""
        if not wanted:
            return {}
        paths = {t.done_file(element): element for t, element in wanted}
        self.queries["files"] += 1
        found = {}
        for path, content in self._connection.read_many(paths).items():
            try:
                text = content.decode()
                found[paths[path]] = parse_record(JobDone, parse_json(text, file=str(path)), file=str(path))
            except (EvidenceError, UnicodeDecodeError) as error:
                self._damaged[paths[path]] = f"cannot read its done.json: {error}"
            else:
                self._damaged.pop(paths[path], None)
        return found

    def tagged(self, runs: Path | None = None) -> list[TaggedJob]:  # noqa: ARG002 - Slurm keeps a list
        """Jobs of this user in the queue that a climb submitted, this one or another.

        A controller that is slow is asked again, for `patience_s`. Raises SchedulerError.
        """
        uid = self._connection.run(["id", "-u"], repeatable=True).stdout.decode().strip()
        rows = parse.queue_of_user(self._slurm.output(commands.squeue_of_user(uid), patiently=True))
        return [_tagged(row, folder) for row, folder in rows if row.tag.startswith(f"{TAG}:")]

    # -- ending

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Scancel all of them at once, then wait a little for them to have ended."""
        with self._lock:
            for job in jobs:
                self._track(job)
            mine = [self._tracked[job.id] for job in jobs]
            active = [t.job for t in mine if not t.status.state.final]
            if not active:
                return
            self._cancel_ids([job.id for job in active], _CANCEL_PATIENCE_S)
            self._hurry()
        deadline = time.monotonic() + _CANCEL_WAIT_S
        while time.monotonic() < deadline:
            self.poll(active)
            with self._lock:  # how they ended may be told later; that they have left the queue is enough
                if all(t.over(element) for t in mine for element in t.elements):
                    return
            time.sleep(0.2)

    def _cancel_ids(self, ids: Sequence[str], patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while True:
            result = self._slurm.run(commands.scancel(ids))
            if result.exit_code == 0 or _NOT_KNOWN in words(result) or "already completing" in words(result):
                return
            if not (is_busy(result) or result.timed_out) or time.monotonic() > deadline:
                raise SchedulerError(
                    f"cannot cancel jobs {', '.join(ids)}: {words(result)}",
                    next_action=f"on the login host: scancel {' '.join(ids)}",
                )
            time.sleep(1)

    def end(self, jobs: Sequence[TaggedJob]) -> list[TaggedJob]:
        """Cancel jobs that others submitted, and wait for them to be gone. Those that are not. Raises SchedulerError."""
        return self._end(jobs, self._patience_s, _END_WAIT_S)

    def _end(self, jobs: Sequence[TaggedJob], patience_s: float, wait_s: float) -> list[TaggedJob]:
        if not jobs:
            return []
        ids = dict.fromkeys(_whole(job) for job in jobs)
        self._cancel_ids(list(ids), patience_s)
        deadline = time.monotonic() + wait_s
        while True:
            there = {_whole(job) for job in self.tagged()}
            left = [job for job in jobs if _whole(job) in there]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(1)

    def reap(self, folder: Path) -> bool:
        """End the job of a folder that another, dead process submitted. True when nothing of it runs any more."""
        intent = folder / "submission.json"
        written = self._connection.read_many([intent]).get(intent)
        if written is None:
            return True  # never submitted
        tag = _word_in(intent, written, "tag")
        mine = [job for job in self.tagged() if job.tag == tag]
        return not self._end(mine, _CANCEL_PATIENCE_S, _CANCEL_WAIT_S)

    def close(self) -> None:
        """Cancel what is still there of what this object submitted or polled."""
        with self._lock:
            jobs = [t.job for t in self._tracked.values() if not t.status.state.final]
        self.cancel(jobs)


def _tagged(row: QueueRow, folder: str) -> TaggedJob:
    run, nonce = (*row.tag.split(":")[1:3], "", "")[:2]
    return TaggedJob(
        id=row.id,
        name=row.name,
        state=row.state,
        run=run,
        nonce=nonce,
        tag=row.tag,
        nodes=row.nodes,
        elapsed_s=None if row.state == "PENDING" else row.elapsed_s,
        limit_s=row.limit_s,
        reason=explain(row.reason) if row.reason != "None" or row.state == "PENDING" else "",
        folder=folder,
    )


def _whole(job: TaggedJob) -> str:
    """The id of a job, or of the array that it is an element of: an array is ended, and waited for, as a whole."""
    return job.id.split("_")[0]


def _within(spec: JobSpec, site: Site) -> JobSpec:
    """The job as Slurm is asked for it, with all nodes excluded that it may not have."""
    return spec.model_copy(update={"exclude_hosts": site.excluding(spec)})


def _active(row: QueueRow | None) -> bool:
    return row is not None and row.state not in FINAL


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _word_in(path: Path, content: bytes, key: str) -> str:
    """A text in one of a job's small files. Raises SchedulerError where it is not there."""
    try:
        value = json.loads(content)[key]
    except (ValueError, KeyError, TypeError):
        value = None
    if not isinstance(value, str):
        raise SchedulerError(f"{path} does not say its {key}: it is damaged", next_action="see `squeue --me`")
    return value


def _tag(spec: JobSpec) -> str:
    """Names one submission for ever. Only what a comment carries intact."""
    parts = [spec.env.get("SUREFOOT_RUN", ""), spec.env.get("SUREFOOT_NONCE", "") or secrets.token_hex(8), spec.name]
    return ":".join(
        [TAG, *("".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in p) for p in parts)]
    )
