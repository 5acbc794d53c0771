"""What else NCCL's log tells: versions, channels, algorithms, settings, trouble."""

from __future__ import annotations

import pytest

from nccl_written import golden, info
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.benchmarks.nccl_log_notes import Notes, Trouble


def noted(*messages: str) -> Notes:
    return read_log({"log": "".join(map(info, messages))}).notes


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (info("NCCL version 2.28.9+cuda13.0"), "2.28.9"),
        ("NCCL version 2.14.3+cuda11.7\n", "2.14.3"),  # before 2.23, and with NCCL_DEBUG=VERSION: no process
        ("[1,0]<stdout>:NCCL version 2.12.7+cuda11.4\n", "2.12.7"),
        ("# nccl-tests version 2.19.6 nccl-headers=22809\n", None),
        ("NCCL error in: x.cpp, NCCL version 2.28.9\n", None),  # what PyTorch was built with
    ],
)
def test_the_version_is_read_with_and_without_a_process(text: str, version: str | None) -> None:
    assert read_log({"log": text}).versions == (frozenset() if version is None else {version})


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ("4 coll channels, 2 p2p channels, 2 p2p channels per peer", {"coll": 4, "p2p": 2, "p2p per peer": 2}),  # ROCm/rccl#419
        ("2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer", {"coll": 2, "nvls": 0, "p2p": 2, "p2p per peer": 2}),  # NVIDIA/nccl-tests#188
        ("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer", {"coll": 24, "collnet": 24, "nvls": 0, "p2p": 32, "p2p per peer": 32}),
    ],
)  # fmt: skip
def test_channels_are_counted_by_what_they_are_for(message: str, counts: dict[str, int]) -> None:
    assert [found for _, found in noted(message).channels] == [counts]


def test_rings_say_whether_they_use_pxn_and_direct_access_where_the_version_does() -> None:
    found = noted("Connected all rings", "Connected all rings, use ring PXN 1 GDR 0", "Connected all trees")
    assert [(ring.pxn, ring.gdr) for ring in found.rings] == [(None, None), (True, False)]
    assert len(found.trees) == 1


def test_algorithms_of_a_real_sweep_are_each_told_once() -> None:
    choices = read_log(golden("nccl-tests-shm.log")).notes.choices
    assert {(choice.collective, choice.algorithm) for choice in choices} == {("AllGather", "RING")}
    assert {choice.protocol for choice in choices} >= {"LL", "SIMPLE"}
    assert len({choice.size_bytes for choice in choices}) == len(choices) > 20
    assert max(choice.channels or 0 for choice in choices) == 4


def test_an_algorithm_of_an_older_version_is_a_number() -> None:
    (choice,) = noted("AllReduce: 4096 Bytes -> Algo 1 proto 2 time 12.300000").choices  # from reading
    assert (choice.algorithm, choice.protocol, choice.channels) == ("1", "2", None)


def test_the_search_says_what_lies_between_gpus() -> None:
    found = {name: read_log(golden(name)).notes.searches for name in ("p2p.out", "shm.out", "hosts.out")}
    assert {search.inside for search in found["p2p.out"]} == {"NVL"}
    assert {search.inside for search in found["shm.out"]} == {"PHB"}
    assert {search.between for search in found["hosts.out"]} == {"PHB"}


def test_settings_that_nccl_heeds_are_known_by_process() -> None:
    settings = read_log(golden("nointerface.out")).notes.settings
    assert settings[Process("vm", 629)]["NCCL_SOCKET_IFNAME"] == "nope0"
    assert noted("NCCL_IB_DISABLE set by environment to 1.").settings[Process("n1", 7)] == {"NCCL_IB_DISABLE": "1"}


def test_buffers_for_nvlink_sharp_are_seen() -> None:
    line = "NVLS comm 0x7f1 headRank 0 nHeads 8 nvlsRanks 8 buffSize 1048576 nvlsPerRankSize 33554432 nvlsTotalSize 268435456"
    assert len(noted(line).nvls) == 1  # from reading


@pytest.mark.parametrize(
    ("row", "trouble"),
    [
        ("n1:7:9 [0] transport/net_ib.cc:818 NCCL WARN NET/IB : Got completion with error 4, opcode 8983, len 0, vendor err 81", Trouble.COMPLETION),  # NVIDIA/nccl#707
        ("n1:7:9 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:29.87.88.182 remoteGids::ffff:29.87.4.221", Trouble.COMPLETION),  # NVIDIA/nccl#1814
        ("n1:7:9 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort", Trouble.CONNECT),  # NVIDIA/nccl-tests#166
        ("n1:7:9 [0] NCCL INFO Call to connect returned Connection refused, retrying", Trouble.CONNECT),  # wenet-e2e/wenet#959
        ("n1:7:9 [0] NCCL INFO socketPollConnect: connect returned Connection timed out, retrying (1/34) after sleep for 100 msec", Trouble.CONNECT),  # NVIDIA/nccl#1618
        ("n1:7:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", Trouble.INTERFACE),
        ("n1:7:9 [0] init.cc:904 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", Trouble.OTHER),
    ],
)  # fmt: skip
def test_trouble_is_told_apart_with_its_place(row: str, trouble: Trouble) -> None:
    (warned,) = read_log({"log": f"\n{row}\n"}).notes.warnings
    assert (warned.trouble, warned.line.number) == (trouble, 2)
    assert warned.shown.startswith("n1: ")


def test_a_real_interface_that_is_not_there_and_a_gpu_used_twice_are_named() -> None:
    (warned,) = read_log(golden("nointerface.out")).notes.warnings
    assert (warned.trouble, warned.shown) == (
        Trouble.INTERFACE,
        "vm: bootstrap.cc:114: Bootstrap : no socket interface found",
    )
    assert "Duplicate GPU" in read_log(golden("same.out")).notes.warnings[0].shown
