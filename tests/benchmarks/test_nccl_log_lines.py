"""Lines of NCCL's log: whose each is, whatever stands before it, and what was torn is never guessed at."""

from __future__ import annotations

import time

import pytest

from nccl_written import WAYS, info
from surefoot.benchmarks.nccl_log_lines import Process, read_lines
from surefoot.errors import EvidenceError

PLAIN = "n1:7:9 [3] NCCL INFO Using network IB"


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "0: ",  # srun --label
        "  3: ",  # of more than a hundred
        "[1,0]<stdout>:",  # mpirun --tag-output: NVIDIA/nccl#1422
        "[1,4]<stdout>:[4]: ",  # NVIDIA/nccl#1422
        "[0]<stdout>:",
        "Thu Jul 18 15:41:05 2024<stdout>:",  # mpirun --timestamp-output
        "[2026-11-30 09:44:21] ",  # NCCL_DEBUG_TIMESTAMP_LEVELS, seen here
        "[default0]:",  # torchrun --tee
        "(MeshHostWorker pid=1706083) ",  # Ray
        "2026-11-30T09:44:21.123Z ",
        "worker-0  | ",
        "\x1b[36m",
        " 12%|#   | 1/8\r",  # a progress bar
    ],
)
def test_a_line_is_its_process_whatever_prefix_it_has(prefix: str) -> None:
    (line,) = read_lines({"log": f"other\n{prefix}{PLAIN}\n"}).lines
    assert (line.process, line.thread, line.device, line.message) == (Process("n1", 7), 9, 3, "Using network IB")
    assert (line.file, line.number, line.whole) == ("log", 2, True)


def test_a_line_after_half_a_row_of_the_program_is_that_of_the_host_whose_lines_begin_with_its_name() -> None:
    text = f"{PLAIN}\n      4096   1024  float  sum  19.3    0.05{PLAIN}\n     8{PLAIN}\n"
    assert {line.process for line in read_lines({"log": text}).lines} == {Process("n1", 7)}


def test_a_line_after_something_else_whose_host_no_other_line_knows_is_an_error() -> None:
    for text in (f"n9:1:1 [0] NCCL INFO x\n  0.05{PLAIN}\n", f"n2:102:202 [0{PLAIN}\n", f"w3 >> {PLAIN}\n"):
        with pytest.raises(EvidenceError, match="no other line begins"):
            read_lines({"log": text})


def test_real_rows_of_nccl_tests_give_one_process() -> None:
    found = read_lines({"log": (WAYS / "nccl-tests-shm.log").read_text()})
    assert {line.process.host for line in found.lines} == {"vm"}
    assert len({line.process for line in found.lines}) == 1


def test_a_host_is_cut_at_its_first_dot_and_one_that_is_numbers_is_kept() -> None:
    text = "node-b.example.com:7:9 [0] NCCL INFO a\n10-90-43-152:8:9 [0] NCCL INFO b\n"
    assert [line.process.host for line in read_lines({"log": text}).lines] == ["node-b", "10-90-43-152"]


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ("n1:7:9 [0] transport/net_ib.cc:818 NCCL WARN text", "transport/net_ib.cc:818"),
        ("[2026-11-30 09:44:21] n1:7:9 [0] init.cc:904 NCCL WARN text", "init.cc:904"),  # 2.28.9, seen here
        ("n1:7:9 [0] init.cc:904 (commInit) NCCL WARN text", "init.cc:904 (commInit)"),  # 2.30, from reading
        ("n1:7:9 [4] ib_plugin.c:1615 NCCL WARN text", "ib_plugin.c:1615"),  # NVIDIA/nccl#1814
    ],
)
def test_a_warning_says_where_in_nccl(row: str, source: str) -> None:
    (line,) = read_lines({"log": f"\n{row}\n"}).lines
    assert (line.warns, line.source, line.message) == (True, source, "text")


def test_files_are_read_in_their_order_and_each_line_names_its_own() -> None:
    found = read_lines({"a": info("x", pid=1), "b": info("y", pid=2)})
    assert [(line.file, line.number, line.process.pid) for line in found.lines] == [("a", 1, 1), ("b", 1, 2)]


def test_a_file_that_ends_in_the_middle_of_a_line_is_said_to() -> None:
    assert read_lines({"log": info("x")}).cut == ()
    found = read_lines({"log": info("x") + PLAIN[:-1]})
    assert found.cut == ("log",)
    assert [line.whole for line in found.lines] == [True, False]


@pytest.mark.parametrize(
    "row",
    [
        "[0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        ":22901:22901 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/4",
        "annel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "0[0] -> 1[1] [send] via NET/IB/0",
    ],
)
def test_a_connection_that_does_not_say_whose_is_an_error(row: str) -> None:
    with pytest.raises(EvidenceError, match="log:1: "):
        read_lines({"log": f"{row}\n"})


@pytest.mark.parametrize(
    "row", ["goes via NET/IB, not via NET/Socket", "NCCL version 2.28.9+cuda13.0", "[0] NCCL INFO x"]
)
def test_what_speaks_of_nccl_and_is_not_its_line_is_left_alone(row: str) -> None:
    assert read_lines({"log": f"{row}\n"}).lines == ()


@pytest.mark.parametrize("prefix", ["1:   ", "[1] 2: "])
def test_prefixes_that_can_be_told_apart_in_many_ways_are_tried_in_one(prefix: str) -> None:
    began = time.process_time()
    with pytest.raises(EvidenceError, match="something unknown stands before"):
        read_lines({"log": f"{prefix * 40}x {PLAIN}\n"})
    assert time.process_time() - began < 2
