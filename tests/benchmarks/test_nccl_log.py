"""NCCL's log: every connection is read, whoever's lines stand between, and a torn line is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.benchmarks.nccl_log import links, links_by_process
from surefoot.errors import EvidenceError

GOLDEN = Path(__file__).parents[1] / "golden" / "nccl_log"


def test_two_h200_of_one_host_are_connected_by_p2p() -> None:
    found = links((GOLDEN / "h200-x2" / "collectives.out").read_text(), "log")
    assert {link.transport for link in found} == {"P2P/CUMEM"}
    assert {process: len(rows) for process, rows in links_by_process(found).items()} == {("vm", 657): 4, ("vm", 658): 4}


@pytest.mark.parametrize(
    ("way", "transport", "sockets"),
    [
        ("0[0] -> 1[1] via P2P/IPC", "P2P/IPC", False),
        ("0[0] -> 1[1] via SHM/direct/direct", "SHM/direct", False),
        ("0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", "NET/IB", False),
        ("8[0] -> 0[0] [receive] via NET/IB/0(3)/GDRDMA/Shared", "NET/IB", False),
        ("47[7] -> 39[7] [receive] via NET/IBext_v8/2", "NET/IBext_v8", False),
        ("2[c7000] -> 0[87000] [send] via NET/Socket/0", "NET/Socket", True),
        ("0[0] -> 1[1] via P2P/direct pointer", "P2P/direct", False),
    ],
)
@pytest.mark.parametrize("channel", ["00/0", "00"])
def test_every_form_of_a_connection_is_read(way: str, transport: str, sockets: bool, channel: str) -> None:
    (link,) = links(f"other line\nnode-b:12:34 [0] NCCL INFO Channel {channel} : {way}\n", "log")
    assert (link.line, link.host, link.pid, link.transport, link.sockets) == (2, "node-b", 12, transport, sockets)


@pytest.mark.parametrize(
    "line",
    [
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> vm:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via ",
        "[0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    ],
)
def test_a_torn_line_is_an_error_with_its_number(line: str) -> None:
    with pytest.raises(EvidenceError, match="log:1: tells of a connection"):
        links(f"{line}\n", "log")
