"""Captures against healthy ones: the real corpus of two H200, and faults put into its healthy repeats."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from surefoot.benchmarks.nccl_compare import Capture, Comparison, compare, refused
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_tests import NcclTest, Row, Timing
from surefoot.benchmarks.nccl_tests_text import read_text
from surefoot.cli.captures import captures_in
from surefoot.errors import EvidenceError
from surefoot.model.status import Status

CORPUS = Path(__file__).parents[3] / "shared" / "data" / "nccl-h200x2"
COLLECTIVES = ("all_reduce", "all_gather")
FAULTS = ("half_channels", "one_channel", "p2p_disabled")


def corpus(pattern: str) -> dict[str, Capture]:
    files = sorted(CORPUS.glob(pattern))
    assert files
    return {file.stem: captures_in(str(file))[0] for file in files}


@pytest.fixture(scope="module", params=["log", "json"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def healthy(kind: str) -> dict[str, Capture]:
    return corpus(f"healthy-*.{kind}")


def failed(found: Comparison) -> set[str]:
    return {one.part for one in found.findings if one.status is Status.FAILED}


def test_each_healthy_repeat_passes_against_all_others(healthy: dict[str, Capture]) -> None:
    for name in COLLECTIVES:
        mine = {key: one for key, one in healthy.items() if name in key}
        assert len(mine) == 6
        for key, one in mine.items():
            found = compare([other for at, other in mine.items() if at != key], [one])
            assert found.status is Status.PASSED, (key, found)
            assert {"floor", "knee", "plateau", "variance"} <= {part.part for part in found.findings}


def test_no_split_of_healthy_repeats_fails(healthy: dict[str, Capture]) -> None:
    """Few repeats may leave it open; never is a healthy one called worse."""
    for name in COLLECTIVES:
        mine = [one for key, one in healthy.items() if name in key]
        for count in (1, 2, 3, 4, 5):
            for known in combinations(mine, count):
                for new in (one for one in mine if one not in known):
                    assert compare(known, [new]).status is not Status.FAILED


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_in_its_part_and_with_its_cause(healthy: dict[str, Capture], kind: str, fault: str) -> None:
    for key, one in corpus(f"{fault}-*.{kind}").items():
        found = compare([other for at, other in healthy.items() if one.test.collective in at], [one])
        assert found.status is Status.FAILED
        logged = kind == "log" and fault == "p2p_disabled"
        assert failed(found) == {"plateau", *(["transport"] if logged else [])}, key
        (cause,) = {part.cause for part in found.findings if part.cause}
        expected = {
            ("half_channels", "log"): "8 channels carry the data, 24 in the baseline",
            (
                "half_channels",
                "json",
            ): "bandwidth is lost and latency is intact: channels, rails or links are missing, about half",
            ("one_channel", "log"): "times lower: 1 channels carry the data, 24 in the baseline",
            ("one_channel", "json"): "or one channel is left",
            ("p2p_disabled", "log"): "data goes through the host's memory (SHM)",
            ("p2p_disabled", "json"): "falls back to host memory (SHM) or TCP",
        }[fault, kind]
        assert expected in cause, key
        if logged:
            (shown,) = (part for part in found.findings if part.part == "transport")
            assert "via SHM/direct/direct" in shown.actual
            assert "NCCL_P2P_DISABLE=1 is set in the candidate alone" in cause


def test_captures_that_are_not_whole_are_never_a_pass(healthy: dict[str, Capture]) -> None:
    unread = []
    for name in ("truncated.log", "too_many_gpus.log"):
        with pytest.raises(EvidenceError) as caught:
            captures_in(str(CORPUS / name))
        unread.append(refused(caught.value, name))
    known = list(healthy.values())
    for one in unread:
        assert compare(known, [], [one]).status is Status.INCONCLUSIVE
        assert compare(known[:-2], known[-2:], [one]).status is Status.INCONCLUSIVE
        assert one.line
    assert compare([], []).status is Status.INCONCLUSIVE
    assert compare([], known).status is Status.INCONCLUSIVE


Change = Callable[[int, float], float]


def changed(capture: Capture, change: Change) -> Capture:
    """The same sweep with each time (of a size, in µs) changed."""

    def timing(size: int, one: Timing) -> Timing:
        time = change(size, one.time_us)
        scale = one.time_us / time
        return one.model_copy(
            update={"time_us": time, "algbw_gb_s": one.algbw_gb_s * scale, "busbw_gb_s": one.busbw_gb_s * scale}
        )

    def row(one: Row) -> Row:
        return one.model_copy(
            update={name: timing(one.size_bytes, getattr(one, name)) for name in ("out_of_place", "in_place")}
        )

    test: NcclTest = capture.test
    return Capture(test.model_copy(update={"rows": tuple(map(row, test.rows))}))


def judged(healthy: dict[str, Capture], name: str, leave: int, change: Change) -> Comparison:
    mine = [one for key, one in healthy.items() if name in key]
    return compare([Capture(one.test) for n, one in enumerate(mine) if n != leave], [changed(mine[leave], change)])


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("leave", range(6))
def test_a_plateau_5_percent_lower_fails_alone(healthy: dict[str, Capture], name: str, leave: int) -> None:
    found = judged(healthy, name, leave, lambda size, time: time / 0.95 if size > 16 << 20 else time)
    assert failed(found) == {"plateau"}
    assert "bandwidth is lost and latency is intact" in next(one.cause for one in found.findings if one.cause)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_floor_twice_as_high_fails_alone(healthy: dict[str, Capture], name: str) -> None:
    slow = [n for n in range(6) if failed(judged(healthy, name, n, lambda _, time: time + 28)) == {"floor"}]
    assert slow == list(range(6))
    found = judged(healthy, name, 0, lambda _, time: time + 28)
    assert "latency is up and bandwidth intact" in next(one.cause for one in found.findings if one.cause)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_size_in_the_middle_that_is_60_percent_slower_is_named(healthy: dict[str, Capture], name: str) -> None:
    """NCCL issue 2441: a regression near 1 MiB alone, invisible at the largest size."""
    for leave in range(6):
        found = judged(healthy, name, leave, lambda size, time: time / 0.4 if size == 1 << 20 else time)
        assert failed(found) == {"knee"}
        (knee,) = (one for one in found.findings if one.part == "knee")
        assert "at 1 MiB" in knee.actual


@pytest.mark.parametrize("name", COLLECTIVES)
def test_everything_slower_and_unsteady_is_contention(healthy: dict[str, Capture], name: str) -> None:
    chance = random.Random(7)
    found = judged(healthy, name, 0, lambda _, time: time * chance.uniform(2.0, 5.0))
    assert {"floor", "plateau", "variance"} <= failed(found)
    assert "something else uses the same GPUs" in next(one.cause for one in found.findings if one.cause)


def test_a_change_without_effect_raises_nothing(healthy: dict[str, Capture]) -> None:
    for name in COLLECTIVES:
        for leave in range(6):
            assert judged(healthy, name, leave, lambda _, time: time * 1.004).status is Status.PASSED


def test_other_ranks_types_or_sizes_are_not_compared(healthy: dict[str, Capture]) -> None:
    mine = [one for key, one in healthy.items() if "all_reduce" in key]
    other = Capture(mine[0].test.model_copy(update={"world_size": 4}))
    found = compare(mine[1:], [other])
    assert found.status is Status.INCONCLUSIVE
    assert "4 ranks" in found.findings[0].actual
    short = Capture(mine[0].test.model_copy(update={"rows": mine[0].test.rows[:10]}))
    assert "no floor and no plateau" in compare(mine[1:], [short]).findings[0].actual
    less = Capture(mine[0].test.model_copy(update={"rows": mine[0].test.rows[:-1]}))
    assert compare(mine[1:], [less]).status is Status.INCONCLUSIVE


def test_wrong_values_fail_and_a_baseline_with_some_proves_nothing(healthy: dict[str, Capture]) -> None:
    mine = [one for key, one in healthy.items() if "all_reduce" in key]
    wrong = Capture(mine[0].test.model_copy(update={"out_of_bounds": 3}))
    assert failed(compare(mine[1:], [wrong])) == {"values"}
    assert compare([wrong, *mine[2:]], [mine[1]]).status is Status.INCONCLUSIVE


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_floor_that_has_two_values_by_chance_is_shifted_where_its_higher_one_is(
    healthy: dict[str, Capture], name: str
) -> None:
    """18 µs made 27 looks like the healthy 26: one repeat of such a process shows nothing, several do."""
    mine = [one for key, one in healthy.items() if name in key]
    slower = [changed(one, lambda size, time: time * 1.5 if size <= 1 << 20 else time) for one in mine]
    alone = [compare(mine, [one]).status for one in slower]
    assert set(alone) == {Status.PASSED, Status.FAILED}
    assert failed(compare(mine, slower)) == {"floor"}


def test_a_capture_that_is_given_twice_is_no_repeat(healthy: dict[str, Capture]) -> None:
    mine = [one for key, one in healthy.items() if "all_reduce" in key]
    assert compare([mine[0]] * 3, [mine[1]]).status is Status.INCONCLUSIVE
    found = compare(mine, [mine[5]])
    assert found.status is Status.INCONCLUSIVE
    assert f"the times of {mine[5].test.file}:" in next(one.actual for one in found.findings if one.part == "capture")


def test_a_run_as_log_and_as_json_is_one_run() -> None:
    both = [corpus(f"healthy-1-all_reduce.{kind}")["healthy-1-all_reduce"] for kind in ("log", "json")]
    others = [one for key, one in corpus("healthy-[2-6]-all_reduce.log").items()]
    assert compare(others, both[:1]).status is Status.PASSED
    assert compare([*others, both[0]], both[1:]).status is Status.INCONCLUSIVE


def test_a_log_that_lacks_a_ranks_connections_does_not_show_which_way_it_took() -> None:
    known = list(corpus("healthy-[2-6]-all_reduce.log").values())
    text = (CORPUS / "healthy-1-all_reduce.log").read_text()
    rows = [row for row in text.split("\n") if not (" via " in row and " : 1[" in row)]
    (test,) = read_text("\n".join(rows), "all_reduce.log")
    found = compare(known, [Capture(test, read_log({"all_reduce.log": "\n".join(rows)}))])
    (transport,) = (one for one in found.findings if one.part == "transport")
    assert (transport.status, "no connection of process" in transport.actual) == (Status.INCONCLUSIVE, True)
    assert found.status is Status.INCONCLUSIVE
