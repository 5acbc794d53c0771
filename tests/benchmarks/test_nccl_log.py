"""NCCL's log as a whole: lines must agree with each other, and what the log should tell and does not is said."""

from __future__ import annotations

import pytest

from nccl_written import GOLDEN, Job, golden, info
from surefoot.benchmarks.nccl_log import NcclLog, by_process, read_log
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.errors import EvidenceError


def read(text: str) -> NcclLog:
    return read_log({"log": text})


def test_two_h200_of_one_host_are_connected_by_p2p() -> None:
    log = read((GOLDEN / "h200-x2" / "collectives.out").read_text())
    assert {link.way for link in log.connections} == {"P2P/CUMEM"}
    assert {process: len(rows) for process, rows in by_process(log.connections).items()} == {
        ("vm", 657): 4,
        ("vm", 658): 4,
    }
    assert log.gaps() == ()


@pytest.mark.parametrize("text", ["", "nothing of NCCL\n", "\n\n"])
def test_no_line_is_no_fact(text: str) -> None:
    log = read(text)
    assert (log.processes, log.members, log.connections, log.networks, log.versions) == ({}, (), (), {}, frozenset())


def test_a_peer_is_found_by_the_communicator_that_both_are_in() -> None:
    log = read(Job(nodes=2, per_node=2).text())
    link = next(link for link in log.connections if link.own == 1 and link.peer == 3)
    assert log.hosts(link, 3) == {"n2"}
    assert log.holders(link, 1) == {Process("n1", 101)}


def test_a_peer_of_one_of_two_communicators_can_be_either() -> None:
    other = (
        "ncclCommInitRank comm 0x99 rank {} nranks 4 cudaDev {} nvmlDev {} busId {}b000 commId 0xdead - Init COMPLETE"
    )
    text = Job().text()
    for rank, process in enumerate((0, 1, 3, 2)):  # the same ranks in another order
        local = process % 2
        line = other.format(rank, local, local, local + 1)
        text += info(line, host=f"n{process // 2 + 1}", pid=100 + process, device=local)
    log = read(text)
    link = next(link for link in log.connections if link.own == 0 and link.peer == 2)
    assert len(log.made_by(link)) == 2
    assert log.holders(link, 2) == {Process("n2", 102), Process("n2", 103)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0[0] -> 2[0] [send]", "3[0] -> 2[0] [send]"),  # a rank that this process is not
        ("0[0] -> 2[0] [send]", "0[5] -> 2[0] [send]"),  # a GPU that is not its
        ("0[0] -> 2[0] [send]", "0[0] -> 7[0] [send]"),  # a peer that is in no communicator
    ],
)
def test_a_connection_that_no_communicator_of_its_process_can_have_made_is_an_error(old: str, new: str) -> None:
    text = Job().text()
    assert old in text
    with pytest.raises(EvidenceError, match="has no such rank"):
        read(text.replace(old, new, 1))


def test_a_connection_of_a_process_that_no_line_calls_a_rank_is_an_error_where_others_are_called_so() -> None:
    text = Job().text() + info("Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0", host="1", pid=100)
    with pytest.raises(EvidenceError, match="process 100 on 1, and no line tells which rank that is"):
        read(text)


def test_the_gpu_in_brackets_may_be_its_pci_address() -> None:
    text = info("comm 0x1 rank 0 nranks 2 cudaDev 0 busId 3b000 - Init COMPLETE", pid=1) + info(
        "Channel 00/0 : 0[3b000] -> 1[3b000] [send] via NET/IB/1", pid=1
    )
    assert len(read(text).connections) == 1


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        (Job(silent={3}).text(), "no line of rank 3 of 4"),
        (Job(silent={1, 3}).text(), "no line of rank 1 and 1 more of 4"),
        (Job(devices=()).text(), "no connection of process 100 on n1, rank 0 on n1"),
        (Job().text() + "n1:100:200 [0] NCCL INFO Conn", "log ends in the middle of a line"),
        (info("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"), "no line of any rank"),
    ],
)
def test_what_the_log_should_tell_and_does_not_is_said(text: str, gap: str) -> None:
    assert gap in read(text).gaps()


@pytest.mark.parametrize("name", ["p2p.out", "shm.out", "socket.out", "hosts.out", "split.out", "stamps.out", "nccl-tests-shm.log"])  # fmt: skip
def test_real_logs_have_no_gaps(name: str) -> None:
    assert read_log(golden(name)).gaps() == ()


def test_the_order_of_the_lines_of_different_processes_does_not_matter() -> None:
    text = golden("split.out")["split.out"]
    rows = text.split("\n")[:-1]
    sorted_rows = sorted(rows, key=lambda row: row.split(":")[:2])  # stable: each process keeps its own order
    shuffled = read("\n".join(sorted_rows) + "\n")
    plain = read(text)
    assert {name: [m.rank for m in group] for name, group in plain.groups.items()} == {
        name: [m.rank for m in group] for name, group in shuffled.groups.items()
    }
    assert len(plain.connections) == len(shuffled.connections)
