"""What else NCCL's log tells: versions, channels, algorithms, settings, warnings. Pure.

::

    NCCL version 2.28.9+cuda13.0
    24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
    Connected all rings, use ring PXN 0 GDR 1                                  2.26 and later say more than `rings`
    AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}            NCCL_DEBUG_SUBSYS=TUNING, of rank 0
    NVLS comm 0x7f… headRank 0 nHeads 8 nvlsRanks 8 buffSize 1048576 …
    Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1        GRAPH
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from surefoot.benchmarks.nccl_log_lines import Line, Process

_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+(?:\.\d+)?)(?:\+\w+[\d.]*)?\s*")
_BARE_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+(?:\.\d+)?)\+(?:cuda|hip)[\d.]+\s*$", re.MULTILINE)
_COUNT = re.compile(r"(?P<count>\d+) (?P<what>coll|collnet|nvls|p2p) channels(?P<per_peer> per peer)?")
_COUNTS = re.compile(
    rf"{_COUNT.pattern.replace('?P<', '?P<_')}(?:, \d+ (?:coll|collnet|nvls|p2p) channels(?: per peer)?)*"
)
_RINGS = re.compile(r"Connected all rings(?:, use ring PXN (?P<pxn>\d+) GDR (?P<gdr>\d+))?\s*")
_CHOICE = re.compile(
    r"(?P<collective>\w+): (?P<size>\d+) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r"(?: time -?[\d.]+)?(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\})?\s*"
)
_NVLS = re.compile(r"NVLS comm 0x[0-9a-f]+ headRank -?\d+ nHeads \d+ .*")
_PATTERN = re.compile(
    r"Pattern (?P<pattern>\d+), crossNic \d+, nChannels (?P<channels>\d+), bw (?P<intra>[\d.]+)/(?P<inter>[\d.]+), "
    r"type (?P<inside>\w+)/(?P<between>\w+), sameChannels \d\s*"
)
_SET = re.compile(r"(?P<name>NCCL_\w+) set (?:by environment )?to (?P<value>.*?)\.?\s*")
_CONNECT = re.compile(
    r"socketPollConnect|socketStartConnect|socketFinalizeConnect|Call to connect|[Cc]onnect to \S+ (?:returned|failed)"
)
_NO_INTERFACE = re.compile(r"[Nn]o (?:socket |IP |usable listening )?interface found")


class Trouble(StrEnum):
    """What a warning speaks of."""

    CONNECT = "a connection that failed"
    """Bootstrap or NET/Socket: wrong interface, firewall, the other end is gone."""
    COMPLETION = "an InfiniBand transfer that failed"
    INTERFACE = "no interface was found"
    OTHER = "a warning"


@dataclass(frozen=True, slots=True)
class Warned:
    """A line that tells of trouble: every WARN, and of INFO failed connections, which are tried again."""

    line: Line
    trouble: Trouble

    @property
    def shown(self) -> str:
        """``n1: misc/socket.cc:483: Connect to 10.0.0.2<45763> failed``."""
        source = f"{self.line.source}: " if self.line.source else ""
        return f"{self.line.process.host}: {source}{self.line.message.strip()}"


@dataclass(frozen=True, slots=True)
class Rings:
    """One rank's rings are connected. PXN and GDR: whether any of them uses it; None before 2.26."""

    line: Line
    pxn: bool | None
    gdr: bool | None


@dataclass(frozen=True, slots=True)
class Choice:
    """How a collective of a size was done, as rank 0 of a communicator says."""

    line: Line
    """Where it is said first."""
    collective: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None


@dataclass(frozen=True, slots=True)
class Search:
    """A pattern that NCCL found in the machine: channels, GB/s each, and the worst step inside and between nodes."""

    line: Line
    pattern: int
    """4: ring; 1, 2, 3: trees; 5: NVLS."""
    channels: int
    inside_gb_s: float
    between_gb_s: float
    inside: str
    """``NVL``: NVLink all the way; ``PIX``, ``PXB``: PCIe switches; ``PHB``: the CPU; ``SYS``: between CPUs."""
    between: str


@dataclass(frozen=True)
class Notes:
    """All of it, in the order of lines."""

    versions: Mapping[Process | None, str] = field(default_factory=dict)
    """None: from a line without a process (before 2.23, NCCL_DEBUG=VERSION)."""
    channels: tuple[tuple[Line, Mapping[str, int]], ...] = ()
    """``coll``, ``collnet``, ``nvls``, ``p2p``, ``p2p per peer`` → number."""
    rings: tuple[Rings, ...] = ()
    trees: tuple[Line, ...] = ()
    choices: tuple[Choice, ...] = ()
    """Each once."""
    nvls: tuple[Line, ...] = ()
    """Ranks that made buffers for NVLink SHARP."""
    searches: tuple[Search, ...] = ()
    settings: Mapping[Process, Mapping[str, str]] = field(default_factory=dict)
    """Variables of the environment that NCCL heeded."""
    warnings: tuple[Warned, ...] = ()


def bare_version(texts: Iterable[str]) -> str | None:
    """The version in a line without a process, the first there is."""
    return next((match["version"] for text in texts if (match := _BARE_VERSION.search(text))), None)


@dataclass
class _Building:
    versions: dict[Process | None, str] = field(default_factory=dict)
    channels: list[tuple[Line, Mapping[str, int]]] = field(default_factory=list)
    rings: list[Rings] = field(default_factory=list)
    trees: list[Line] = field(default_factory=list)
    choices: dict[tuple[object, ...], Choice] = field(default_factory=dict)
    nvls: list[Line] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    settings: dict[Process, dict[str, str]] = field(default_factory=dict)
    warnings: list[Warned] = field(default_factory=list)


def notes(lines: Iterable[Line], texts: Iterable[str]) -> Notes:
    """What the lines tell. One that was cut off tells nothing."""
    found = _Building()
    bare = bare_version(texts)
    if bare is not None:
        found.versions[None] = bare
    for line in lines:
        if line.warns:
            found.warnings.append(Warned(line, _trouble(line.message)))
        elif line.whole:
            _note(line, found)
    return Notes(
        versions=found.versions,
        channels=tuple(found.channels),
        rings=tuple(found.rings),
        trees=tuple(found.trees),
        choices=tuple(found.choices.values()),
        nvls=tuple(found.nvls),
        searches=tuple(found.searches),
        settings=found.settings,
        warnings=tuple(found.warnings),
    )


def _trouble(message: str) -> Trouble:
    if "Got completion" in message:
        return Trouble.COMPLETION
    if _NO_INTERFACE.search(message):
        return Trouble.INTERFACE
    return Trouble.CONNECT if _CONNECT.search(message) else Trouble.OTHER


def _note(line: Line, found: _Building) -> None:
    message = line.message
    if " Bytes -> Algo " in message:
        _choice(line, found)
    elif message.startswith("NCCL version ") and (match := _VERSION.fullmatch(message)):
        found.versions.setdefault(line.process, match["version"])
    elif " coll channels" in message and _COUNTS.fullmatch(message):
        found.channels.append((line, _counts(message)))
    elif message.startswith("Connected all rings") and (match := _RINGS.fullmatch(message)):
        pxn, gdr = match["pxn"], match["gdr"]
        found.rings.append(Rings(line, None if pxn is None else pxn != "0", None if gdr is None else gdr != "0"))
    elif message.strip() == "Connected all trees":
        found.trees.append(line)
    elif message.startswith("NVLS comm") and _NVLS.fullmatch(message):
        found.nvls.append(line)
    elif message.startswith("Pattern ") and (match := _PATTERN.fullmatch(message)):
        found.searches.append(_search(line, match))
    elif message.startswith("NCCL_") and (match := _SET.fullmatch(message)):
        found.settings.setdefault(line.process, {})[match["name"]] = match["value"]
    elif "onnect" in message and _CONNECT.search(message):
        found.warnings.append(Warned(line, Trouble.CONNECT))


def _choice(line: Line, found: _Building) -> None:
    match = _CHOICE.fullmatch(line.message)
    if match is None:
        return
    low, high = match["low"], match["high"]
    choice = Choice(
        line=line,
        collective=match["collective"],
        size_bytes=int(match["size"]),
        algorithm=match["algorithm"],
        protocol=match["protocol"],
        channels=None if low is None else int(high) - int(low) + 1,
    )
    key = (choice.collective, choice.size_bytes, choice.algorithm, choice.protocol, choice.channels)
    found.choices.setdefault(key, choice)


def _counts(message: str) -> dict[str, int]:
    return {match["what"] + (match["per_peer"] or ""): int(match["count"]) for match in _COUNT.finditer(message)}


def _search(line: Line, match: re.Match[str]) -> Search:
    return Search(
        line=line,
        pattern=int(match["pattern"]),
        channels=int(match["channels"]),
        inside_gb_s=float(match["intra"]),
        between_gb_s=float(match["inter"]),
        inside=match["inside"],
        between=match["between"],
    )
