"""What two readings of an RDMA port's counters tell: bytes that it moved, and errors that it counted. Pure.

Counters of the port's management agent stop at their last value and do not begin anew (InfiniBand
Architecture, PortCounters); a driver that has wider ones shows those under the same names. So a counter
that stands at an end does not tell what came after, and one that went back was set back in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import NonNegativeInt

from surefoot.hardware.fact import Known
from surefoot.model.base import Record

OCTETS = 4
"""Bytes for each unit of the data counters: sysfs-class-infiniband, "data octets, divided by 4 (lanes)"."""
SENT, RECEIVED = "port_xmit_data", "port_rcv_data"
WIDTHS = {
    SENT: 32, RECEIVED: 32, "symbol_error": 16, "link_error_recovery": 8, "link_downed": 8, "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16, "port_xmit_discards": 16, "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8, "local_link_integrity_errors": 4, "excessive_buffer_overrun_errors": 4,
}  # fmt: skip
"""Bits of each in PortCounters (IBTA 16.1.3.5; drivers/infiniband/core/sysfs.c): where the narrow ones stop."""
ERRORS = tuple(name for name in WIDTHS if name not in (SENT, RECEIVED))
"""Those that do not rise on a sound link. Not among them: what congestion or others' packets raise
(``port_xmit_wait``, ``VL15_dropped``, ``port_rcv_switch_relay_errors``)."""

Reading = Known[dict[str, Known[dict[str, NonNegativeInt]]]]
"""One node's ports → their counters."""


class PortReadings(Record):
    """What a node's first rank read before and after the collectives."""

    before: Reading
    after: Reading


class Told(Record):
    """What a port's two readings tell."""

    sent: int | None = None
    """Bytes; None where they do not tell."""
    received: int | None = None
    errors: dict[str, int] = {}
    """Error counters that rose, and by how much."""
    silent: tuple[str, ...] = ()
    """What they do not tell, and why."""

    @property
    def told(self) -> bool:
        """Whether they tell anything."""
        return self.sent is not None or self.received is not None or bool(self.errors)


def told(readings: PortReadings, ports: Collection[str] | None = None) -> tuple[dict[str, Told], str]:
    """Port → what its readings tell, of `ports`, or all that were read; and why nothing was read, else empty."""
    for when, reading in (("before", readings.before), ("after", readings.after)):
        if reading.value is None:
            return {}, f"{when}: {reading.unknown}"
    before, after = readings.before.value or {}, readings.after.value or {}
    names = sorted({*before, *after}) if ports is None else list(ports)
    return {name: _port(before.get(name), after.get(name)) for name in names}, ""


def _port(before: Known[dict[str, int]] | None, after: Known[dict[str, int]] | None) -> Told:
    for when, counted in (("before", before), ("after", after)):
        if counted is None or counted.value is None:
            return Told(silent=(f"not read {when}: {counted.unknown if counted else 'no such port'}",))
    assert before is not None
    assert after is not None
    rose, silent = {}, []
    for name in WIDTHS:
        amount = _rise(name, before.value or {}, after.value or {})
        if isinstance(amount, int):
            rose[name] = amount
        elif name in (SENT, RECEIVED) or amount != _ABSENT:
            silent.append(f"{name} {amount}")
    return Told(
        sent=rose[SENT] * OCTETS if SENT in rose else None,
        received=rose[RECEIVED] * OCTETS if RECEIVED in rose else None,
        errors={name: rose[name] for name in ERRORS if rose.get(name)},
        silent=tuple(silent) if any(name in rose for name in ERRORS) else (*silent, "no error counter"),
    )


_ABSENT = "is not there"


def _rise(name: str, before: Mapping[str, int], after: Mapping[str, int]) -> int | str:
    """By how much a counter rose, or why that is not known."""
    if name not in before or name not in after:
        return _ABSENT
    end = 2 ** WIDTHS[name] - 1
    if after[name] == end and (before[name] == end or name in (SENT, RECEIVED)):
        return f"stands at its end ({end})"
    if after[name] < before[name]:
        return f"went back from {before[name]} to {after[name]}: it was set back or began anew"
    return after[name] - before[name]
