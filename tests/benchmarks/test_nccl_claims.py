"""Claims on NCCL's log: proved by a line, disproved by a line, or open; silence proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nccl_written import GOLDEN, Job, golden, info
from surefoot.benchmarks.nccl_claims import Finding, bootstrap, direct, finding, inside_nodes, no_sockets, ranks
from surefoot.benchmarks.nccl_log import NcclLog, read_log
from surefoot.benchmarks.nccl_log_lines import Process
from surefoot.benchmarks.nccl_log_links import Kind
from surefoot.model.status import Status

PASSED, FAILED, OPEN = Status.PASSED, Status.FAILED, Status.INCONCLUSIVE


def read(text: str | Job) -> NcclLog:
    return read_log({"log": text.text() if isinstance(text, Job) else text})


CLAIMS: dict[str, Callable[[NcclLog], Finding]] = {
    "ranks": lambda log: ranks(log, 4),
    "sockets": no_sockets,
    "inside": inside_nodes,
    "gdr": direct,
    "bootstrap": lambda log: bootstrap(log, {"n1": ["eth0"], "n2": ["eth0"]}),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_good_job_of_two_nodes_passes_with_lines(claim: str) -> None:
    found = CLAIMS[claim](read(Job()))
    assert (found.status, found.next_action) == (PASSED, "")
    assert found.lines
    assert all(line.number > 0 for line in found.lines)


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):\n", "n1:7:7 [0] NCCL INFO cudaDriverVersion 13000\n"])  # fmt: skip
def test_silence_proves_nothing_and_says_how_to_end_it(claim: str, text: str) -> None:
    found = CLAIMS[claim](read(text))
    assert found.status is OPEN
    assert "NCCL_DEBUG" in found.next_action


@pytest.mark.parametrize("claim", ["ranks", "sockets", "inside", "gdr"])
def test_a_rank_that_wrote_nothing_leaves_every_claim_on_all_ranks_open(claim: str) -> None:
    found = CLAIMS[claim](read(Job(silent={3})))
    assert found.status is OPEN
    assert "rank 3" in found.shown


def test_nothing_passes_without_a_line() -> None:
    with pytest.raises(ValueError, match="without a line"):
        Finding("x", "y", PASSED, "", "")
    assert finding("x", "y", True, expected="", shown="", lines=()).status is OPEN


# --- ranks


def test_a_rank_that_starts_and_does_not_complete_is_named_with_its_line() -> None:
    found = ranks(read(Job(unfinished={3})), 4)
    assert found.status is FAILED
    assert "rank 3 on n2 started and did not complete" in found.shown
    assert "rank 3 nranks 4" in found.lines[0].text
    assert found.lines[0].message.endswith("Init START")


def test_a_rank_may_complete_after_the_place_where_the_log_was_cut() -> None:
    found = ranks(read(Job(unfinished={3}).text() + "n2:103:203 [1] NCCL INFO threadThr"), 4)
    assert (found.status, "ends in the middle of a line" in found.shown) == (OPEN, True)


def test_jobs_of_their_own_on_every_node_are_not_one_job() -> None:
    one = Job(nodes=1, per_node=2)
    text = one.text() + one.text().replace("n1:", "n2:").replace("0xc0ffee", "0xbeef")
    found = ranks(read(text), 4)
    assert found.status is FAILED
    assert found.shown == "communicators: 2 of 2 ranks; none of 4"
    assert "nccl-tests without MPI" in found.next_action


def test_a_rank_that_two_processes_claim_is_named() -> None:
    text = Job().text() + info(
        "ncclCommInitRank comm 0x99 rank 3 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xc0ffee - Init COMPLETE",
        host="n3",
    )
    found = ranks(read(text), 4)
    assert found.status is FAILED
    assert "rank 3 is process 103 on n2 and process 7 on n3" in found.shown


def test_a_rank_of_the_job_that_is_another_in_nccl_is_named() -> None:
    processes = {Process(f"n{rank // 2 + 1}", 100 + rank): rank for rank in range(4)}
    assert ranks(read(Job()), 4, processes).status is PASSED
    swapped = {**processes, Process("n1", 100): 1, Process("n1", 101): 0}
    found = ranks(read(Job()), 4, swapped)
    assert (found.status, "rank 1 of the job is rank 0 on n1 in NCCL" in found.shown) == (FAILED, True)
    del processes[Process("n2", 103)]
    assert ranks(read(Job()), 4, processes).status is OPEN  # a line of a process that is no rank of this job


def test_real_ranks_complete_and_real_ranks_on_one_gpu_do_not_and_say_why() -> None:
    for name in ("p2p.out", "shm.out", "socket.out", "hosts.out", "split.out", "default.out", "nccl-tests-shm.log"):
        assert ranks(read_log(golden(name)), 2).status is PASSED, name
    found = ranks(read_log(golden("same.out")), 2)
    assert found.status is FAILED
    assert "ranks 0, 1 on vm started and did not complete" in found.shown
    assert "Duplicate GPU detected" in found.shown
    assert any(line.warns for line in found.lines)


def test_ranks_that_an_old_nccl_does_not_tell_apart_leave_it_open() -> None:
    line = "comm 0x7f rank {0} nranks 2 cudaDev {0} busId {0}a000 - Init COMPLETE"
    text = "".join(info(line.format(rank), pid=rank + 1) for rank in range(2))
    assert ranks(read(text), 2).status is PASSED
    assert ranks(read(text + text), 2).status is OPEN


# --- sockets


def test_real_sockets_fail_with_their_line_and_why() -> None:
    found = no_sockets(read_log(golden("hosts.out")))
    assert (found.status, found.shown) == (FAILED, "8 × NET/Socket; TCP on vm")
    assert "via NET/Socket/0" in found.lines[0].text
    assert "No device found" in found.lines[1].text
    assert no_sockets(read_log(golden("hosts.out")), allowed=True).status is PASSED


def test_one_connection_over_tcp_among_many_fails() -> None:
    text = Job().text().replace("[send] via NET/IB/1/GDRDMA", "[send] via NET/Socket/0", 1)
    found = no_sockets(read(text))
    assert (found.status, found.lines[0].message[-12:]) == (FAILED, "NET/Socket/0")


def test_libfabric_over_tcp_is_a_fall_back_too() -> None:
    job = Job(using="", network="AWS Libfabric", devices=("AWS Libfabric/0", "AWS Libfabric/1"))
    for provider, status in (("efa", PASSED), ("tcp;ofi_rxm", FAILED)):
        row = info(f"NET/OFI Selected Provider is {provider} (found 2 nics)", pid=100)
        assert no_sockets(read(job.text() + row)).status is status


def test_nodes_of_one_job_without_a_connection_to_each_other_are_not_shown_to_be_connected() -> None:
    rows = [row for row in Job().text().split("\n") if "via NET" not in row]
    found = no_sockets(read("\n".join(rows)))
    assert found.status is OPEN
    assert "no connection from n1, n2 to another node" in found.shown


def test_nvlink_between_nodes_is_a_connection_to_another_node() -> None:
    text = Job().text()
    for word in ("[send] via NET/IB/0/GDRDMA", "[send] via NET/IB/1/GDRDMA"):
        text = text.replace(word, "via P2P/MNNVL")
    rows = [row for row in text.split("\n") if "receive" not in row]
    assert no_sockets(read("\n".join(rows))).status is PASSED


def test_a_process_that_must_have_a_connection_and_has_none_leaves_it_open() -> None:
    found = no_sockets(read(Job()), processes=[Process("n9", 1)])
    assert (found.status, "none of process 1 on n9" in found.shown) == (OPEN, True)


# --- inside a node


@pytest.mark.parametrize(
    ("name", "status", "way"),
    [("p2p.out", PASSED, "48 × P2P/CUMEM"), ("shm.out", FAILED, "8 × SHM/direct; on vm"), ("socket.out", FAILED, "8 × NET/Socket; on vm"), ("nccl-tests-shm.log", FAILED, "8 × SHM/direct; on vm"), ("split.out", PASSED, "128 × P2P/CUMEM")],
)  # fmt: skip
def test_real_ranks_of_one_node_are_held_to_p2p(name: str, status: Status, way: str) -> None:
    found = inside_nodes(read_log(golden(name)))
    assert (found.status, found.shown) == (status, way)
    assert " via " in found.lines[0].text
    assert found.lines[0].text == golden(name)[name].split("\n")[found.lines[0].number - 1]


def test_what_is_expected_may_be_host_memory() -> None:
    assert inside_nodes(read_log(golden("shm.out")), Kind.SHM).status is PASSED
    assert inside_nodes(read_log(golden("p2p.out")), Kind.SHM).status is FAILED


def test_a_network_between_two_nodes_is_not_inside_one_and_one_rank_a_node_shows_nothing() -> None:
    assert inside_nodes(read(Job())).shown == "8 × P2P/CUMEM"
    found = inside_nodes(read(Job(nodes=2, per_node=1)))
    assert (found.status, found.shown) == (OPEN, "no two ranks of one node: nothing to show")


def test_a_rank_of_one_node_that_wrote_nothing_leaves_open_how_it_is_reached() -> None:
    assert inside_nodes(read(Job(nodes=1, per_node=4))).status is PASSED
    found = inside_nodes(read(Job(nodes=1, per_node=4, silent={3})))
    assert (found.status, "no line of rank 3 of 4" in found.shown) == (OPEN, True)


def test_one_node_of_two_that_goes_through_host_memory_is_named() -> None:
    rows = Job().text().split("\n")
    text = "\n".join(
        row.replace("via P2P/CUMEM", "via SHM/direct/direct") if row.startswith("n2:") else row for row in rows
    )
    found = inside_nodes(read(text))
    assert (found.status, found.shown.endswith("on n2")) == (FAILED, True)


# --- direct access


def test_a_bounce_through_the_host_is_named_with_its_line_and_the_reason() -> None:
    reason = info("GPU Direct RDMA Disabled for GPU 1 / HCA 1 (distance 5 > 4)", host="n2", pid=103)
    rows = Job().text().split("\n")
    text = "\n".join(row.replace("/GDRDMA", "") if row.startswith("n2:103") else row for row in rows)
    found = direct(read(text + reason))
    assert found.status is FAILED
    assert found.shown == "2 of 8 bounce through the host, on n2"
    assert "distance 5 > 4" in found.lines[1].text


def test_without_an_rdma_network_nothing_is_said_about_direct_access() -> None:
    for name in ("p2p.out", "hosts.out"):
        assert direct(read_log(golden(name))).status is OPEN


# --- bootstrap


def test_an_interface_that_was_not_asked_for_is_named_by_host() -> None:
    log = read(Job(bootstrap="docker0"))
    found = bootstrap(log, {"n1.example.com": ["eth0", "ib0"], "n2": ["docker0"]})
    assert (found.status, found.shown) == (FAILED, "n1 uses docker0, not eth0, ib0")


def test_a_host_without_a_line_leaves_it_open() -> None:
    assert bootstrap(read(Job()), {"n1": ["eth0"], "n3": ["eth0"]}).status is OPEN
    assert bootstrap(read(Job()), {}).status is OPEN


def test_what_nccl_uses_out_of_band_stands_in_for_a_bootstrap_that_is_not_told_of() -> None:
    log = read((GOLDEN / "h200-x2" / "collectives.out").read_text())  # NCCL_DEBUG_SUBSYS=INIT,NET
    assert bootstrap(log, {"vm": ["eth0"]}).status is PASSED
    assert bootstrap(log, {"vm": ["ib0"]}).status is FAILED
