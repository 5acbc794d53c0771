"""The jobs of a rung while it runs: a line each, and below one that waits, for what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from surefoot.model.events import JobChanged
from surefoot.model.job import JobState
from surefoot.reports.text import clock, one_line

SETTLES_S = 3.0
"""In plain lines, a job that waits is told of after this: most start at once."""
_STYLES = {JobState.PENDING: "yellow", JobState.RUNNING: "cyan", JobState.COMPLETED: "dim"}
_NAME, _NODES = 20, 40
_INDENT = "     "


def _told(event: JobChanged) -> tuple[str, ...]:
    """What a plain line would say: not that Slurm means to start it a little earlier."""
    return event.job_id, event.state, event.reason, event.nodes


@dataclass
class JobRow:
    """One job as the view sees it."""

    last: JobChanged
    since: float
    """Unix time of the change to its state."""
    told: bool = False
    """Whether a plain line told of this state and its reason."""

    def take(self, event: JobChanged) -> None:
        """The next change. A job that was submitted again begins anew."""
        if (event.job_id, event.state) != (self.last.job_id, self.last.state):
            self.since = event.at
        self.told = self.told and _told(event) == _told(self.last)
        self.last = event

    def elapsed_s(self, now: float) -> float | None:
        """How long it has been waiting, or running. None once it is over and nobody says how long it took."""
        if self.last.state.final:
            return self.last.elapsed_s
        if self.last.state is JobState.RUNNING and self.last.elapsed_s is not None:
            return self.last.elapsed_s + max(0.0, now - self.last.at)
        return max(0.0, now - self.since)

    def times(self, now: float) -> str:
        """``0:42/5:00`` of a job that runs, ``0:42`` of one that waits."""
        elapsed = clock(self.elapsed_s(now))
        limited = self.last.state is JobState.RUNNING and self.last.limit_s is not None
        return f"{elapsed}/{clock(self.last.limit_s)}" if limited else elapsed

    def where(self, now: float) -> str:
        """Where it runs; of one that waits, when it is meant to start."""
        start = self.last.expected_start
        if self.last.state is not JobState.PENDING or start is None or start <= now:
            return self.last.nodes
        return time.strftime("starts %H:%M" if start - now < 72_000 else "starts %Y-%m-%d", time.localtime(start))

    def line(self, rung: str, now: float) -> Text | None:
        """Its change as a plain line; None where there is nothing to tell (yet)."""
        job, state = self.last, self.last.state
        if self.told or (state is JobState.PENDING and now - self.since < SETTLES_S):
            return None
        self.told = True
        if state is JobState.COMPLETED or (state is JobState.RUNNING and not job.nodes):
            return None  # its rung's end tells
        parts = [f"job {job.job} {job.job_id}".rstrip(), state.value]
        parts += [f"on {job.nodes}"] if job.nodes else []
        said = [job.reason, self.where(now) if state is JobState.PENDING else ""]
        told = "; ".join(part for part in said if part)
        text = " ".join(parts) + (f": {told}" if told else "")
        return Text(f"  {rung}: {one_line(text, 400)}")


@dataclass
class JobRows:
    """The jobs of one rung, in the order of their submission."""

    rows: dict[str, JobRow] = field(default_factory=dict)

    def take(self, event: JobChanged) -> bool:
        """The next change of one of them. Whether it is another submission of that job."""
        row = self.rows.get(event.job)
        if row is None:
            self.rows[event.job] = JobRow(event, since=event.at)
            return False
        again = row.last.job_id != event.job_id
        row.take(event)
        return again

    def lines(self, rung: str, now: float) -> list[Text]:
        """Plain lines for what has changed."""
        found = (row.line(rung, now) for row in self.rows.values())
        return [line for line in found if line is not None]

    @property
    def shown(self) -> list[JobRow]:
        """Those that are not over, and those that ended badly."""
        return [row for row in self.rows.values() if row.last.state is not JobState.COMPLETED]

    def count(self) -> str:
        """``2 of 5 jobs over``; of a single one, whether it waits."""
        states = [row.last.state for row in self.rows.values()]
        if len(states) == 1:
            return "in the queue" if states[0] is JobState.PENDING else ""
        return f"{sum(state.final for state in states)} of {len(states)} jobs over" if states else ""

    def table(self, now: float, room: int, width: int) -> Sequence[Text]:
        """At most `room` lines of at most `width` characters."""
        rows = self.shown
        if not rows or room < 1:
            return []
        kept = rows if sum(_height(row) for row in rows) <= room else rows[: max(0, (room - 1) // 2)]
        grid = [self._cells(row, now) for row in kept]
        widths = [max((len(cells[i]) for cells in grid), default=0) for i in range(5)]
        lines: list[Text] = []
        for row, cells in zip(kept, grid, strict=True):
            padded = [cell.ljust(size) for cell, size in zip(cells, widths, strict=True) if size]
            line = Text(one_line(_INDENT + "  ".join(padded), width), style=_STYLES.get(row.last.state, "red"))
            lines.append(line)
            if row.last.reason:
                lines.append(Text(one_line(f"{_INDENT}  {row.last.reason}", width), style="dim"))
        left = len(rows) - len(kept)
        return [*lines, Text(f"{_INDENT}and {left} more jobs", style="dim")] if left else lines

    @staticmethod
    def _cells(row: JobRow, now: float) -> tuple[str, ...]:
        job = row.last
        cells = (one_line(job.job, _NAME), one_line(job.job_id, 12), job.state.value, row.times(now))
        return (*cells, one_line(row.where(now), _NODES))


def _height(row: JobRow) -> int:
    return 2 if row.last.reason else 1
