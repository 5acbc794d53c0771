"""What a playbook did, from the lines of the callback ``surefoot_events``: complete, or an error with the line. Pure.

A run whose end is missing (no ``stats``) is not whole, and neither is one whose lines and totals
tell of different things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from surefoot.errors import EvidenceError
from surefoot.evidence import parse_json
from surefoot.model.base import Record

Outcome = Literal["ok", "changed", "failed", "unreachable", "skipped"]


class RunEvent(Record):
    """The first line: what was started."""

    event: Literal["run"]
    ansible: str = Field(min_length=1)
    playbook: str = Field(min_length=1)
    check: bool
    diff: bool
    limit: str = ""
    """The pattern that hosts had to match; empty: all."""
    only: str = ""
    """Words that leave tasks out (``--tags slurm``), of the command line or of ``ansible.cfg``; empty: none are."""


class PlayEvent(Record):
    """A play begins. With ``serial``: a batch of it, under the same number."""

    event: Literal["play"]
    number: int = Field(ge=1)
    """From 1, in the order of the site: plays may have equal names."""
    play: str
    at: str = ""
    """``site.yml:58``."""
    hosts: tuple[str, ...] = ()


class TaskEvent(Record):
    """A task begins, on all hosts of its play that are left."""

    event: Literal["task"]
    task: str = ""
    role: str = ""
    at: str = ""


class Difference(Record):
    """What a task changes, or would change."""

    before: str = ""
    after: str = ""
    prepared: str = ""
    before_header: str = ""
    after_header: str = ""


class IncludedEvent(Record):
    """Tasks of a file or role were included: Ansible counts that as a task that went well on each of these hosts."""

    event: Literal["included"]
    hosts: tuple[str, ...] = ()


class ResultEvent(Record):
    """How a task ended on one host; of a loop also how each item did."""

    event: Literal["result"]
    host: str = Field(min_length=1)
    task: str = ""
    role: str = ""
    at: str = ""
    module: str = ""
    status: Outcome
    ignored: bool = False
    item: str | None = None
    message: str = ""
    path: str = ""
    diff: tuple[Difference, ...] = ()
    packages: tuple[str, ...] = ()
    """Packages that the task names."""
    once: bool = False
    """For one host instead of all of its play (``run_once``)."""
    for_real: bool = False
    """It was not held back by a check run: the task says ``check_mode: false``."""
    forgiven: str = ""
    """Why it failed, where the task says that it did not (``failed_when``); then the status is another."""
    left_out: bool = False
    """Skipped by its own ``when``, as this is a check run."""

    @property
    def where(self) -> str:
        """``slurm: Write slurm.conf (gres.conf)``: how a check names it."""
        item = f" ({self.item})" if self.item else ""
        return f"{self.role + ': ' if self.role else ''}{self.task or self.module}{item}"


class Totals(Record):
    """What ``stats`` says of one host."""

    ok: int = Field(ge=0)
    failures: int = Field(ge=0)
    unreachable: int = Field(ge=0)
    changed: int = Field(ge=0)
    skipped: int = Field(ge=0)
    rescued: int = Field(ge=0)
    ignored: int = Field(ge=0)


class StatsEvent(Record):
    """The last line: the run is whole."""

    event: Literal["stats"]
    hosts: dict[str, Totals] = {}


Event = Annotated[
    RunEvent | PlayEvent | TaskEvent | IncludedEvent | ResultEvent | StatsEvent, Field(discriminator="event")
]
_INCLUDING = ("include_tasks", "include_role")
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


@dataclass(frozen=True)
class Told:
    """One result and the line that told it, counted from 1."""

    line: int
    result: ResultEvent
    play: int
    """Number of the play that it is of."""


@dataclass(frozen=True)
class Playbook:
    """A whole run of a playbook."""

    run: RunEvent
    plays: tuple[PlayEvent, ...]
    results: tuple[Told, ...]
    totals: dict[str, Totals]

    def of(self, *statuses: Outcome) -> list[Told]:
        """Results with one of these statuses. Of a loop its items, unless only the task itself says so."""
        found = [told for told in self.results if told.result.status in statuses]
        items = {(t.result.host, t.result.at, t.result.task) for t in found if t.result.item is not None}
        return [
            t for t in found if t.result.item is not None or (t.result.host, t.result.at, t.result.task) not in items
        ]

    def messages(self, task: str) -> dict[str, Told]:
        """Host → what this task, which is of no role, said there; hosts that it did not end well on are not among them."""
        return {
            t.result.host: t
            for t in self.results
            if t.result.task == task and not t.result.role and t.result.status == "ok"
        }

    def hosts_heard(self, play: int) -> set[str]:
        """Hosts that a task of this play, by its number, told of."""
        return {told.result.host for told in self.results if told.play == play}


def event_of(row: str, *, file: str, line: int) -> Event:
    """One line's event. Raises EvidenceError for a line that is none."""
    data = parse_json(row, file=file, line=line)
    try:
        return _EVENT.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = f"no event of a playbook: {where}: {first['msg']}"
        raise EvidenceError(problem, file=file, line=line, text=row) from error


def playbook_of(rows: Sequence[str], *, file: str) -> Playbook:
    """A run's lines. Raises EvidenceError for one that is none, and where the run is not whole."""
    events = [(number, event_of(row, file=file, line=number)) for number, row in enumerate(rows, 1)]
    if not events:
        raise EvidenceError("the playbook told nothing", file=file)
    kinds = Counter(event.event for _, event in events)
    begun, last = events[0][1], events[-1][1]
    if not isinstance(begun, RunEvent) or kinds["run"] != 1:
        raise EvidenceError("the playbook's first line is missing, or stands twice", file=file, line=1, text=rows[0])
    if not isinstance(last, StatsEvent) or kinds["stats"] != 1:
        raise EvidenceError("cut off: the playbook's totals are not its last line", file=file, text=rows[-1])
    plays = tuple(event for _, event in events if isinstance(event, PlayEvent))
    results = _results(events, file)
    included = Counter(host for _, event in events if isinstance(event, IncludedEvent) for host in event.hosts)
    _refuse_other_totals(results, included, last.hosts, file)
    return Playbook(begun, plays, results, last.hosts)


def _results(events: Sequence[tuple[int, Event]], file: str) -> tuple[Told, ...]:
    """Results, each of its play. Raises EvidenceError where a play is missing between two."""
    found, play = [], 0
    for line, event in events:
        if isinstance(event, PlayEvent):
            if event.number not in (play, play + 1):
                raise EvidenceError(f"after play {play} follows play {event.number}", file=file, line=line)
            play = event.number
        elif isinstance(event, ResultEvent):
            if not play:
                raise EvidenceError("a result before the first play", file=file, line=line)
            found.append(Told(line, event, play))
    return tuple(found)


def _refuse_other_totals(results: Sequence[Told], included: Counter[str], totals: dict[str, Totals], file: str) -> None:
    """Ansible counts by itself: a line that is gone, changed or there twice shows."""
    counted: Counter[tuple[str, str]] = Counter()
    for told in results:
        one = told.result
        if one.host not in totals:
            raise EvidenceError(f"{one.host} is not in the totals", file=file, line=told.line)
        if one.item is not None or (one.status == "ok" and one.module.rpartition(".")[2] in _INCLUDING):
            continue  # of a loop the task counts, and of an inclusion what was included
        passed = one.ignored and one.status in ("failed", "unreachable")
        counted[one.host, "ignored" if passed else one.status] += 1
        if passed or one.status in ("ok", "changed"):
            counted[one.host, "well"] += 1
    for host, total in totals.items():
        counted[host, "well"] += included[host]
        wanted = {
            "well": total.ok,
            "changed": total.changed,
            "skipped": total.skipped,
            "ignored": total.ignored,
            "failed": total.failures + total.rescued,
            "unreachable": total.unreachable,
        }
        for name, figure in wanted.items():
            if counted[host, name] != figure:
                problem = f"{host}: {counted[host, name]} tasks {name} by the lines, {figure} by the totals"
                raise EvidenceError(problem, file=file)
