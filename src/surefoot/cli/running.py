"""One climb as a command runs it: watched, interruptible, reported, and answered with an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console

from surefoot.cli.chosen import resume_words
from surefoot.cli.streams import say
from surefoot.engine.session import Session
from surefoot.errors import StorageError
from surefoot.model.events import Event, Note, event_line
from surefoot.model.run import RungResult
from surefoot.model.status import ExitCode, Status, combine, exit_code, whole
from surefoot.reports.files import write_reports
from surefoot.reports.summary import summary
from surefoot.reports.terminal import LiveLadder, show
from surefoot.rungs.table import RUNGS


def run_climb(
    session: Session,
    selected: frozenset[str],
    go_on: str,
    *,
    as_json: bool,
    again: frozenset[str] = frozenset(),
    take_over: bool = False,
    more: Callable[[ExitCode], Mapping[str, Any]] | None = None,
) -> int:
    """Climb, report, and answer for the rungs that were asked for.

    `go_on`: the command that goes on from here. `again`: rungs to run although they PASSED. `more`: asked, with the
    exit code, for what else stands in the JSON document. The exit code is that of the rungs in `selected`;
    reports tell of the whole run. Raises StorageError when the reports cannot be written.
    """
    console = Console(stderr=as_json)
    manifest, paths = session.manifest, session.run_paths
    stop = threading.Event()
    with (
        interruptible(stop),
        LiveLadder(console, manifest, selected) as live,
        _EventLog(paths.events, live.on_event) as emit,
    ):
        for change in session.changes:
            emit(Note.now(f"changed since this run began: {change}"))
        results = list(session.climb(RUNGS, selected, emit, stop, again=again, take_over=take_over).run().values())
        interrupted = stop.is_set()
    unwritten = None
    try:
        write_reports(paths, manifest, results)
    except StorageError as error:
        unwritten = error  # what was found is told all the same
    asked = [result for result in results if result.rung in selected]
    code = ExitCode.INTERRUPTED if interrupted else exit_code(result.status for result in asked)
    overall = whole(result.status for result in results)
    show(console, manifest, results, overall, report=None if unwritten else paths.report, answer=code)
    for line in _last_words(session, results, selected, go_on, code):
        say(line, err=as_json or interrupted)
    if unwritten is not None:
        raise unwritten
    if as_json:
        answer = {
            "rungs": [result.rung for result in asked],
            "status": str(combine(result.status for result in asked)),
            "exit_code": int(code),
            "interrupted": interrupted,
        }
        click.echo(
            json.dumps({**summary(manifest, results), "asked": answer, **(more(code) if more else {})}, indent=1)
        )
    return code


def _last_words(
    session: Session, results: list[RungResult], selected: frozenset[str], go_on: str, code: ExitCode
) -> Iterator[str]:
    """What the exit code answers where that isn't the whole run, and how to go on."""
    status = {result.rung: result.status for result in results}
    if code is ExitCode.INTERRUPTED:
        yield f"interrupted; its jobs are cancelled. Go on with: {go_on}"
        return
    if selected != status.keys():
        told = ", ".join(f"{name} {status[name]}" for name in status if name in selected)
        yield f"Asked for: {told} → exit {int(code)}"
    missing = [
        need
        for name in status
        if name in selected and status[name] is Status.BLOCKED
        for need in session.manifest.inputs.ladder.spec(name).needs
        if need not in selected and status[need] is not Status.PASSED
    ]
    if missing:
        blocked = [name for name in status if name in selected and status[name] is Status.BLOCKED]
        words = resume_words(session.home, session.manifest.run_id, "--to", blocked[-1])
        yield f"{blocked[0]} needs {', '.join(dict.fromkeys(missing))}, which was not asked for. Climb up to it: {words}"
    elif code is not ExitCode.PROVED:
        yield f"When that is mended, go on with: {go_on}"


class _EventLog:
    """Hands events on and keeps them in ``events.jsonl``, from whichever thread they come.

    Events are no evidence: a log that cannot be written is told once and does not end the climb.
    """

    def __init__(self, path: Path, observer: Callable[[Event], None]) -> None:
        self._path = path
        self._observer = observer
        self._stream: TextIO | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Callable[[Event], None]:
        try:
            self._stream = self._path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            self._give_up(error)
        return self._emit

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _emit(self, event: Event) -> None:
        with self._lock:
            if self._stream is not None:
                try:
                    self._stream.write(event_line(event) + "\n")
                except OSError as error:
                    self._give_up(error)
            self._observer(event)

    def _give_up(self, error: OSError) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
        self._observer(Note.now(f"{self._path} is not kept: {error.strerror or error}"))


@contextlib.contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C, TERM and HUP ask the climb to cancel its jobs and end.

    A signal that is ignored stays ignored: `nohup surefoot climb` outlives its terminal.
    """

    def ask(_number: int, _frame: object) -> None:
        if not stop.is_set():
            with contextlib.suppress(OSError):  # not print(): the main thread may be inside one
                os.write(2, b"surefoot: interrupted; cancelling its jobs\n")
        stop.set()

    heard = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
