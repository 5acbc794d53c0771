"""Two readings of counters: bytes in units of four octets, errors that rose, and never a figure from what does not tell."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from surefoot.hardware.port_counters import PortReadings, Told, told

ZERO = {"port_xmit_data": 0, "port_rcv_data": 0, "symbol_error": 0}


def one(before: dict[str, int] | None, after: dict[str, int] | None) -> Told:
    def reading(counters: dict[str, int] | None) -> dict[str, Any]:
        port = {"value": counters} if counters is not None else {"value": None, "unknown": "PermissionError"}
        return {"value": {"mlx5_0:1": port}}

    ports, why = told(PortReadings.model_validate({"before": reading(before), "after": reading(after)}))
    assert why == ""
    return ports["mlx5_0:1"]


def test_data_counters_are_units_of_four_octets() -> None:
    found = one({**ZERO, "port_xmit_data": 10}, {**ZERO, "port_xmit_data": 260, "port_rcv_data": 1})
    assert (found.sent, found.received, found.errors, found.silent) == (1000, 4, {}, ())


def test_errors_that_rose_are_named_and_old_ones_are_not() -> None:
    before = {**ZERO, "symbol_error": 5, "link_downed": 2, "port_xmit_wait": 1}
    found = one(before, {**before, "symbol_error": 9, "port_xmit_wait": 99})
    assert found.errors == {"symbol_error": 4}


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (900, 100, "went back from 900 to 100"),
        (2**32 - 1, 2**32 - 1, "stands at its end"),
        (5, 2**32 - 1, "stands at its end"),
        (2**64 - 9, 20, "went back"),
    ],
)
def test_a_data_counter_that_went_back_or_stands_at_its_end_gives_no_bytes(before: int, after: int, word: str) -> None:
    found = one({**ZERO, "port_xmit_data": before}, {**ZERO, "port_xmit_data": after})
    assert (found.sent, found.received) == (None, 0)
    assert word in found.silent[0]


def test_an_error_counter_that_was_set_back_or_can_count_no_more_is_told_of() -> None:
    assert one({**ZERO, "symbol_error": 7}, ZERO).silent[0].startswith("symbol_error went back")
    full = {**ZERO, "link_downed": 255}
    assert one(full, full).silent == ("link_downed stands at its end (255)",)
    assert one({**ZERO, "link_downed": 250}, full).errors == {"link_downed": 5}


def test_counters_that_are_not_there_tell_nothing() -> None:
    assert one(ZERO, None).silent == ("not read after: PermissionError",)
    assert not one(None, ZERO).told
    bare = one({"port_rcv_data": 0, "symbol_error": 0}, {"port_rcv_data": 8, "symbol_error": 0})
    assert (bare.sent, bare.silent) == (None, ("port_xmit_data is not there",))
    data = {"port_xmit_data": 0, "port_rcv_data": 0}
    assert one(data, data).silent == ("no error counter",)


def test_a_node_that_could_not_be_read_says_when_and_why() -> None:
    unread = {"value": None, "unknown": "LookupError: no port"}
    readings = PortReadings.model_validate({"before": unread, "after": {"value": {}}})
    assert told(readings) == ({}, "before: LookupError: no port")


def test_a_counter_below_zero_is_no_reading() -> None:
    with pytest.raises(ValidationError):
        one({**ZERO, "port_xmit_data": -5000}, {**ZERO, "port_xmit_data": 10})
