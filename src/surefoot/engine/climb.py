"""Climbing: run the rungs whose needs PASSED, independent ones side by side, and record each."""

from __future__ import annotations

import contextlib
import queue
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from surefoot.connection.base import Connection
from surefoot.engine.claims import claim_attempt, collected_by, refuse_if_collected
from surefoot.engine.collect import Collector
from surefoot.engine.inputs import EVIDENCE_OF, changed, configuration_digests
from surefoot.engine.jobs import bring_home
from surefoot.engine.judge import Judge, blocked, unmet_needs, without_evidence
from surefoot.engine.mirror import Mirror
from surefoot.engine.package import Package
from surefoot.engine.planning import Planner
from surefoot.engine.store import load_attempt, read_record, write_record
from surefoot.engine.watch import JobWatch
from surefoot.errors import EvidenceError, MachineryError, RequestError, SurefootError
from surefoot.evidence import EvidenceSet
from surefoot.model.events import Event, Note, RungEnded, RungStarted
from surefoot.model.ladder import AnyRung, NodeRungSpec
from surefoot.model.run import CollectionOutcome, RungResult, RunManifest, Shrunk
from surefoot.model.status import Status
from surefoot.paths import RootPaths, RunPaths
from surefoot.rungs.base import Rung
from surefoot.scheduler.base import Scheduler

_Ending = tuple[RungResult, dict[str, EvidenceSet]] | BaseException


@dataclass
class Climb:
    """One climb of one run. `run` blocks until every selected rung has a result or `stop` is set."""

    manifest: RunManifest
    root: RootPaths
    run_paths: RunPaths
    rungs: Mapping[str, Rung[Any, Any]]
    selected: frozenset[str]
    connection: Connection
    scheduler: Scheduler
    package: Package
    emit: Callable[[Event], None]
    stop: threading.Event = field(default_factory=threading.Event)
    again: frozenset[str] = frozenset()
    """Rungs to run again although they PASSED."""
    take_over: bool = False
    """The user says that processes on other hosts that hold parts of this run are gone."""
    results: dict[str, RungResult] = field(default_factory=dict)
    evidence: dict[str, EvidenceSet] = field(default_factory=dict)

    def run(self) -> dict[str, RungResult]:
        """Results of all rungs of the ladder, in its order."""
        finished: queue.Queue[tuple[str, _Ending]] = queue.Queue()
        running: dict[str, threading.Thread] = {}
        watch = JobWatch(self.scheduler)
        mirror = self._mirror
        collector = Collector(self.connection, watch, self.package, mirror, self.emit, self.stop)
        try:
            mirror.open(self.manifest)
            while self._start_ready(running, finished, collector) or running:
                with contextlib.suppress(queue.Empty):
                    name, ending = finished.get(timeout=0.2)
                    running.pop(name).join()
                    if isinstance(ending, BaseException):
                        raise ending
                    result, self.evidence = ending[0], {**self.evidence, **ending[1]}
                    self._ended(result)
        finally:
            if running:  # an error of ours on the way: leave nothing behind
                self.stop.set()
                for thread in running.values():
                    thread.join()
            watch.close()
            mirror.close()
            self._close()
        return {name: self.results[name] for name in self.manifest.inputs.ladder.names if name in self.results}

    @cached_property
    def _mirror(self) -> Mirror:
        there = self.root.run(self.manifest.run_id)
        return Mirror(self.connection, self.run_paths, there, self.emit)

    @property
    def _to_reap(self) -> str:
        """The command that ends what this run has left in the scheduler."""
        root = str(self.run_paths.root.root)
        return shlex.join(["surefoot", "jobs", "--reap", "--run", self.manifest.run_id, "--root", root])

    def _close(self) -> None:
        """Cancel what is still there, or say that it could not be."""
        try:
            self.scheduler.close()
        except MachineryError as error:
            self.emit(Note.now(f"jobs of this run may still be there: {error}; end them with: {self._to_reap}"))
        self.connection.close()

    def _judge(self) -> Judge:
        return Judge(self.run_paths, self.manifest, self.rungs)

    def _take_up(self, spec: AnyRung, evidence: dict[str, EvidenceSet]) -> RungResult | None:
        """What an earlier climb of this run left at this rung, judged again; None when it is to run (again)."""
        attempts = self.run_paths.rung(spec.rung).attempts()
        if not attempts:
            return None
        result = self._judge().attempt(spec, attempts[-1], evidence)
        if spec.rung in self.again and not self.stop.is_set():
            result = result.model_copy(update={"reason": "asked to run again"})
        elif result.status is Status.PASSED or spec.rung not in self.selected or self.stop.is_set():
            return result
        refuse_if_collected(
            self.run_paths, spec.rung, attempts[-1], take_over=self.take_over
        )  # before its jobs are ended
        evidence.pop(spec.rung, None)
        self._say_why_again(spec, attempts[-1], result)
        self._reap(spec.rung, attempts[-1])
        return None

    def _say_why_again(self, spec: AnyRung, number: int, result: RungResult) -> None:
        why = result.reason
        with contextlib.suppress(EvidenceError):
            before = load_attempt(self.run_paths, spec.rung, number).evidence.plan.inputs
            kept = {name: digest for name, digest in before.items() if not name.startswith(EVIDENCE_OF)}
            names = changed(kept, configuration_digests(self.rungs[spec.rung], spec, self.manifest.inputs))
            if names:
                why = f"inputs changed: {', '.join(names)}"
        self.emit(Note(text=f"{spec.rung} runs again: {why}", at=time.time()))

    def _reap(self, rung: str, number: int) -> None:
        """Wait for jobs of an interrupted attempt to be gone, so that two attempts never overlap."""
        try:
            attempt = load_attempt(self.run_paths, rung, number)
        except EvidenceError:
            return  # it was never planned, so nothing was submitted
        if attempt.collection is not None and attempt.collection.outcome is CollectionOutcome.COMPLETE:
            return
        for spec in attempt.evidence.plan.jobs:
            folder = Path(spec.folder)
            if not self.scheduler.reap(folder):
                self.emit(Note.now(f"the job in {folder} still runs and does not end; try: {self._to_reap}"))
            elif attempt.collection is None and self.connection.remote and self.connection.exists(folder):
                bring_home(self.connection, folder, attempt.paths.job(spec.name))

    def _start_ready(
        self,
        running: dict[str, threading.Thread],
        finished: queue.Queue[tuple[str, _Ending]],
        collector: Collector,
    ) -> bool:
        """Start what can start, settle what cannot. False when nothing is left to start."""
        waiting = False
        for spec in self.manifest.inputs.ladder.rungs:
            name = spec.rung
            if name in self.results or name in running:
                continue
            collected = bool(self.run_paths.rung(name).attempts())
            if name not in self.selected and not collected:
                self._ended(without_evidence(self.rungs[name], spec, Status.SKIPPED, "asked not to run"))
                continue
            if any(need not in self.results for need in spec.needs):
                waiting = True
                continue
            unmet = unmet_needs(spec, self.results)
            if unmet:
                self._ended(blocked(self.rungs[name], spec, unmet))
            elif self.stop.is_set() and not collected:
                reason = "ABORTED: interrupted before it started"
                self._ended(without_evidence(self.rungs[name], spec, Status.INCONCLUSIVE, reason))
            else:
                waiting = True
                thread = threading.Thread(target=self._climb_rung, args=(spec, collector, finished), name=name)
                running[name] = thread
                thread.start()
        return waiting

    def _climb_rung(self, spec: AnyRung, collector: Collector, finished: queue.Queue[tuple[str, _Ending]]) -> None:
        try:
            evidence = dict(self.evidence)  # of its own: several rungs are judged at once
            result = self._take_up(spec, evidence) or self._collect_and_judge(spec, collector, evidence)
            own: dict[str, EvidenceSet] = {spec.rung: evidence[spec.rung]} if spec.rung in evidence else {}
            finished.put((spec.rung, (result, own)))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            finished.put((spec.rung, error))

    def _collect_and_judge(
        self, spec: AnyRung, collector: Collector, evidence: dict[str, EvidenceSet], shrunk: Shrunk | None = None
    ) -> RungResult:
        rung = self.rungs[spec.rung]
        number, paths = claim_attempt(self.run_paths, spec.rung, take_over=self.take_over)
        self.emit(RungStarted(rung=spec.rung, at=time.time()))
        planner = Planner(self.manifest, self.root, self.rungs)
        try:
            plan = planner.plan(spec, number, evidence, shrunk=shrunk)
        except RequestError as error:
            reason = f"what is asked cannot be done: {error}"
            return without_evidence(rung, spec, Status.INCONCLUSIVE, reason, attempt=number)
        except (SurefootError, KeyError) as error:
            return without_evidence(rung, spec, Status.ERROR, f"cannot be planned: {error}", attempt=number)
        with contextlib.suppress(MachineryError):  # what is wrong with the link, collecting will say
            self._push_again()
        pending = spec.pending if isinstance(spec, NodeRungSpec) else None
        collection = collector.collect(plan, paths, pending)
        if collection.shrunk is not None:
            self.emit(Note.now(f"{spec.rung}: {collection.error}"))
            return self._collect_and_judge(spec, collector, evidence, collection.shrunk)
        return self._judge().attempt(spec, number, evidence)

    def _push_again(self) -> None:
        """Code that sync has proved and somebody has removed since is sent again; jobs say what they ran."""
        folder = self.root.pushed(self.manifest.inputs.code_digest)
        if "sync" not in self.results:
            return
        if not self.connection.exists(folder) and self.connection.put_tree(self.package.code.files, folder):
            self.emit(Note(text=f"{folder} was gone: the code was sent again", at=time.time()))

    def _ended(self, result: RungResult) -> None:
        self.results[result.rung] = result
        self._record(result)
        self.emit(RungEnded(result=result, at=time.time()))

    def _record(self, result: RungResult) -> None:
        """Write what is new. A result that stands already stays as it is; one in the making is its collector's."""
        path = self.run_paths.rung(result.rung).result
        with contextlib.suppress(EvidenceError):
            if read_record(RungResult, path) == result:
                return
        if result.rung not in self.selected and result.attempt is not None and result.started_at is None:
            attempt = self.run_paths.rung(result.rung).attempt(result.attempt)
            if collected_by(self.run_paths, result.rung, result.attempt) or attempt.collection.exists():
                return
        write_record(path, result)
        self._mirror.send([path])
