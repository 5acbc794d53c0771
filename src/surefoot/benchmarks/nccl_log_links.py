"""Over what NCCL connected its ranks, from the lines ``Channel … via …`` of its log. Pure.

::

    Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM                  2.18 and later: [NVML index]
    Channel 00/0 : 1[3b000] -> 0[3b000] [receive] via NET/IB/1   2.14 to 2.17: [PCI address], no /0 before 2.12
    Channel 03/1 : 17[1] -> 3[3] [send] via NET/IB/3(19)/GDRDMA/Shared
    CollNet 00/0 : 0 [receive] via COLLNET/SHARP/1/GDRDMA

Numbers of ranks are those of the communicator. P2P and SHM are told by who sends, NET by both ends.
``NET/IB/3(19)``: the network device is number 3 of rank 19's process, which passes it on (PXN).
Without ``/GDRDMA`` data goes through the host's memory. A network plugin has the name that it gives
itself, blanks too: ``NET/AWS Libfabric/7``, ``NET/NCCL RDMA Plugin v10/0``. RCCL adds ``comm … nRanks …``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from surefoot.benchmarks.nccl_log_lines import Line, Process

_VIA = (
    r"(?:(?P<p2p>P2P)/(?P<pointer>direct pointer|IPC|CUMEM|MNNVL|indirect/(?P<between>\d+)\[[0-9a-f]+\])(?P<read>/read)?(?P<ce>/CE)?"
    r"|(?P<shm>SHM)/(?P<memory>(?:direct|CE)/(?:direct|CE))"
    r"|(?P<net>NET)/(?P<network>[A-Za-z][\w .+-]*)/(?P<device>\d+)(?:\((?P<proxy>\d+)\))?"
    r"(?P<gdr>/GDRDMA(?P<pci>\(PCI\))?)?(?P<shared>/Shared)?)"
)
_CHANNEL = re.compile(
    r"Channel (?P<channel>\d+)(?:/(?P<index>\d))? ?: (?P<source>\d+)\[(?P<source_device>[0-9a-f]+)\] -> "
    r"(?P<target>\d+)\[(?P<target_device>[0-9a-f]+)\](?: \[(?P<direction>send|receive)\])? via " + _VIA +
    r"(?: comm 0x[0-9a-f]+ nRanks \d+)?"
)  # fmt: skip
_COLLNET = re.compile(
    r"Coll(?:Net)? (?P<channel>\d+)(?:/(?P<index>\d))? ?: (?P<rank>\d+) \[(?P<direction>send|receive)\] via "
    r"COLLNET/(?P<network>[A-Za-z][\w .+-]*)/(?P<device>\d+)(?P<gdr>/GDRDMA(?P<pci>\(PCI\))?)?"
    r"(?: comm 0x[0-9a-f]+ nRanks \d+)?"
)
_RING = re.compile(r"Channel \d{2,}/\d{2,} :[ \d]*")
"""The order of ranks in a channel, which rank 0 writes: no connection."""


class Kind(StrEnum):
    """What carries the data."""

    P2P = "P2P"
    """A GPU reads or writes another's memory: NVLink or PCIe, the line does not say which."""
    SHM = "SHM"
    """Through the host's memory."""
    NET = "NET"
    COLLNET = "COLLNET"
    """Through a network that reduces (SHARP)."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection that one process made, in one direction."""

    line: Line
    channel: int
    index: int
    """0: of collectives, 1: of send and receive."""
    own: int
    """Rank of who made it, in its communicator."""
    own_device: str | None
    """As in brackets: NVML index or PCI address; None for COLLNET."""
    peer: int | None
    """Rank at the other end; None for COLLNET, where that is the network."""
    sends: bool
    kind: Kind
    how: str
    """Of P2P and SHM: ``CUMEM/read``, ``direct/direct``, ``indirect/3``; of a network its name: ``IB``."""
    device: int | None = None
    """Network device, as the process that holds it counts them."""
    proxy: int | None = None
    """Rank whose process holds the network device, where that is another's (PXN)."""
    gdr: str = ""
    """``GDRDMA`` or ``GDRDMA(PCI)``: the NIC reads and writes GPU memory. Empty: through the host's memory."""
    shared: bool = False

    @property
    def process(self) -> Process:
        """Who made it."""
        return self.line.process

    @property
    def way(self) -> str:
        """Kind and way, without what differs between equals: ``P2P/CUMEM``, ``SHM/direct``, ``NET/IB``."""
        return f"{self.kind}/{self.how.split('/')[0]}"

    @property
    def sockets(self) -> bool:
        """Whether it goes over TCP."""
        return self.kind is Kind.NET and self.how == "Socket"


def connections(lines: Iterable[Line]) -> tuple[Connection, ...]:
    """Every connection. Raises EvidenceError for a line that tells of one and cannot be read."""
    return tuple(_connection(line) for line in lines if line.connects and not _is_ring(line))


def _is_ring(line: Line) -> bool:
    return line.whole and _RING.fullmatch(line.message) is not None


def _connection(line: Line) -> Connection:
    if not line.whole:
        raise line.wrong("tells of a connection and is not whole")
    message = line.message.rstrip()
    match = _CHANNEL.fullmatch(message)
    if match is not None:
        return _between(line, match)
    match = _COLLNET.fullmatch(message)
    if match is None:
        raise line.wrong("tells of a connection in an unknown form")
    return Connection(
        line=line,
        channel=int(match["channel"]),
        index=int(match["index"] or 0),
        own=int(match["rank"]),
        own_device=None,
        peer=None,
        sends=match["direction"] == "send",
        kind=Kind.COLLNET,
        how=match["network"],
        device=int(match["device"]),
        gdr=(match["gdr"] or "").lstrip("/"),
    )


def _between(line: Line, match: re.Match[str]) -> Connection:
    """A connection between two ranks. Only those over a network say a direction: their two ends are told apart."""
    kind = Kind(match["p2p"] or match["shm"] or match["net"])
    direction = match["direction"]
    if (kind is Kind.NET) != (direction is not None) or match["source"] == match["target"]:
        raise line.wrong("tells of a connection in an unknown form")
    sends = direction != "receive"
    own, peer = ("source", "target") if sends else ("target", "source")
    how = match["network"] or match["memory"] or ""
    if kind is Kind.P2P:
        pointer = "direct" if match["pointer"] == "direct pointer" else match["pointer"].split("[")[0]
        how = pointer + (match["read"] or "") + (match["ce"] or "")
    return Connection(
        line=line,
        channel=int(match["channel"]),
        index=int(match["index"] or 0),
        own=int(match[own]),
        own_device=match[f"{own}_device"],
        peer=int(match[peer]),
        sends=sends,
        kind=kind,
        how=how,
        device=None if match["device"] is None else int(match["device"]),
        proxy=None if match["proxy"] is None else int(match["proxy"]),
        gdr=(match["gdr"] or "").lstrip("/"),
        shared=match["shared"] is not None,
    )
