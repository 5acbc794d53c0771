"""Ranks in NCCL's log: who they are, which communicator they are of, and whether they completed."""

from __future__ import annotations

import pytest

from nccl_written import golden, info
from surefoot.benchmarks.nccl_log import WHOLE_JOB, read_log
from surefoot.benchmarks.nccl_log_lines import read_lines
from surefoot.benchmarks.nccl_log_ranks import Member, members
from surefoot.errors import EvidenceError


def found(*messages: str) -> tuple[Member, ...]:
    return members(read_lines({"log": "".join(map(info, messages))}).lines)


@pytest.mark.parametrize(
    ("message", "nvml", "group"),
    [
        # 2.14, 2.15, from reading; 2.10: ROCm/rccl#419
        ("comm 0x2ac764000c00 rank 3 nranks 4 cudaDev 3 busId 63000 - Init COMPLETE", None, None),
        ("comm 0x2ac764000c00 rank 3 nranks 4 cudaDev 3 busId 63000 used 67129296 bytes - Init COMPLETE", None, None),
        ("comm 0x7f1 rank 3 nranks 4 cudaDev 3 busId 63000 commId 0xab - Init COMPLETE", None, "0xab"),  # 2.16, reading
        ("comm 0x7f1 rank 3 nranks 4 cudaDev 3 nvmlDev 5 busId 63000 commId 0xab - Init COMPLETE", 5, "0xab"),  # 2.18
        # 2.21: in a public log of Ubuntu; 2.28.9: ours
        ("ncclCommInitRank comm 0x564300ddbb50 rank 3 nranks 4 cudaDev 3 nvmlDev 5 busId 63000 commId 0x506d - Init COMPLETE", 5, "0x506d"),
        ("ncclCommInitRankConfig comm 0xaf rank 3 nranks 4 cudaDev 3 nvmlDev 5 busId 63000 commId 0xab - Init COMPLETE", 5, "0xab"),
        ("ncclCommSplit comm 0x5 rank 3 nranks 4 cudaDev 3 nvmlDev 5 busId 63000 parent 0x5951 color 16 key 0 commId 0x5a - Init COMPLETE", 5, "0x5a"),  # NVIDIA/nccl#1605
    ],
)  # fmt: skip
def test_every_form_of_a_rank_is_read(message: str, nvml: int | None, group: str | None) -> None:
    (member,) = found(message)
    assert (member.rank, member.nranks, member.cuda_device, member.bus_id) == (3, 4, 3, "63000")
    assert (member.nvml_device, member.group, member.started) == (nvml, group, None)
    assert member.completed is not None
    assert member.completed.number == 1


def test_real_ranks_are_started_completed_and_timed() -> None:
    log = read_log(golden("p2p.out"))
    one, zero = log.members
    assert [(m.rank, m.nranks, m.cuda_device, m.bus_id, m.nodes, m.local_ranks) for m in (zero, one)] == [
        (0, 2, 0, "60", 1, 2),
        (1, 2, 1, "70", 1, 2),
    ]
    assert zero.group == one.group == "0x9e990476e975e584"
    assert all(m.started is not None and m.completed is not None for m in log.members)
    assert one.init_s["total"] == 0.94
    assert {"kernels", "bootstrap", "topo", "graphs", "connections", "rest"} <= set(one.init_s)
    assert one.bootstrap_s["recv"] > 100 * zero.bootstrap_s["recv"]  # it was there first, and waited for the other


def test_a_group_split_off_another_is_found_by_parent_count_and_color() -> None:
    log = read_log(golden("split.out"))
    assert [(len(group), group[0].nranks, group[0].split) for group in log.groups.values()] == [
        (2, 2, False),
        (1, 1, True),
        (1, 1, True),
        (2, 2, True),
    ]
    assert [member.rank for member in list(log.groups.values())[-1]] == [0, 1]


def test_a_group_whose_parent_is_unknown_is_of_nobody() -> None:
    # 2.27: in a public log of an EFA cluster; NCCL leaves no blank before the dash
    message = (
        "ncclCommSplit comm 0x556d rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 101d0 parent 0x4b7460 splitCount 1 "
        "color 2003953581 key 0- Init START"
    )
    (member,) = found(message)
    assert (member.group, member.split, member.completed) == (None, True, None)


def test_a_rank_that_starts_and_is_refused_did_not_complete() -> None:
    log = read_log(golden("same.out"))
    assert [(m.rank, m.completed) for m in log.members] == [(0, None), (1, None)]
    assert {m.bus_id for m in log.members} == {"60"}


def test_a_handle_that_comes_back_is_another_communicators() -> None:
    base = "comm 0x7f rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId "
    first, second = found(
        f"{base}0xa - Init START", f"{base}0xa - Init COMPLETE",
        "comm 0x7f rank 0 nranks 2 cudaDev 0 busId 60 - Destroy COMPLETE", f"{base}0xb - Init START",
    )  # fmt: skip
    assert (first.group, first.completed is not None, second.group, second.completed) == ("0xa", True, "0xb", None)


def test_communicators_of_one_process_that_start_together_complete_each_for_itself() -> None:
    first, second = (
        f"comm 0x{handle} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x{handle}" for handle in "ab"
    )
    one, other = found(f"{first} - Init START", f"{second} - Init START", f"{first} - Init COMPLETE")
    assert (one.group, one.completed is not None) == ("0xa", True)
    assert (other.group, other.completed) == ("0xb", None)


@pytest.mark.parametrize(
    ("message", "total"),
    [
        # 2.21 and 2.28
        ("Init timings: rank 0 nranks 2 total 0.11 (kernels 0.08, bootstrap 0.03, allgathers 0.00, topo 0.00, graphs 0.00, connections 0.00, rest 0.00)", 0.11),
        ("Init timings - ncclCommInitRank: rank 0 nranks 2 total 0.49 (kernels 0.12, alloc 0.01, rest -0.00)", 0.49),
    ],
)  # fmt: skip
def test_timings_belong_to_the_rank_that_completed(message: str, total: float) -> None:
    base = "comm 0x7f rank {} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xa - Init COMPLETE"
    zero, one = found(base.format(0), base.format(1), message)
    assert (zero.init_s["total"], one.init_s) == (total, {})


def test_ranks_without_an_identity_are_one_communicator_where_only_one_is_possible() -> None:
    line = "comm 0x7f rank {0} nranks 2 cudaDev {0} busId {0}a000 - Init COMPLETE"
    two = "".join(info(line.format(rank), pid=rank + 1) for rank in range(2))
    assert {name: len(group) for name, group in read_log({"log": two}).groups.items()} == {WHOLE_JOB: 2}
    again = two + info(line.format(0), pid=1)  # a second communicator of the same process: which is of which?
    assert read_log({"log": again}).groups == {}


@pytest.mark.parametrize(
    "message",
    [
        "ncclCommInitRank comm 0x56 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x50 - Init COMPL",
        "ncclCommInitRank comm 0x56 rank 0 nranks 2 cudaDev 0 nvm",
        "comm 0x56 rank 0 nranks 2 cudaDev 0 busId 60 wonder 3 - Init COMPLETE",
        "Init timings - ncclCommInitRank: rank 0 nranks 2 tot",
        "Bootstrap timings total 0.04 (create 0.0",
    ],
)
def test_a_torn_line_about_a_rank_is_an_error(message: str) -> None:
    with pytest.raises(EvidenceError, match="log:1: tells of "):
        found(message)


def test_a_rank_beyond_its_communicator_is_an_error() -> None:
    with pytest.raises(EvidenceError, match="does not have"):
        read_log({"log": info("comm 0x7f rank 2 nranks 2 cudaDev 0 busId 60 - Init COMPLETE")})
