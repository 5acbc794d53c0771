"""nccl-tests' table of every version is read, and what is not whole is refused with its line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from nccl_tests_written import GOLDEN, Printed
from surefoot.benchmarks.nccl_tests import NcclTest, doubts, wrong_values
from surefoot.benchmarks.nccl_tests_text import read_text
from surefoot.errors import EvidenceError

ALL = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv")
SEVERAL = Printed(world=4, hosts=("n1", "n1", "n2", "n2"))


def only(text: str, file: str = "all_reduce.log") -> NcclTest:
    (test,) = read_text(text, file)
    return test


def refusal(text: str, file: str = "all_reduce.log") -> EvidenceError:
    with pytest.raises(EvidenceError) as caught:
        read_text(text, file)
    return caught.value


@pytest.mark.parametrize("name", ALL)
def test_six_collectives_on_two_h200_as_the_capture_has_them(name: str) -> None:
    test = only((GOLDEN / f"{name}.log").read_text(), f"{name}.log")
    assert (test.collective, test.version, test.nccl, test.world_size) == (name, "2.19.6", "22809", 2)
    small = 2 if name in ("all_gather", "reduce_scatter", "alltoall") else 0  # too small for each rank to have a share
    assert [row.size_bytes for row in test.rows] == [0] * small + [8 << n for n in range(small, 31)]
    assert doubts(test, ranks=2) == []


def test_a_row_that_nccls_lines_cut_is_one_row_with_its_spread() -> None:
    text = (GOLDEN / "healthy-1-all_reduce.log").read_text()
    assert "-1vm:1344" in text  # the log's line stands where the row's fifth figure ends
    test = only(text, "healthy-1-all_reduce.log")
    assert [row.size_bytes for row in test.rows] == [8 << n for n in range(30)]
    first, largest = test.rows[0], test.largest
    assert (first.root, first.out_of_place.time_us) == (-1, 27.54)
    assert largest.out_of_place.busbw_gb_s == pytest.approx(346.7, abs=5)
    assert largest.out_of_place.spread is not None
    assert largest.out_of_place.spread.min_us <= largest.out_of_place.spread.p99_us


@pytest.mark.parametrize("collective", ALL)
@pytest.mark.parametrize("style", ["1.x", "2.0", "2.13", "2.19"])
def test_columns_of_every_version_and_collective(style: str, collective: str) -> None:
    printed = replace(SEVERAL, style=style, collective=collective)
    test = only(printed.text(), f"{collective}.log")
    assert test.collective == collective
    for row, size, time_us in zip(test.rows, printed.sizes, printed.times_us, strict=True):
        assert row.size_bytes == size
        for timing in row.placements:
            assert timing.time_us == pytest.approx(time_us)
            assert (timing.algbw_gb_s, timing.busbw_gb_s) == printed.bandwidths(size, time_us)
    blank = collective not in ("all_reduce", "reduce_scatter")
    assert {row.redop for row in test.rows} == (
        {"none"} if blank and style in ("2.13", "2.19") else {None} if blank else {"sum"}
    )
    assert (test.rows[0].in_place.wrong is None) == (collective in ("alltoall", "sendrecv"))


def test_the_sample_of_1_x_is_in_milliseconds() -> None:
    line = "1048576 262144 float sum 2.059 0.51 0.51 N/A 3.314 0.32 0.32 N/A"
    printed = Printed(style="1.x", sizes=(1048576,), times_us=(2059,))
    text = "\n".join([*printed.head(), line, " Out of bounds values : 0 OK", " Avg bus bandwidth    : 0.415"])
    (row,) = only(text).rows
    assert (row.out_of_place.time_us, row.in_place.time_us) == (pytest.approx(2059), pytest.approx(3314))
    assert row.out_of_place.wrong is None


def test_the_samples_of_2_0_and_of_two_gb10() -> None:
    old = Printed(style="2.0", sizes=(4096,), times_us=(93.73,))
    row = "4096  1024  float  sum  93.73  0.04  0.09  1e-06  93.15  0.04  0.09  1e-06"
    foot = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 0.09"]
    test = only("\n".join([*replace(old, world=64).head(), row, *foot]))
    assert test.rows[0].out_of_place.wrong == 1e-06
    assert doubts(test) == []  # a difference of floating point, not a count
    new = Printed(style="2.13", collective="all_gather", sizes=(17179869184,), times_us=(453650,), hosts=("a", "b"))
    row = "17179869184  2147483648  float  none  -1  453650  37.87  18.94  0  410049  41.90  20.95  0"
    foot = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 19.945"]
    test = only("\n".join([*new.head(), row, *foot]), "all_gather.log")
    assert (test.largest.out_of_place.busbw_gb_s, test.largest.redop) == (18.94, "none")


@pytest.mark.parametrize(
    "label", ["0: ", " 3: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "Thu Jul 18 15:41:05 2024<stdout>:"]
)
def test_what_a_launcher_puts_before_lines_is_no_part_of_them(label: str) -> None:
    bare = only(SEVERAL.text())
    labelled = only("".join(f"{label}{line}\n" for line in SEVERAL.text().splitlines()))
    assert labelled == bare


def test_per_iteration_columns_and_a_timestamp_at_the_end() -> None:
    test = only(replace(SEVERAL, spread=True).text())
    assert [row.in_place.spread is not None for row in test.rows] == [True] * 4
    assert test.rows[1].out_of_place.spread.p99_us == pytest.approx(23.92)  # type: ignore[union-attr]
    stamped = replace(SEVERAL, stamped=True).text()
    assert only(stamped).rows == only(SEVERAL.text()).rows
    assert only(stamped.replace("time ", "cputime ")).rows == only(SEVERAL.text()).rows


def test_several_collectives_in_one_file_are_several_tests() -> None:
    tests = read_text(SEVERAL.text() + "\nsome words\n" + replace(SEVERAL, collective="all_gather").text(), "x.log")
    assert [test.collective for test in tests] == ["all_reduce", "all_gather"]
    assert tests[1].line > tests[0].line


def test_two_processes_that_each_ran_a_test_of_their_own_are_two_tests_of_one_rank() -> None:
    one = replace(SEVERAL, world=1)
    lines = zip(one.text().splitlines(), one.text().splitlines(), strict=True)
    tests = read_text("".join(f"0: {a}\n1: {b}\n" for a, b in lines), "all_reduce.log")
    assert [test.world_size for test in tests] == [1, 1]
    assert all("one rank only" in doubts(test)[0] for test in tests)
    assert "1 ranks took part, 2 were asked for" in doubts(tests[0], ranks=2)


def test_without_labels_such_processes_print_into_one_another_and_that_is_refused() -> None:
    one = replace(SEVERAL, world=1).text().splitlines()
    said = refusal("".join(f"{a}\n{a}\n" for a in one))
    assert "another test begins" in said.problem
    assert said.line == 6


HUGE = "9" * 400

DAMAGES: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut before the footer": (lambda rows: rows[:-3], "cut off, killed or crashed"),
    "cut in a row": (lambda rows: [*rows[:-4], rows[-4][:40]], "is no"),
    "a row less": (lambda rows: rows[:-4] + rows[-3:], "has 3 sizes of 4"),
    "a row twice": (lambda rows: [*rows[:-3], rows[-4], *rows[-3:]], "has 5 sizes of 4"),
    "two rows changed places": (lambda rows: [*rows[:-5], rows[-4], rows[-5], *rows[-3:]], "where 4096 follow"),
    "a figure changed": (lambda rows: [row.replace("44.44", "33.33") for row in rows], "are not"),
    "a bandwidth changed": (lambda rows: [row.replace("0.28", "0.38") for row in rows], "is not"),
    "a column lost": (lambda rows: [row.rsplit(" ", 1)[0] if "8192" in row.split() else row for row in rows], "is no"),
    "a column more": (lambda rows: [row + " 7" if "44.44" in row else row for row in rows], "is no"),
    "the footer changed": (lambda rows: [row.replace("width    : 0.", "width    : 9.") for row in rows], "footer"),
    "no count of wrong values": (lambda rows: [row for row in rows if "Out of" not in row], "footer is not whole"),
    "a rank that is not listed": (lambda rows: [row for row in rows if "Rank  2" not in row], "are not"),
    "a rank listed twice": (
        lambda rows: [row.replace("Rank  2", "Rank  1") for row in rows],
        "not each once from 0",
    ),
    "no device": (lambda rows: [row for row in rows if "Rank " not in row], ""),
    "a crash among the rows": (
        lambda rows: [*rows[:-4], "n1: Test NCCL failure common.cu:1000 'unhandled cuda error'", *rows[-4:]],
        "the test failed",
    ),
    "no banner": (lambda rows: [row for row in rows if "nThread" not in row], "no nccl-tests output"),
    "a count of wrong values below 0": (
        lambda rows: [row[:-1] + "-5" if "44.44" in row else row for row in rows],
        "wrong: ",
    ),
    "none out of bounds, which FAILED": (
        lambda rows: [row.replace(": 0 OK", ": 0 FAILED") for row in rows],
        "are not FAILED",
    ),
    "a size of 400 digits": (
        lambda rows: [row.replace(" 8192 ", f" {HUGE} ") if "44.44" in row else row for row in rows],
        "is no row",
    ),
    "a step of 400 digits": (
        lambda rows: [row.replace("step: 2(factor)", f"step: {HUGE}(bytes)") for row in rows],
        "not what nccl-tests prints",
    ),
    "a sweep to 400 digits": (
        lambda rows: [row.replace("maxBytes 8192", f"maxBytes {HUGE}") for row in rows],
        "not what nccl-tests prints",
    ),
    "a sweep from 400 digits": (
        lambda rows: [row.replace("minBytes 1024", f"minBytes {HUGE}") for row in rows],
        "not what nccl-tests prints",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_not_whole_is_refused_with_its_line(name: str) -> None:
    damage, told = DAMAGES[name]
    lines = SEVERAL.text().rstrip("\n").splitlines()
    said = refusal("\n".join(damage(lines)) + "\n")
    assert told in said.problem
    assert said.file == "all_reduce.log"
    assert said.line is not None or name == "no banner"


def test_captures_that_were_killed_or_never_began() -> None:
    killed = refusal((GOLDEN / "truncated.log").read_text())
    assert (killed.line, "25 rows, the last of 134217728 bytes" in killed.problem) == (36, True)
    never = refusal((GOLDEN / "too_many_gpus.log").read_text())
    assert "Invalid number of GPUs: 4 requested but only 2 were found" in never.text


@pytest.mark.parametrize("wrong", ["1", "262144", "3e+06"])
def test_wrong_elements_disprove(wrong: str) -> None:
    test = only(replace(SEVERAL, wrong=wrong, bounds="8 FAILED").text())
    assert "elements came out wrong at 1 KiB" in wrong_values(test)
    assert doubts(test)[0] == wrong_values(test)


def test_values_out_of_bounds_disprove_where_the_rows_count_none() -> None:
    assert wrong_values(only(replace(SEVERAL, style="2.0", wrong="1e-02", bounds="3 FAILED").text()))


def test_values_that_were_not_validated_are_doubted() -> None:
    text = replace(SEVERAL, wrong="N/A").text().replace("validation: 1", "validation: 0")
    assert doubts(only(text)) == ["values were not validated (-c 0)"]


def test_values_of_which_none_was_validated_though_that_was_asked_for_are_doubted() -> None:
    (said,) = doubts(only(replace(SEVERAL, wrong="N/A").text()))
    assert "1 KiB" in said
    assert "3 more sizes were not validated" in said


def test_a_banner_without_an_end_is_read_in_time_that_grows_with_its_length() -> None:
    text = SEVERAL.text().replace("validation: 1", f"validation: 1 {'a ' * 20_000}")
    began = time.process_time()
    only(text)
    assert time.process_time() - began < 2


def test_a_sweep_that_lack_of_memory_cut_is_doubted_with_both_sizes() -> None:
    note = "# Reducing maxBytes to 8192 due to memory limitation"
    test = only(replace(SEVERAL, max_bytes=16384, notes=(note,)).text())
    assert test.reduced_to == 8192
    assert doubts(test) == ["the sweep ends at 8 KiB for lack of memory; 16 KiB were asked for"]


def test_two_ranks_on_one_gpu_are_doubted() -> None:
    text = SEVERAL.text().replace("0000:1c:00", "0000:1b:00")
    assert doubts(only(text)) == ["two ranks shared a GPU"]


def test_fewer_ranks_than_asked_for_are_doubted() -> None:
    assert doubts(only(SEVERAL.text()), ranks=16) == ["4 ranks took part, 16 were asked for"]
