"""Who took part, from NCCL's log: each rank of each communicator, and how far it came. Pure.

::

    ncclCommInitRankConfig comm 0xaf1c020 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x852c… - Init START
    comm 0xaf1c020 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
    ncclCommInitRankConfig comm 0xaf1c020 rank 0 nranks 2 … - Init COMPLETE
    Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 0.49 (kernels 0.12, …)

START is written by 2.17 and later, nvmlDev by 2.17, commId by 2.16, the function's name by 2.19. A
communicator that was split off another has no commId from 2.23 on; parent, count and color stand for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from surefoot.benchmarks.nccl_log_lines import Line, Process

_INIT = re.compile(
    r"(?:(?P<call>ncclComm\w+) )?comm (?P<pointer>0x[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<nranks>\d+) "
    r"cudaDev (?P<cuda>\d+)(?: nvmlDev (?P<nvml>\d+))? busId (?P<bus>[0-9a-f]+)"
    r"(?: parent (?P<parent>0x[0-9a-f]+)| (?:split|child)Count (?P<count>\d+)| color (?P<color>-?\d+)| key -?\d+"
    r"| commId (?P<id>0x[0-9a-f]+)| localSize \d+| used \d+ bytes| on core \d+)* ?- Init (?P<what>START|COMPLETE)"
)
_NODES = re.compile(
    r"comm (?P<pointer>0x[0-9a-f]+) rank (?P<rank>\d+) nRanks (?P<nranks>\d+) nNodes (?P<nodes>\d+) "
    r"localRanks (?P<local_ranks>\d+) localRank (?P<local_rank>\d+)(?: MNNVL (?P<mnnvl>\d+))?"
)
_TIMINGS = re.compile(
    r"Init timings(?: - \w+)?: rank (?P<rank>\d+) nranks (?P<nranks>\d+) total (?P<total>\d+\.\d+) "
    r"\((?P<phases>\w+ -?\d+\.\d+(?:, \w+ -?\d+\.\d+)*)\)"
)
_BOOTSTRAP = re.compile(
    r"Bootstrap timings total (?P<total>\d+\.\d+) \((?P<phases>\w+ -?\d+\.\d+(?:, \w+ -?\d+\.\d+)*)\)"
)
_BEGINS = re.compile(r"(?:ncclComm\w+ )?comm 0x[0-9a-f]+ rank \d+ nranks \d")
_OTHER = re.compile(r"- (?!Init )\w+ (?:START|COMPLETE)$")
_ALMOST = re.compile(r"- Init [A-Z]*\s*$|Init timings\b")


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of one communicator."""

    process: Process
    thread: int
    pointer: str
    """Its handle in that process; one that was freed comes back as another's."""
    rank: int
    nranks: int
    cuda_device: int
    """As the process counts what it sees."""
    nvml_device: int | None
    """As the driver counts; None before 2.17."""
    bus_id: str
    """PCI address in hex without leading zeros, as NCCL writes it."""
    group: str | None
    """Equal for all ranks of one communicator; None where the log does not tell."""
    split: bool
    """Whether it was made of another communicator, not of all ranks that a job started."""
    started: Line | None
    """Init START; None in logs of 2.16 and earlier."""
    completed: Line | None
    """Init COMPLETE; None: it never came."""
    nodes: int | None = None
    local_ranks: int | None = None
    multi_node_nvlink: bool | None = None
    init_s: Mapping[str, float] = field(default_factory=dict)
    """``total`` and each phase (kernels, bootstrap, allgathers, topo, graphs, connections, rest), 2.21 and later."""
    bootstrap_s: Mapping[str, float] = field(default_factory=dict)
    """``total`` and each part (create, send, recv, ring, delay); recv is the wait for who comes last. 2.23 and later."""

    @property
    def line(self) -> Line:
        """The line that shows it best: that it completed, else that it started."""
        line = self.completed or self.started
        assert line is not None
        return line

    @property
    def where(self) -> str:
        """``rank 1 on node-b``."""
        return f"rank {self.rank} on {self.process.host}"


@dataclass(slots=True)
class _Building:
    """A member while its lines are read."""

    first: Line
    match: re.Match[str]
    group: str | None
    started: Line | None = None
    completed: Line | None = None
    nodes: re.Match[str] | None = None
    init_s: dict[str, float] = field(default_factory=dict)
    bootstrap_s: dict[str, float] = field(default_factory=dict)

    def is_of(self, match: re.Match[str]) -> bool:
        return all(self.match[key] == match[key] for key in ("pointer", "rank", "nranks"))

    def built(self) -> Member:
        match, nodes = self.match, self.nodes
        return Member(
            process=self.first.process,
            thread=self.first.thread,
            pointer=match["pointer"],
            rank=int(match["rank"]),
            nranks=int(match["nranks"]),
            cuda_device=int(match["cuda"]),
            nvml_device=None if match["nvml"] is None else int(match["nvml"]),
            bus_id=match["bus"],
            group=self.group,
            split=match["parent"] is not None,
            started=self.started,
            completed=self.completed,
            nodes=int(nodes["nodes"]) if nodes else None,
            local_ranks=int(nodes["local_ranks"]) if nodes else None,
            multi_node_nvlink=nodes["mnnvl"] != "0" if nodes and nodes["mnnvl"] is not None else None,
            init_s=self.init_s,
            bootstrap_s=self.bootstrap_s,
        )


def members(lines: Iterable[Line]) -> tuple[Member, ...]:
    """Every rank of every communicator, in the order of its first line. Raises EvidenceError for a line that is not whole."""
    by_process: dict[Process, list[_Building]] = {}
    order: list[_Building] = []
    for line in lines:
        known = by_process.setdefault(line.process, [])
        new = _read(line, known)
        if new is not None:
            known.append(new)
            order.append(new)
    return tuple(building.built() for building in order)


def _read(line: Line, known: list[_Building]) -> _Building | None:
    """What the line says goes into a member of its process; a new member where it is the first of one."""
    message = line.message
    if "comm 0x" in message:
        match = _INIT.fullmatch(message)
        if match is not None:
            return _init(line, match, known)
        nodes = _NODES.fullmatch(message)
        if nodes is not None:
            _set_nodes(line, nodes, known)
        elif _ALMOST.search(message) or (_BEGINS.match(message) and not _OTHER.search(message)):
            raise line.wrong("tells of a rank in an unknown form")
    elif message.startswith("Init timings"):
        _set_timings(line, known)
    elif message.startswith("Bootstrap timings"):
        _set_bootstrap(line, known)
    return None


def _init(line: Line, match: re.Match[str], known: list[_Building]) -> _Building | None:
    if match["what"] == "COMPLETE":
        for building in reversed(known):
            if building.completed is None and building.is_of(match):
                building.completed = line
                building.group = building.group or match["id"]
                return None
    new = _Building(first=line, match=match, group=_group(match, known))
    if match["what"] == "START":
        new.started = line
    else:
        new.completed = line
    return new


def _group(match: re.Match[str], known: list[_Building]) -> str | None:
    """The communicator's identity: its own, or that of what it was split off and how."""
    if match["id"] is not None:
        return match["id"]
    if match["parent"] is None:
        return None
    parent = next((building for building in reversed(known) if building.match["pointer"] == match["parent"]), None)
    if parent is None or parent.group is None or match["count"] is None:
        return None
    return f"{parent.group}/{match['count']}/{match['color']}"


def _set_nodes(line: Line, match: re.Match[str], known: list[_Building]) -> None:
    if int(match["rank"]) >= int(match["nranks"]):
        raise line.wrong("has a rank that its communicator does not have")
    found = next((building for building in reversed(known) if building.is_of(match)), None)
    if found is not None:
        found.nodes = match


def _set_timings(line: Line, known: list[_Building]) -> None:
    match = _TIMINGS.fullmatch(line.message)
    if match is None:
        raise line.wrong("tells of initialisation in an unknown form")
    ranks = (match["rank"], match["nranks"])
    for building in reversed(known):
        own = (building.match["rank"], building.match["nranks"])
        if building.completed is not None and not building.init_s and own == ranks:
            building.init_s = _seconds(match)
            return


def _set_bootstrap(line: Line, known: list[_Building]) -> None:
    match = _BOOTSTRAP.fullmatch(line.message)
    if match is None:
        raise line.wrong("tells of the bootstrap in an unknown form")
    for building in reversed(known):
        if building.completed is None and not building.bootstrap_s and building.first.thread == line.thread:
            building.bootstrap_s = _seconds(match)
            return


def _seconds(match: re.Match[str]) -> dict[str, float]:
    phases = (phase.split(" ") for phase in match["phases"].split(", "))
    return {"total": float(match["total"]), **{name: float(seconds) for name, seconds in phases}}
