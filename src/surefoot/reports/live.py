"""The climb as it happens: a table that renews itself in a terminal, plain lines everywhere else.

Nothing here is evidence. Progress is what jobs say of themselves, and an estimate of the time left
is shown as what it is.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from surefoot.model.events import Event, JobChanged, Note, Progress, RungEnded, RungStarted
from surefoot.model.job import JobState
from surefoot.model.run import RungResult, RunManifest
from surefoot.model.status import Status
from surefoot.reports.live_jobs import JobRows
from surefoot.reports.text import STATUS_GLYPHS, STATUS_STYLES, duration, one_line, terminal_safe

HEARTBEAT_S = 10.0
"""In plain lines, a running rung tells what it does this often: with its next event, or without one."""
_TICK_S = 0.5
"""How often plain lines look for a rung that has been silent too long."""
_ESTIMATE_AFTER_S = 2.0
"""An estimate from less than this would only jump about."""


_Cells = tuple[RenderableType, Text, Text, Text]
"""Sign, name, what is said, time."""


def never_fail_to_print(console: Console) -> None:
    """Signs that the terminal's encoding lacks become ``?`` instead of ending a climb with an error."""
    if isinstance(console.file, io.TextIOWrapper):
        console.file.reconfigure(errors="replace")


@dataclass
class _Row:
    """One rung as the view sees it."""

    name: str
    asked: bool
    started_at: float | None = None
    jobs: JobRows = field(default_factory=JobRows)
    first: dict[str, Progress] = field(default_factory=dict)
    last: Progress | None = None
    told_at: float = 0.0
    result: RungResult | None = None

    def _said(self) -> str | None:
        """The last that its jobs said; None where one of them waits, or nothing was said."""
        waiting = any(job.last.state is JobState.PENDING for job in self.jobs.rows.values())
        return one_line(_progress_text(self.last), 60) if self.last is not None and not waiting else None

    def progress(self) -> str:
        """What its jobs say, else how many are over."""
        said = self._said()
        return self.jobs.count() if said is None else said

    def doing(self) -> str:
        """What it does now: its last progress, else the states of its jobs."""
        said = self._said()
        if said is not None:
            return said
        running = [row.last for row in self.jobs.rows.values() if not row.last.state.final]
        if not running:
            return ""
        job = ([job for job in running if job.state is JobState.PENDING] or running)[-1]
        known = f" {job.job_id}" if job.job_id else ""
        reason = f" ({job.reason})" if job.reason else ""
        return one_line(f"job {job.job}{known} {job.state.lower()}{reason}", 120)

    def forget_pace(self, job: str) -> None:
        """A job that was submitted again begins anew."""
        self.first.pop(job, None)
        if self.last is not None and self.last.job == job:
            self.last = None

    def left_s(self, now: float) -> float | None:
        """Seconds that the running job may still take, from its pace so far; None where there is no pace yet."""
        if self.last is None or self.last.total <= 0:
            return None
        first = self.first[self.last.job]
        done, took = self.last.done - first.done, self.last.at - first.at
        if done <= 0 or took < _ESTIMATE_AFTER_S:
            return None
        return max(0.0, (self.last.total - self.last.done) * took / done - (now - self.last.at))

    def times(self, now: float) -> str:
        """Elapsed, and the estimate of what is left."""
        left = self.left_s(now)
        elapsed = duration(None if self.started_at is None else max(0.0, now - self.started_at))
        return elapsed if left is None or left < 1 else f"{elapsed}, about {duration(left)} left"


def _progress_text(progress: Progress) -> str:
    """``40/90 loss 0.41``; the count is left out where the text has it."""
    if progress.total <= 0:
        return progress.text
    count = f"{progress.done:g}/{progress.total:g}"
    return progress.text if count in progress.text else f"{count} {progress.text}".rstrip()


class LiveLadder:
    """Shows a climb while it runs; a context manager whose `on_event` takes events from any thread.

    `selected` are the rungs that were asked for (default: all). In a terminal the view vanishes
    when it ends; `show` prints what stays. `clock` gives Unix time.
    """

    def __init__(
        self,
        console: Console,
        manifest: RunManifest,
        selected: Collection[str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names = manifest.inputs.ladder.names
        never_fail_to_print(console)
        self._console = console
        self._clock = clock
        self._lock = threading.RLock()
        self._rows = {name: _Row(name, selected is None or name in selected) for name in names}
        self._spinner = Spinner("dots", style="cyan")
        self._live: Live | None = None
        self._over = threading.Event()
        self._timer = threading.Thread(target=self._tell_of_the_silent, name="heartbeat", daemon=True)
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        else:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._live is not None:
            self._live.stop()
        else:
            self._timer.join()

    def _tell_of_the_silent(self) -> None:
        """A log that nobody adds to looks like a climb that hangs: say of each running rung that it runs."""
        while not self._over.wait(_TICK_S):
            with self._lock:
                now = self._clock()
                running = [row for row in self._rows.values() if row.started_at is not None]
                due = [line for row in running for line in self._due(row, now)]
            for line in due:
                self._print(line)

    def _print(self, line: Text) -> None:
        try:
            self._console.print(line, soft_wrap=True)
        except OSError:  # a full disk behind standard output: the climb goes on, and its end tells of it
            self._over.set()

    def on_event(self, event: Event) -> None:
        """Take one event. Thread-safe; never raises for what an event says."""
        with self._lock:
            lines = self._take(event)
        if not self._over.is_set() and (self._live is None or isinstance(event, Note)):
            for line in lines:
                self._print(line)

    def _take(self, event: Event) -> list[Text]:
        """Keep what the event says; plain lines for it, where it deserves them."""
        if isinstance(event, Note):
            return [Text(f"· {terminal_safe(event.text)}")]
        name = event.result.rung if isinstance(event, RungEnded) else event.rung
        row = self._rows.setdefault(name, _Row(name, asked=True))
        if isinstance(event, RungStarted):
            self._rows[name] = _Row(name, row.asked, started_at=event.at, told_at=event.at)
            return [Text(f"▸ {name}: started")]
        if isinstance(event, RungEnded):
            row.result = event.result
            told = row.asked or event.result.status is not Status.SKIPPED
            return [_ended(event.result)] if told else []
        if isinstance(event, JobChanged):
            if row.jobs.take(event):
                row.forget_pace(event.job)
        else:
            row.first.setdefault(event.job, event)
            row.last = event
        return self._due(row, event.at)

    def _due(self, row: _Row, at: float) -> list[Text]:
        """What has changed with its jobs; else that it still runs, where it was silent for long."""
        changed = row.jobs.lines(row.name, at) if row.result is None else []
        if changed:
            row.told_at = at
            return changed
        line = self._heartbeat(row, at)
        return [line] if line is not None else []

    def _heartbeat(self, row: _Row, at: float) -> Text | None:
        if row.result is not None or at - row.told_at < HEARTBEAT_S:
            return None
        row.told_at = at
        doing = row.doing() or "running"
        return Text(f"  {row.name}: {doing} ({row.times(at)})")

    # --- the renewing table ---------------------------------------------------------------

    def _render(self) -> RenderableType:
        with self._lock:
            now = self._clock()
            rows, before, after = self._fitting()
            cells: list[tuple[_Row | None, _Cells]] = [(None, before)] if before else []
            cells += [(row, self._cells(row, now)) for row in rows]
            if after:
                cells.append((None, ("", Text(f"{after} more wait", style="dim"), Text(""), Text(""))))
            return Group(*self._parts(cells, now))

    def _parts(self, cells: list[tuple[_Row | None, _Cells]], now: float) -> Iterator[RenderableType]:
        """The ladder's rows, each running rung's jobs below it. All columns are as wide as if it were one table."""
        name, said, took = (
            max(text.cell_len for text in column) for column in zip(*(line[1:] for _, line in cells), strict=True)
        )
        said = max(1, min(said, self._console.width - name - took - 7))
        room = max(4, self._console.size.height - 2) - len(cells)
        for row, line in cells:
            part = Table.grid(padding=(0, 2, 0, 0))
            for width in (1, name, said, took):
                part.add_column(width=width, no_wrap=True, overflow="ellipsis")
            part.add_row(*line)
            yield part
            if row is not None and row.result is None:
                jobs = row.jobs.table(now, room, self._console.width - 1)
                room -= len(jobs)
                yield from jobs

    def _fitting(self) -> tuple[list[_Row], _Cells | None, int]:
        """Rows that fit the screen: what is done and what waits is counted where there is too little room."""
        rows = list(self._rows.values())
        room = max(4, self._console.size.height - 3)
        if len(rows) <= room:
            return rows, None, 0
        done = [row for row in rows if row.result is not None]
        others = [row for row in rows if row.result is None]
        passed = sum(r.result is not None and r.result.status is Status.PASSED for r in done)
        line = (Text(""), Text(f"{len(done)} done"), Text(f"{passed} PASSED"), Text(""))
        kept = sorted(others, key=lambda row: row.started_at is None)[:room]
        return kept, line if done else None, len(others) - len(kept)

    def _cells(self, row: _Row, now: float) -> _Cells:
        if row.result is not None:
            status = row.result.status
            said = row.result.judgement.summary or row.result.reason
            return (
                Text(STATUS_GLYPHS[status], style=STATUS_STYLES[status]),
                Text(row.name),
                Text.assemble((status.value, STATUS_STYLES[status]), f"  {one_line(said, 100)}"),
                Text(duration(row.result.duration_s), style="dim"),
            )
        if row.started_at is not None:
            return self._spinner, Text(row.name, style="bold"), Text(row.progress()), Text(row.times(now), style="dim")
        return (
            Text("·", style="dim"),
            Text(row.name, style="dim"),
            Text("waits" if row.asked else "not asked for", style="dim"),
            Text(""),
        )


def _ended(result: RungResult) -> Text:
    said = result.judgement.summary or result.reason
    took = f" ({duration(result.duration_s)})" if result.duration_s is not None else ""
    glyph, style = STATUS_GLYPHS[result.status], STATUS_STYLES[result.status]
    return Text.assemble(
        (f"{glyph} {result.rung}: {result.status.value}", style),
        f"  {one_line(said, 200)}".rstrip() + took,
    )
