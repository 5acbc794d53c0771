"""What happens while a climb runs, for people who watch. Nothing here is evidence or decides.

The engine emits events; the live view consumes them and ``events.jsonl`` keeps them, one per line.
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from surefoot.model.base import Record
from surefoot.model.job import JobState
from surefoot.model.run import RungResult


class RungStarted(Record):
    """A rung's evidence is being collected from now on."""

    kind: Literal["rung_started"] = "rung_started"
    rung: str
    at: float
    """Unix time, here and in every event."""


class JobChanged(Record):
    """A job was submitted or changed: its state, why it waits, where it runs."""

    kind: Literal["job_changed"] = "job_changed"
    rung: str
    job: str
    job_id: str = ""
    """The scheduler's id; empty before it gave one."""
    state: JobState
    reason: str = ""
    """Why it waits or why it ended, in words."""
    nodes: str = ""
    """Hostlist of where it runs or ran."""
    elapsed_s: float | None = None
    """How long it had been running at `at`; None: not told."""
    limit_s: float | None = None
    expected_start: float | None = None
    """Unix time at which the scheduler means to start it."""
    at: float


class Progress(Record):
    """How far a job says it is (its ``progress.json``)."""

    kind: Literal["progress"] = "progress"
    rung: str
    job: str
    done: float
    total: float
    """0 where the job doesn't know."""
    text: str = ""
    at: float


class RungEnded(Record):
    """A rung has its status."""

    kind: Literal["rung_ended"] = "rung_ended"
    result: RungResult
    at: float


class Note(Record):
    """Something a person should know that belongs to no job: a retry, a resume, what was cancelled."""

    kind: Literal["note"] = "note"
    text: str
    at: float

    @classmethod
    def now(cls, text: str) -> Note:
        """A note of this moment."""
        return cls(text=text, at=time.time())


Event = RungStarted | JobChanged | Progress | RungEnded | Note

_ADAPTER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def event_line(event: Event) -> str:
    """One line of ``events.jsonl``, without LF.

    The measurements and details of an ended rung are left out: they stand in its ``result.json``.
    """
    leave_out = {"result": {"judgement": {"measurements", "details"}}} if event.kind == "rung_ended" else None
    return event.model_dump_json(exclude=leave_out)


def parse_event(line: str) -> Event:
    """The event of one line. Raises pydantic.ValidationError when it is none."""
    return _ADAPTER.validate_json(line)
