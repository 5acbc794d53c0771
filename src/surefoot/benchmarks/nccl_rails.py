"""Whether every rail of every node is in use, both ways, from NCCL's log and the ports' counters. Pure.

A connection names a network device, ``NET/IB/2``, and that can be two ports made one (NCCL_IB_MERGE_NICS,
on since 2.20): then the log does not say that both carry. Bytes that each port has moved, read before and
after the job, are the second witness; where they are given, they must agree with the log. A device that a
rank uses through another rank's process (PXN) counts where that process is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surefoot.benchmarks.nccl_claims import Finding, finding, named, open_ends
from surefoot.benchmarks.nccl_log import NcclLog
from surefoot.benchmarks.nccl_log_lines import Line
from surefoot.benchmarks.nccl_log_links import Connection, Kind

LEAST_SHARE = 0.1
"""A port that moved less than this of what its node's busiest did is not in use: NCCL divides evenly."""
LEAST_OF_EVEN = 0.25
"""A port that moved less than this of an even division, over its node's rails, of what the job must have moved
through the node is not in use. No unit. 2p - 1 channels over p ports, the worst that is laid out evenly, give the
least used one more than a half of an even part; the other half is room."""
_CLAIM = "every rail of every node is in use, in both directions"


class PortBytes(NamedTuple):
    """What a port has sent and received so far. Bytes: counters ``port_xmit_data`` count four at a time."""

    sent: int
    received: int


@dataclass(frozen=True)
class Counters:
    """Ports' counters of one node before and after the job: ``mlx5_0:1`` → bytes."""

    before: Mapping[str, PortBytes]
    after: Mapping[str, PortBytes]

    def moved(self, port: str, *, sent: bool) -> int | None:
        """Bytes in between; None where it is not known: not read, or the counter was set back."""
        if port not in self.before or port not in self.after:
            return None
        before, after = self.before[port], self.after[port]
        difference = after.sent - before.sent if sent else after.received - before.received
        return None if difference < 0 else difference


@dataclass
class _Node:
    """What the log tells of one node's rails."""

    available: dict[str, Line] = field(default_factory=dict)
    used: dict[tuple[str, bool], Line] = field(default_factory=dict)
    """(port, whether it sends) → a connection over it alone."""
    shared: dict[tuple[str, bool], tuple[Line, str]] = field(default_factory=dict)
    """(port, whether it sends) → a connection over it and others, and over which device."""
    unknown: list[tuple[Line, bool]] = field(default_factory=list)
    """Connections over devices whose ports the log does not tell."""
    tcp: Line | None = None
    """A connection over sockets."""
    rdma: bool = False
    """Whether there is one over another network."""


@dataclass
class _Verdict:
    """What follows, over all nodes."""

    unused: list[tuple[str, Line | None]] = field(default_factory=list)
    open: list[tuple[str, Line | None]] = field(default_factory=list)
    shown: list[Line] = field(default_factory=list)
    ports: int = 0


def rails(
    log: NcclLog,
    *,
    expected: Mapping[str, Collection[str]] | None = None,
    counters: Mapping[str, Counters] | None = None,
    least_share: float = LEAST_SHARE,
    least: Mapping[str, PortBytes] | None = None,
    merged_as_one: bool = False,
) -> Finding:
    """Every rail is in use, per node and direction.

    `expected`: host → ports (``mlx5_0:1``; ``mlx5_0`` is its port 1) that carry; of a host that it does not
    name, and without it, all that NCCL had to choose from. `counters`: host → its ports' counters.
    `least`: host → bytes that the job must have moved through all its ports together; each is held to its part.
    `merged_as_one`: claim no more than the log can show of ports that NCCL made one NIC, and say so: that the NIC
    is in use.
    Host names up to the first dot.
    """
    wanted = {host.split(".")[0]: tuple(map(port_name, ports)) for host, ports in (expected or {}).items()}
    witnesses = {host.split(".")[0]: counted for host, counted in (counters or {}).items()}
    through = {host.split(".")[0]: amount for host, amount in (least or {}).items()}
    nodes = _nodes(log)
    hosts = sorted({*wanted, *(process.host for process in log.mine or log.processes)})
    shared: dict[str, Any] = {
        "expected": "; ".join(f"{host}: {named(wanted[host])}" for host in list(wanted)[:4])
        or "every port in `NET/IB : Using`",
        "derivation": "devices of `Channel … via NET/…`, their ports by `NET/IB : Using` and `Made virtual device`"
        + (f"; a port in use moves {least_share:.0%} or more of what its node's busiest does" if witnesses else "")
        + (
            f", and {LEAST_OF_EVEN:.0%} or more of an even part of what the collectives must move"
            if witnesses and through
            else ""
        ),
    }
    claim = _CLAIM + ("; ports that NCCL made one NIC count as one" if merged_as_one else "")
    if len(hosts) < 2 and not any(node.rdma or node.tcp for node in nodes.values()):
        shown = "no line of NCCL" if not hosts else "one node: nothing goes over its rails"
        return finding("rails", claim, None, shown=shown, lines=(), **shared)
    verdict, gaps = _Verdict(), open_ends(log)
    for host in hosts:
        node = nodes.get(host, _Node())
        judge = _Judge(host, node, witnesses.get(host), least_share, through.get(host), gaps, verdict, merged_as_one)
        judge.judge(wanted.get(host) or tuple(node.available))
    return _found(claim, verdict, hosts, gaps, shared)


def _found(claim: str, verdict: _Verdict, hosts: list[str], gaps: list[str], shared: dict[str, Any]) -> Finding:
    """The finding of a verdict."""
    rows = verdict.unused or verdict.open
    texts = [text for text, _ in verdict.unused + verdict.open] or gaps
    lines = [line for _, line in rows if line is not None] or verdict.shown
    if verdict.unused:
        action = (
            "on the named host: is the port up (`ibstat`), in NCCL_IB_HCA, on the same fabric as the other nodes' "
            "(NCCL_CROSS_NIC), near a GPU that is used? Name the ports that are to carry where others are for storage"
        )
        return finding("rails", claim, False, shown=_some(texts), lines=lines, next_action=action, **shared)
    if verdict.open or gaps:
        action = (
            "read the ports' counters before and after (port_xmit_data, port_rcv_data below /sys/class/infiniband), "
            "and log with NCCL_DEBUG_SUBSYS=INIT,NET so that devices made of several ports are named"
        )
        return finding("rails", claim, None, shown=_some(texts), lines=lines, next_action=action, **shared)
    shown = f"{verdict.ports} ports of {len(hosts)} nodes, sending and receiving"
    return finding("rails", claim, True, shown=shown, lines=verdict.shown, **shared)


def _some(texts: list[str], most: int = 6) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


def port_name(name: str) -> str:
    """``mlx5_0:1`` of ``mlx5_0``: a device without a port is its first."""
    return name if ":" in name or name.startswith("nic ") else f"{name}:1"


@dataclass
class _Judge:
    """Judges one node's rails, each way."""

    host: str
    node: _Node
    counters: Counters | None
    least_share: float
    through: PortBytes | None
    """What the job must have moved through the node."""
    gaps: list[str]
    """Why a line that is not there proves nothing."""
    verdict: _Verdict
    merged_as_one: bool

    def judge(self, wanted: Iterable[str]) -> None:
        node, verdict = self.node, self.verdict
        ports = tuple(dict.fromkeys(wanted))
        if node.tcp is not None and not node.rdma:
            verdict.unused.append((f"{self.host}: TCP sockets carry, no rail does", node.tcp))
            return
        if not ports or not node.rdma:
            missing = "its NICs" if not ports else "a connection of it over a network"
            verdict.open.append((f"{self.host}: no line tells of {missing}", next(iter(node.available.values()), None)))
            return
        verdict.ports += len(ports)
        for port in ports:
            if node.available and port not in node.available:
                line = next(iter(node.available.values()))
                verdict.unused.append((f"{self.host}: NCCL did not find {port}, only {named(node.available)}", line))
                continue
            for sends in (True, False):
                self._way(port, sends=sends, least=self._least(ports, sends=sends))

    def _least(self, ports: tuple[str, ...], *, sends: bool) -> float:
        """Bytes from which on a port is in use."""
        if self.counters is None:
            return 0.0
        least = max(1.0, self.least_share * max(self.counters.moved(port, sent=sends) or 0 for port in ports))
        if self.through is None:
            return least
        even = (self.through.sent if sends else self.through.received) / len(ports)
        return max(least, LEAST_OF_EVEN * even)

    def _all(self, *, sends: bool) -> str:
        """Bytes of each port whose counters are known."""
        names = sorted(self.counters.after) if self.counters is not None else []
        each = {name: self.counters.moved(name, sent=sends) for name in names} if self.counters is not None else {}
        return ", ".join(f"{name} {amount} B" for name, amount in each.items() if amount is not None)

    def _way(self, port: str, *, sends: bool, least: float) -> None:
        """One port in one direction: what the log says of it, and then what its counter says."""
        way = "sends" if sends else "receives"
        moved = self.counters.moved(port, sent=sends) if self.counters is not None else None
        alone, (shared, device) = self.node.used.get((port, sends)), self.node.shared.get((port, sends), (None, ""))
        unknown = next((line for line, direction in self.node.unknown if direction is sends), None)
        line = alone or shared or unknown
        if line is None:
            text = f"{self.host}: nothing {way} over {port}"
            if self.gaps:
                self.verdict.open.append(
                    (f"{text} that the log tells of ({self.gaps[0]})", self.node.available.get(port))
                )
            else:
                self.verdict.unused.append((text, self.node.available.get(port)))
        elif moved is not None and moved < least:
            text = f"{self.host}: {port} {way} {moved} B, and in use are those with {least:.0f} B or more"
            text += f" (in all: {self._all(sends=sends)})"
            self.verdict.unused.append((text, line))
        elif alone is not None or moved is not None or (shared is not None and self.merged_as_one):
            self.verdict.shown.append(line)
        elif shared is not None:
            self.verdict.open.append((f"{self.host}: {device}; the log does not say that {port} {way}", line))
        else:
            text = (
                f"{self.host}: the log does not tell of which ports a device is made, and {port} may be one that {way}"
            )
            self.verdict.open.append((text, line))


def available(log: NcclLog) -> dict[str, tuple[str, ...]]:
    """Host → ports that NCCL had to choose from there."""
    return {host: tuple(node.available) for host, node in _nodes(log).items()}


def _nodes(log: NcclLog) -> dict[str, _Node]:
    """What the log tells of each node's rails."""
    nodes: dict[str, _Node] = {}
    for process, found in log.networks.items():
        node = nodes.setdefault(process.host, _Node())
        for adapters in found.adapters:
            for nic in adapters.nics:
                node.available.setdefault(nic.name, adapters.line)
        for provider in found.providers:
            for port in found.available("Libfabric"):
                node.available.setdefault(port, provider.line)
    for link in log.connections:
        if link.kind in (Kind.NET, Kind.COLLNET):
            _count(log, link, nodes)
    return nodes


def _count(log: NcclLog, link: Connection, nodes: dict[str, _Node]) -> None:
    """Count one connection to the node that has the network device."""
    holders = {link.process} if link.proxy is None else set(log.holders(link, link.proxy))
    hosts = {process.host for process in holders} or {link.process.host}  # PXN stays within a node
    known = {
        log.networks[process].ports(link.how).get(link.device or 0) for process in holders if process in log.networks
    }
    ports = known.pop() if len(known) == 1 and len(hosts) == 1 else None
    for host in hosts:
        node = nodes.setdefault(host, _Node())
        if link.sockets:
            node.tcp = node.tcp or link.line
            continue
        node.rdma = True
        if ports is None:
            node.unknown.append((link.line, link.sends))
        elif len(ports) == 1 and link.kind is Kind.NET:
            node.used.setdefault((ports[0], link.sends), link.line)
        else:
            device = f"{link.kind}/{link.how}/{link.device} is {' and '.join(ports)} made one"
            if len(ports) == 1:
                device = f"{link.kind}/{link.how}/{link.device} is counted by its plugin"
            for port in ports:
                node.shared.setdefault((port, link.sends), (link.line, device))
