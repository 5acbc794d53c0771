"""Connections in NCCL's log: every form of every version is read, and a torn one is an error.

Where a form is from stands beside it: a public issue, a capture of ours, or NCCL's source ("from reading").
"""

from __future__ import annotations

import pytest

from nccl_written import golden, info
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_log_lines import Process, read_lines
from surefoot.benchmarks.nccl_log_links import Connection, Kind, connections
from surefoot.errors import EvidenceError


def only(message: str) -> Connection:
    (found,) = connections(read_lines({"log": info(message)}).lines)
    return found


@pytest.mark.parametrize(
    ("message", "way", "how"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM", "CUMEM"),  # 2.28.9, ours
        (
            "Channel 04/0 : 0[0] -> 7[7] via P2P/CUMEM/read",
            "P2P/CUMEM",
            "CUMEM/read",
        ),  # NVIDIA/nccl#1538, /read from reading
        ("Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer/read", "P2P/direct", "direct/read"),  # NVIDIA/nccl#1412
        ("Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read", "P2P/IPC", "IPC/read"),  # NVIDIA/nccl#952
        ("Channel 01 : 1[a000] -> 0[7000] via P2P/IPC/read", "P2P/IPC", "IPC/read"),  # NVIDIA/nccl#687
        ("Channel 00/0 : 4[0] -> 3[3] via P2P/MNNVL", "P2P/MNNVL", "MNNVL"),  # from reading
        ("Channel 00/0 : 4[0] -> 3[3] via P2P/CUMEM/CE", "P2P/CUMEM", "CUMEM/CE"),  # from reading
        ("Channel 00 : 0[1b000] -> 5[8a000] via P2P/indirect/4[89000]", "P2P/indirect", "indirect/4"),  # from reading
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM/direct", "direct/direct"),  # ours
        ("Channel 20 : 5[5] -> 4[4] via SHM/direct/direct", "SHM/direct", "direct/direct"),  # NVIDIA/nccl-tests#166
        ("Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", "SHM/CE", "CE/direct"),  # from reading
        (
            "Channel 07/0 : 1[e000] -> 0[b000] via P2P/direct pointer comm 0x56af43b3a4e0 nRanks 04",
            "P2P/direct",
            "direct",
        ),  # RCCL
    ],
)
def test_within_a_node_the_sender_tells(message: str, way: str, how: str) -> None:
    found = only(message)
    assert (found.way, found.how, found.sends, found.device, found.gdr) == (way, how, True, None, "")
    assert (found.own, found.peer) == tuple(int(part.split("[")[0]) for part in message.split(" : ")[1].split(" -> "))


@pytest.mark.parametrize(
    ("message", "how", "device", "proxy", "gdr", "shared"),
    [
        ("Channel 00/0 : 1[3b000] -> 0[3b000] [receive] via NET/IB/1", "IB", 1, None, "", False),
        ("Channel 01 : 3[4a000] -> 6[44000] [send] via NET/IB/0/GDRDMA", "IB", 0, None, "GDRDMA", False),  # NVIDIA/nccl#687
        ("Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3", "IB", 3, None, "", False),  # NVIDIA/nccl#1412
        ("Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2", "IBext_v8", 2, None, "", False),  # NVIDIA/nccl#1814
        ("Channel 03/1 : 17[1] -> 3[3] [send] via NET/IB/3(19)/GDRDMA/Shared", "IB", 3, 19, "GDRDMA", True),
        ("Channel 01/1 : 4[0] -> 0[0] [receive] via NET/AWS Libfabric/7/GDRDMA/Shared", "AWS Libfabric", 7, None, "GDRDMA", True),
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/NCCL RDMA Plugin v10/0", "NCCL RDMA Plugin v10", 0, None, "", False),
        ("Channel 07/0 : 15[7] -> 6[6] [send] via NET/Socket/3", "Socket", 3, None, "", False),  # NVIDIA/nccl#952
        ("Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/2/GDRDMA(PCI)", "IB", 2, None, "GDRDMA(PCI)", False),  # from reading
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/2/GDRDMA comm 0x9bbf3b0 nRanks 4096", "AWS Libfabric", 2, None, "GDRDMA", False),  # RCCL
    ],
)  # fmt: skip
def test_between_nodes_both_ends_tell_over_which_device(
    message: str, how: str, device: int, proxy: int | None, gdr: str, *, shared: bool
) -> None:
    found = only(message)
    assert (found.kind, found.how, found.device, found.proxy, found.gdr, found.shared) == (
        Kind.NET, how, device, proxy, gdr, shared,
    )  # fmt: skip
    ends = [int(part.split("[")[0]) for part in message.split(" : ")[1].split(" -> ")]
    assert [found.own, found.peer] == (ends if found.sends else ends[::-1])
    assert found.sends is ("[send]" in message)
    assert found.sockets is (how == "Socket")


def test_a_network_that_reduces_is_a_connection_too() -> None:
    found = only("CollNet 00/0 : 6 [receive] via COLLNET/SHARP/1/GDRDMA")
    assert (found.kind, found.own, found.peer, found.device, found.gdr) == (Kind.COLLNET, 6, None, 1, "GDRDMA")
    assert only("Coll 00 : 2 [send] via COLLNET/SHARP/0").sends


@pytest.mark.parametrize("message", ["Channel 00/24 : 0 1", "Channel 00/02 :    0   1   2", "Channel 12/16 :"])
def test_the_order_of_ranks_in_a_channel_is_no_connection(message: str) -> None:
    assert connections(read_lines({"log": info(message)}).lines) == ()


@pytest.mark.parametrize(
    ("name", "count", "way"),
    [("p2p.out", 48, "P2P/CUMEM"), ("shm.out", 8, "SHM/direct"), ("socket.out", 8, "NET/Socket"), ("stamps.out", 48, "P2P/CUMEM"), ("default.out", 48, "P2P/CUMEM"), ("nccl-tests-shm.log", 8, "SHM/direct")],
)  # fmt: skip
def test_captures_give_every_connection(name: str, count: int, way: str) -> None:
    found = read_log(golden(name)).connections
    assert {link.way for link in found} == {way}
    assert len(found) == count == sum(" via " in row for row in golden(name)[name].split("\n"))


def test_one_file_a_process_gives_what_one_file_of_all_gives() -> None:
    names = ("files/nccl.vm.639", "files/nccl.vm.643")
    log = read_log(golden(*names))
    assert {link.process for link in log.connections} == {Process("vm", 639), Process("vm", 643)}
    assert len(log.connections) == 48
    assert {member.rank for group in log.groups.values() for member in group} == {0, 1}


@pytest.mark.parametrize(
    "text",
    [
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> vm:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEMvm:2:2 [1] NCCL INFO Trees [0] 1\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via \n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CU\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via NET/IB/\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via NET/IB/0\n",  # a network says which end this is
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via P2P/IPC\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 0[0] via P2P/IPC\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/12/GDRDMA",  # what follows is not there
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/1/GDR\n",
        "vm:1:1 [0] NCCL INFO CollNet 00/0 : 0 [receive] via COLLNET/\n",
        "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via WARP/9\n",
    ],
)
def test_a_torn_or_unknown_connection_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(EvidenceError, match="log:1: tells of a connection"):
        read_log({"log": text})
