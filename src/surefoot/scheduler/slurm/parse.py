"""What Slurm's commands print, as rows. Pure, and tolerant of versions: 20.11 to 26.05.

Tolerant means: fields that are not known, a state that is new, a time that is not given. A row
that is not a row is an error that shows it; nothing is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from surefoot.errors import SchedulerError
from surefoot.scheduler.slurm.commands import (
    ACCOUNTING_FIELDS,
    HOLDER_FIELDS,
    NODE_FIELDS,
    QUEUE_FIELDS,
    SEPARATOR,
    USER_FIELDS,
)
from surefoot.scheduler.slurm.states import AccountingRow, QueueRow

_DURATION = re.compile(r"^(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?$", re.ASCII)
_JOB_ID = re.compile(r"^\d+(_\d+)?$", re.ASCII)
_SUBMITTED = re.compile(r"^(\d+)(?:;\S*)?$", re.ASCII)
_QUEUED = re.compile(r"^\d+(?:[_+]|$)", re.ASCII)
"""How an id in the queue begins: 12, 12_3, 12_[3-5], 12+1."""
_EXIT = re.compile(r"^(\d+):(\d+)$", re.ASCII)
_GPUS = re.compile(r"(?:^|,)(?:gres:|gres/)?gpu(?::(?P<type>[A-Za-z][^:,()]*))?:(?P<count>\d{1,9})(?!\d)", re.ASCII)
_COUNT = re.compile(r"\d{1,18}\Z", re.ASCII)
"""Bounded, as what is called a number and is none makes no row."""
SIGNS = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN",
    "$": "MAINT", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED",
}  # fmt: skip
"""What Slurm appends to a node's state: ``idle*`` is idle and does not respond. Scontrol has words for it since 21.08."""
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")


def job_id(stdout: str) -> str:
    """The id that ``sbatch --parsable`` printed (``12`` or ``12;cluster``), whatever a site's wrapper prints
    around it. Raises SchedulerError where no line is one, or several are.
    """
    found = {match.group(1) for line in stdout.splitlines() if (match := _SUBMITTED.match(line.strip()))}
    if len(found) != 1:
        raise SchedulerError(
            f"sbatch did not say {'one' if found else 'a'} job id but {stdout[:200]!r}",
            next_action="try `sbatch --parsable` on the login host by hand: is it a wrapper?",
        )
    return found.pop()


def queue(stdout: str) -> list[QueueRow]:
    """Squeue's rows. Raises SchedulerError."""
    return [_queue_row(fields) for fields in _rows(stdout, len(QUEUE_FIELDS), "squeue")]


def queue_of_user(stdout: str) -> list[tuple[QueueRow, str]]:
    """Squeue's rows of one user's jobs, each with the job's folder. Raises SchedulerError."""
    return [
        (_queue_row(fields[:-1]), fields[-1]) for fields in _rows(stdout, len(USER_FIELDS), "squeue", open_end=True)
    ]


@dataclass(frozen=True)
class Holder:
    """A job that holds nodes."""

    id: str
    user: str
    name: str
    nodes: str
    """Hostlist."""
    left_s: float | None
    """Until its time limit; None: it has none."""


def holders(stdout: str) -> list[Holder]:
    """Squeue's rows of jobs that hold nodes. Raises SchedulerError."""
    rows = _rows(stdout, len(HOLDER_FIELDS), "squeue")
    return [Holder(i, user, name, _absent(nodes_text), duration_s(left)) for i, user, name, nodes_text, left in rows]


def _queue_row(fields: list[str]) -> QueueRow:
    identifier, state, reason, submitted, started, used, limit, nodes, name, tag = fields
    return QueueRow(
        id=identifier,
        state=state,
        reason=reason[1:-1] if reason.startswith("(") and reason.endswith(")") else reason,
        submitted_at=moment(submitted),
        started_at=moment(started),
        elapsed_s=duration_s(used),
        limit_s=duration_s(limit),
        nodes=_absent(nodes),
        name=name,
        tag="" if tag == "(null)" else tag,
    )


def accounting(stdout: str) -> list[AccountingRow]:
    """Sacct's rows, without those of steps. Raises SchedulerError."""
    rows = []
    for fields in _rows(stdout, len(ACCOUNTING_FIELDS), "sacct"):
        identifier, state, exit_code, submitted, started, ended, nodes, reason = fields
        if not _JOB_ID.match(identifier):
            continue  # a step (12.batch), or pending elements of an array taken together (12_[3-5])
        ending = _EXIT.match(exit_code)
        rows.append(
            AccountingRow(
                id=identifier,
                state=(state.split() or [""])[0].rstrip("+"),  # "CANCELLED by 1000"
                exit_code=int(ending.group(1)) if ending else None,
                signal=int(ending.group(2)) if ending else None,
                submitted_at=moment(submitted),
                started_at=moment(started),
                ended_at=moment(ended),
                nodes=_absent(nodes),
                reason="" if reason == "None" else reason,
            )
        )
    return rows


@dataclass(frozen=True)
class NodeRow:
    """A node in one partition, as sinfo shows it."""

    name: str
    partition: str
    default: bool
    state: str
    """``idle``, ``mixed``, ``drained``, … without the signs that follow it."""
    cpus: int
    memory_mib: int
    gpus: int
    reason: str
    responds: bool = True
    """False: its slurmd does not answer, and Slurm starts nothing there."""
    gpu_type: str = ""
    """As the site calls them in Gres (`gpu_type`); not the driver's name for them."""

    @property
    def out(self) -> bool:
        """Whether no job starts there until somebody mends it."""
        return self.state.startswith(("down", "drain", "fail", "unknown", "inval", "future"))

    @property
    def usable(self) -> bool:
        """Whether Slurm starts jobs there now. One that does not respond may do so again by itself."""
        return self.responds and not self.out

    @property
    def told(self) -> str:
        """``n1 is drained (bad rail)``: its state and Slurm's reason, for people."""
        silent = "" if self.responds or self.state.startswith("down") else ", and does not respond"
        return f"{self.name} is {self.state}{silent}{f' ({self.reason})' if self.reason else ''}"


def nodes(stdout: str) -> list[NodeRow]:
    """Sinfo's rows. Raises SchedulerError."""
    rows = []
    for fields in _rows(stdout, len(NODE_FIELDS), "sinfo", open_end=True):
        name, partition, said, cpus, memory, gres, reason = fields
        state = said.rstrip("".join(SIGNS) + "+")
        if not _COUNT.match(cpus.rstrip("+")) or not _COUNT.match(memory.rstrip("+")):
            raise SchedulerError(f"sinfo: node {name}: {cpus!r} CPUs and {memory!r} MiB are no numbers")
        rows.append(
            NodeRow(
                name=name,
                partition=partition.rstrip("*"),
                default=partition.endswith("*"),
                state=state.lower(),
                responds="*" not in said[len(state) :],
                cpus=int(cpus.rstrip("+")),
                memory_mib=int(memory.rstrip("+")),
                gpus=gpus(gres),
                gpu_type=gpu_type(gres),
                reason="" if reason == "none" else reason,
            )
        )
    return rows


@dataclass(frozen=True)
class Partition:
    """A partition's limits. inf: none."""

    name: str
    state: str
    max_time_s: float
    max_nodes: float


def partitions(stdout: str) -> list[Partition]:
    """``scontrol --oneliner show partition``. Raises SchedulerError."""
    found = []
    for line in stdout.splitlines():
        if not line.strip() or line.startswith("No partitions"):
            continue
        values = pairs(line)
        if "PartitionName" not in values:
            raise SchedulerError(f"scontrol show partition said {line[:200]!r}")
        most = values.get("MaxNodes", "UNLIMITED")
        limit = duration_s(values.get("MaxTime", "UNLIMITED"))
        found.append(
            Partition(
                name=values["PartitionName"],
                state=values.get("State", "UP"),
                max_time_s=inf if limit is None else limit,
                max_nodes=int(most) if _COUNT.match(most) else inf,
            )
        )
    return found


def pairs(line: str) -> dict[str, str]:
    """``Key=value Key=value with blanks …`` of one scontrol line."""
    matches = list(_PAIR.finditer(line))
    ends = [match.start() for match in matches[1:]] + [len(line)] * bool(matches)
    return {match.group(1): line[match.end() : end].strip() for match, end in zip(matches, ends, strict=True)}


def gpus(gres: str) -> int:
    """GPUs of a node: ``gpu:h100:8(S:0-1),nvme:1`` → 8. Types are added up."""
    return sum(int(found["count"]) for found in _GPUS.finditer(_without_places(gres)))


def gpu_type(gres: str) -> str:
    """What a site calls a node's GPUs: ``gpu:h100:8(S:0-1)`` → h100; several are joined by ``+``; empty: no type."""
    return "+".join(sorted({found["type"] for found in _GPUS.finditer(_without_places(gres)) if found["type"]}))


def _without_places(gres: str) -> str:
    return re.sub(r"\([^)]*\)", "", gres)


def moment(text: str) -> float | None:
    """A Unix time; None where Slurm has none, or printed a local time, whose zone is not known here."""
    return float(text) if _COUNT.match(text) else None


def duration_s(text: str) -> float | None:
    """``1-02:03:04``, ``03:04``; None for UNLIMITED, INVALID, N/A, NOT_SET, empty."""
    match = _DURATION.match(text)
    if match is None:
        return float(text) * 60 if _COUNT.match(text) else None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def _rows(stdout: str, width: int, command: str, *, open_end: bool = False) -> list[list[str]]:
    """Rows of so many fields. A field may hold line breaks (a job's name, a comment: by anybody's hand).

    `open_end`: the last one too. Raises SchedulerError for anything that is no row.
    """
    rows: list[list[str]] = []
    row, began = "", 0
    for number, line in enumerate(stdout.split("\n"), 1):
        if not line and not row:  # nothing else: strip() would take separators for blanks
            continue
        if open_end and not row and rows and SEPARATOR not in line:
            rows[-1][-1] += f"\n{line.strip()}"
            continue
        row, began = (f"{row}\n{line}", began) if row else (line, number)
        count = row.count(SEPARATOR) + 1
        if count == 1 or count > width:
            break
        if count == width:
            rows.append([field.strip() for field in row.split(SEPARATOR)])
            row = ""
    if row:
        raise SchedulerError(
            f"{command}, line {began}: {row.count(SEPARATOR) + 1} fields instead of {width}: {row[:200]!r}",
            next_action=f"try {command} on the login host by hand: is it a wrapper, or does it print anything beside its table?",
        )
    if command == "squeue":
        for fields_of in rows:
            if not _QUEUED.match(fields_of[0]):
                raise SchedulerError(f"squeue: {fields_of[0][:200]!r} is no job's id")
    return rows


def _absent(nodes_text: str) -> str:
    return "" if nodes_text in ("(null)", "None assigned", "n/a", "None") else nodes_text
