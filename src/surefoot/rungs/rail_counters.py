"""Counters of RDMA ports as the second witness of NCCL's log: read from the ranks' reports, and errors that rose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.benchmarks.nccl_rails import Counters, PortBytes
from surefoot.errors import EvidenceError
from surefoot.hardware.port_counters import ERRORS, PortReadings, Told, told
from surefoot.model.base import Record
from surefoot.model.check import Check
from surefoot.rungs.base import View
from surefoot.rungs.judging import Said, decide, shorten, unproved

MISSING = Told(silent=("not among the ports that were read",))


class Ports(Record):
    """Part of a rank's data."""

    ports: PortReadings | None = None
    """Of the node's first rank, in jobs on several nodes; None else, and in evidence of older versions."""


@dataclass(frozen=True)
class Witness:
    """What the counters of all nodes tell. Hosts up to the first dot."""

    told: Mapping[str, Mapping[str, Told]] = field(default_factory=dict)
    """host → port → what its two readings tell."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """host → why nothing was read there."""
    files: Mapping[str, str] = field(default_factory=dict)
    """host → the report that says so."""

    @property
    def counters(self) -> dict[str, Counters]:
        """For `surefoot.benchmarks.nccl_rails.rails`: of ports whose two directions are both known."""
        moved = {
            host: {
                name: PortBytes(port.sent, port.received)
                for name, port in ports.items()
                if port.sent is not None and port.received is not None
            }
            for host, ports in self.told.items()
        }
        return {host: Counters(dict.fromkeys(ports, PortBytes(0, 0)), ports) for host, ports in moved.items() if ports}

    def gaps(self, wanted: Mapping[str, Collection[str]]) -> list[str]:
        """Why the log stands alone, by host and port, of the ports that are `wanted`."""
        found = [f"{host}: counters not read {why}" for host, why in self.unread.items()]
        for host, ports in self.told.items():
            for name in wanted.get(host, ()):
                port = ports.get(name, MISSING)
                if port.sent is None or port.received is None:
                    found.append(f"{host}: {name}: {', '.join(port.silent)}")
        return found


def witness(ranks: Sequence[Said[Any]], asked: bool) -> Witness | None:
    """None where counters were not `asked` for. Raises EvidenceError where a node's first rank left none."""
    if not asked:
        return None
    found: dict[str, Mapping[str, Told]] = {}
    unread: dict[str, str] = {}
    files: dict[str, str] = {}
    whole: dict[str, str] = {}
    for rank in ranks:
        if rank.report.local_rank != 0:
            continue
        readings: PortReadings | None = rank.data.ports
        if readings is None:
            raise EvidenceError("holds no counters of RDMA ports, read or not", file=rank.file)
        host = rank.report.host.split(".")[0]
        files[host] = rank.file
        ports, why = told(readings)
        if whole.setdefault(host, rank.report.host) != rank.report.host:  # NCCL's log does not tell them apart
            why = f"of one host: {whole[host]} and {rank.report.host} are both {host} up to the first dot"
            found.pop(host, None)
        if why:
            unread[host] = why
        elif host not in unread:
            found[host] = ports
    return Witness(found, unread, files)


def errors_check(prefix: str, seen: Witness, wanted: Mapping[str, Collection[str]], view: View) -> list[Check]:
    """That no error counter of a rail rose while the collectives ran; no claim where no node shows any counter.

    `wanted`: host → its rails.
    """
    rose, silent, counted = [], [f"{host}: counters not read {why}" for host, why in seen.unread.items()], 0
    for host, ports in seen.told.items():
        for name in wanted.get(host, ()):
            port = ports.get(name, MISSING)
            rose += [f"{host}: {name} {error} rose by {amount}" for error, amount in port.errors.items()]
            silent += [f"{host}: {name} {why}" for why in port.silent]
            counted += port.told
    if not counted:
        return []
    claim = "no error counter of a rail rose while the collectives ran"
    shared: dict[str, Any] = {
        "expected": 0,
        "evidence": tuple(view.evidence.ref(file, text=host) for host, file in seen.files.items()),
        "derivation": f"{', '.join(ERRORS)} below each port's counters, after less before",
    }
    if silent and not rose:
        action = "read the counters on that host (`perfquery`, /sys/class/infiniband/*/ports/*/counters); those at their end are set back with `perfquery -R`"
        return [unproved(f"{prefix}.rail_errors", claim, actual=shorten(silent), next_action=action, **shared)]
    action = "cable, transceiver or port of that rail: `ibdiagnet`, `mlxlink -d DEVICE -c`, the switch's counters of the other end"
    ok = f"0 on {counted} ports"
    return [decide(f"{prefix}.rail_errors", claim, not rose, actual=shorten(rose) or ok, next_action=action, **shared)]
