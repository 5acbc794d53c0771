"""Networks and NICs, from NCCL's log: what each process found, what it made of it, what it chose. Pure.

::

    Bootstrap: Using eth0:10.0.0.7<0>
    NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB ib0:10.0.0.7<0>
    NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [1]={…} [RO]; OOB …       2.20 to 2.22, IBext_v8
    NET/IB : Using [0]mlx5_0:1:3:0/RoCE …                                               2.30: rail 3, plane 0
    NET/IB : Made virtual device [2] name=mlx5_1+mlx5_3 speed=200000 ndevs=2 rail=-1 plane=16385
    Using network IB

A *network device* is what ``NET/IB/2`` of a connection counts: a port, or several made one. Newer
versions count the ports first and those that are several after them, in lines that are written with
``NCCL_DEBUG_SUBSYS=NET``; without them such a device is of unknown ports.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from surefoot.benchmarks.nccl_log_lines import Line, Process

_PORT = r"(?P<device>[\w.-]+):(?P<port>\d+)(?::(?P<rail>\d*))?(?::(?P<plane>\d+))?/(?P<link>IB|RoCE)(?P<sharp>/SHARP)?"
_NIC = re.compile(rf"\[(?P<index>\d+)\] ?{_PORT}")
_DEVICE = re.compile(r"\[\d+\](?:=\{(?P<merged>[^{}]+)\}|[^\s\[\]{};]+)")
_USING = re.compile(
    r"NET/IB : Using(?P<nics>(?: \[\d+\](?:=\{[^{}]+\}|[^\s\[\]{};]+))*) *(?P<ro>\[RO\])?"
    r"(?:; *(?:OOB (?P<oob>[^:\s]+):(?P<address>\S+<\d+>))?)? *"
)
_VIRTUAL = re.compile(
    r"NET/IB : Made virtual device \[(?P<index>\d+)\] name=(?P<names>[\w.+-]+) speed=(?P<speed>\d+) "
    r"ndevs=(?P<ndevs>\d+)(?: rail=-?\d+ plane=-?\d+)?"
)
_SOCKET = re.compile(r"NET/Socket : Using(?P<nics>(?: ?\[\d+\][^:\s]+:\S+<\d+>)+) *")
_INTERFACE = re.compile(r"\[(?P<index>\d+)\](?P<name>[^:\s]+):(?P<address>[^\s<]+)<\d+>")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[\d+\])?(?P<name>[^:\s]+):(?P<address>[^\s<]+)<\d+>.*")
_NETWORK = re.compile(r"Using network (?P<name>[A-Za-z][\w .+-]*)")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is (?P<provider>[\w;.-]+?)(?:, fabric is (?P<fabric>[\w;.-]+))? \(found (?P<nics>\d+) nics\)"
)
_DIRECT = re.compile(
    r"(?:NET/[^:]+ : )?GPU Direct RDMA (?:\((?:DMABUF|nvidia-peermem|DMA-BUF)\) )?(?P<state>[Ee]nabled|[Dd]isabled) for .*"
)


@dataclass(frozen=True, slots=True)
class Nic:
    """One port that NCCL may use."""

    index: int
    device: str
    port: int
    link: str
    """``IB`` or ``RoCE``."""
    sharp: bool = False
    rail: int | None = None
    plane: int | None = None

    @property
    def name(self) -> str:
        """``mlx5_0:1``, as NCCL_IB_HCA and the port's counters call it."""
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True)
class Adapters:
    """The line ``NET/IB : Using …`` of one process."""

    line: Line
    nics: tuple[Nic, ...]
    devices: tuple[tuple[str, ...], ...]
    """Ports of each network device that this line tells of, by its number."""
    merged: bool
    """Whether the line itself tells of devices that are several ports."""


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """A network device and the names of the ports in it; of every port one, and of those that were made one."""

    line: Line
    index: int
    names: tuple[str, ...]
    """Devices without their port's number."""
    count: int


@dataclass(frozen=True, slots=True)
class Interface:
    """An IP interface and what it was taken for."""

    line: Line
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """A line and the name in it: a network, a provider."""

    line: Line
    name: str
    nics: int | None = None
    """How many it found, where it says so."""


@dataclass(frozen=True, slots=True)
class DirectNote:
    """What NCCL says of GPU Direct RDMA between a GPU and a NIC, or for a NIC."""

    line: Line
    enabled: bool


@dataclass(slots=True)
class Networks:
    """One process's networks. Each list in the order of its lines."""

    adapters: list[Adapters] = field(default_factory=list)
    virtual: list[VirtualDevice] = field(default_factory=list)
    sockets: list[tuple[Interface, ...]] = field(default_factory=list)
    """``NET/Socket : Using``: by the number of the network device."""
    oob: list[Interface] = field(default_factory=list)
    """Over what NET/IB speaks before its connections stand: chosen as the bootstrap's interface is."""
    bootstrap: list[Interface] = field(default_factory=list)
    chosen: list[Chosen] = field(default_factory=list)
    """``Using network``, one for each communicator."""
    providers: list[Chosen] = field(default_factory=list)
    """libfabric's, of the AWS plugin: ``efa``; ``tcp`` is a fall-back to sockets."""
    direct: list[DirectNote] = field(default_factory=list)
    missing: list[Line] = field(default_factory=list)
    """``NET/IB : No device found.`` and plugins that could not be initialised."""

    def ports(self, network: str) -> dict[int, tuple[str, ...]]:
        """Ports (interfaces for Socket) of each network device, as far as the lines tell."""
        if network == "Socket":
            return {number: (nic.name,) for nics in self.sockets for number, nic in enumerate(nics)}
        if "Libfabric" in network:
            counts = {row.nics for row in self.providers}
            count = counts.pop() if len(counts) == 1 else None
            return {number: (f"nic {number}",) for number in range(count or 0)}
        tables = {row.devices: row for row in self.adapters}
        if len(tables) != 1:
            return {}  # none, or two that contradict
        (row,) = tables.values()
        devices = dict(enumerate(row.devices))
        return devices if row.merged else {**devices, **_made(row, self.virtual)}

    def available(self, network: str) -> tuple[str, ...]:
        """Every port that the network may use, those that are one device with others apart."""
        return tuple(dict.fromkeys(port for ports in self.ports(network).values() for port in ports))


def _made(row: Adapters, virtual: Iterable[VirtualDevice]) -> dict[int, tuple[str, ...]]:
    """Ports of devices that were made after the ports' own. One whose names do not fit stays unknown."""
    found = {}
    for made in virtual:
        if made.index < len(row.nics) or len(made.names) != made.count:
            continue
        wanted = Counter(made.names)
        ports = [nic for nic in row.nics if nic.device in wanted]
        if Counter(nic.device for nic in ports) == wanted:
            found[made.index] = tuple(nic.name for nic in ports)
    return found


def networks(lines: Iterable[Line]) -> dict[Process, Networks]:
    """What each process tells of networks. Raises EvidenceError for a line that tells of NICs and cannot be read."""
    found: dict[Process, Networks] = {}
    for line in lines:
        for begin, read in _READERS:
            if line.message.startswith(begin):
                read(line, found.setdefault(line.process, Networks()))
                break
    return found


def _strictly(line: Line, pattern: re.Pattern[str], of: str) -> re.Match[str]:
    match = pattern.fullmatch(line.message) if line.whole else None
    if match is None:
        raise line.wrong(f"tells of {of} in an unknown form, or is not whole")
    return match


def _read_adapters(line: Line, found: Networks) -> None:
    match = _strictly(line, _USING, "NICs")
    nics: list[Nic] = []
    devices = []
    merged = False
    for device in _DEVICE.finditer(match["nics"]):
        texts = [device[0]] if device["merged"] is None else device["merged"].split(", ")
        merged = merged or len(texts) > 1
        ports = [_nic(line, text) for text in texts]
        nics += ports
        devices.append(tuple(port.name for port in ports))
    if len({nic.index for nic in nics}) != len(nics):
        raise line.wrong("counts a NIC twice")
    found.adapters.append(Adapters(line, tuple(nics), tuple(devices), merged))
    if match["oob"]:
        found.oob.append(Interface(line, match["oob"], match["address"].split("<")[0]))


def _nic(line: Line, text: str) -> Nic:
    match = _NIC.fullmatch(text)
    if match is None:
        raise line.wrong(f"tells of a NIC in an unknown form: {text}")
    return Nic(
        index=int(match["index"]),
        device=match["device"],
        port=int(match["port"]),
        link=match["link"],
        sharp=match["sharp"] is not None,
        rail=int(match["rail"]) if match["rail"] else None,
        plane=int(match["plane"]) if match["plane"] else None,
    )


def _read_virtual(line: Line, found: Networks) -> None:
    match = _strictly(line, _VIRTUAL, "NICs")
    found.virtual.append(
        VirtualDevice(line, int(match["index"]), tuple(match["names"].split("+")), int(match["ndevs"]))
    )


def _read_sockets(line: Line, found: Networks) -> None:
    match = _strictly(line, _SOCKET, "interfaces")
    nics = (Interface(line, nic["name"], nic["address"]) for nic in _INTERFACE.finditer(match["nics"]))
    found.sockets.append(tuple(nics))


def _read_bootstrap(line: Line, found: Networks) -> None:
    match = _strictly(line, _BOOTSTRAP, "the bootstrap's interface")
    found.bootstrap.append(Interface(line, match["name"], match["address"]))


def _read_network(line: Line, found: Networks) -> None:
    found.chosen.append(Chosen(line, _strictly(line, _NETWORK, "the network")["name"]))


def _read_provider(line: Line, found: Networks) -> None:
    match = _strictly(line, _PROVIDER, "the provider")
    found.providers.append(Chosen(line, match["provider"], int(match["nics"])))


def _read_direct(line: Line, found: Networks) -> None:
    match = _DIRECT.fullmatch(line.message)
    if match is not None and line.whole:
        found.direct.append(DirectNote(line, match["state"].lower() == "enabled"))


def _read_missing(line: Line, found: Networks) -> None:
    found.missing.append(line)


_READERS: tuple[tuple[str, Callable[[Line, Networks], None]], ...] = (
    ("NET/IB : Using", _read_adapters),
    ("NET/IB : Made virtual device", _read_virtual),
    ("NET/IB : No device found", _read_missing),
    ("Failed to initialize NET plugin", _read_missing),
    ("NET/Socket : Using", _read_sockets),
    ("Bootstrap : Using", _read_bootstrap),
    ("Bootstrap: Using", _read_bootstrap),
    ("Using network ", _read_network),
    ("NET/OFI Selected ", _read_provider),
    ("GPU Direct RDMA", _read_direct),
    ("NET/", _read_direct),
)
"""How a message begins → who reads it; the first that fits."""
