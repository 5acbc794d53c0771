"""Own error rates: what is counted is what happened, targets need their interval, and the published ones hold."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from surefoot.benchmarks.nccl_curve import Part
from surefoot.benchmarks.verdict_rates import FAULTS, Fault, Rate, Recorded, noise, rates
from surefoot.cli.captures import shipped_sweeps
from surefoot.stats.shift import Verdict

HEALTHY, GROSS = Fault("nothing", None, 1.0), Fault("half the plateau", Part.PLATEAU, 2.0)


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    return shipped_sweeps()


def test_the_shipped_sweeps_are_six_of_each_of_two_collectives(recorded: list[Recorded]) -> None:
    assert [len(one.sweeps) for one in recorded] == [6, 6]
    assert sorted(one.factor for one in recorded) == [0.5, 1.0]
    assert {min(size for size, _ in one.sweeps[0]) for one in recorded} == {8, 32}


def test_noise_is_large_where_messages_are_small(recorded: list[Recorded]) -> None:
    for one in recorded:
        spread = noise(one.sweeps)
        small = [value for size, value in spread.items() if size < 1 << 20]
        large = [value for size, value in spread.items() if size >= 32 << 20]
        assert sum(small) / len(small) > 5 * sum(large) / len(large) > 0


def test_a_fault_changes_its_part_alone(recorded: list[Recorded]) -> None:
    quiet = replace(recorded[0], noise=dict.fromkeys(recorded[0].noise, 0.0), sweeps=recorded[0].sweeps[:1])
    changed = quiet.again(random.Random(1), GROSS)
    for (size, placement), time in quiet.sweeps[0].items():
        expected = 2.0 if quiet.part_of[size] is Part.PLATEAU else 1.0
        assert changed[size, placement] == pytest.approx(time * expected)


def test_what_is_counted_is_what_was_judged(recorded: list[Recorded]) -> None:
    found = rates(recorded, trials=20, seed=3, faults=(HEALTHY, GROSS))
    assert [(one.fault.name, one.trials, one.failed) for one in found] == [
        ("nothing", 20, 0),
        ("half the plateau", 20, 20),
    ]
    assert found == rates(recorded, trials=20, seed=3, faults=(HEALTHY, GROSS))
    chance = random.Random(4)
    assert recorded[0].trial(chance, GROSS, 9).verdict is Verdict.SLOWER
    assert recorded[0].trial(chance, HEALTHY, 1).verdict is Verdict.UNSURE


@pytest.mark.parametrize(
    ("fault", "failed", "reached"),
    [
        (HEALTHY, 0, True),
        (HEALTHY, 3, None),
        (HEALTHY, 20, False),
        (GROSS, 500, True),
        (GROSS, 497, None),
        (GROSS, 450, False),
    ],
)
def test_a_target_is_reached_when_its_interval_says_so(fault: Fault, failed: int, reached: bool | None) -> None:
    assert Rate(fault, 500, failed, 0).reached is reached


def test_too_few_sweeps_are_refused(recorded: list[Recorded]) -> None:
    with pytest.raises(ValueError, match="3 healthy sweeps"):
        Recorded.of(recorded[0].sweeps[:3], 1.0)


@pytest.mark.slow
def test_the_published_rates_hold(recorded: list[Recorded]) -> None:
    missed = [one for one in rates(recorded, trials=300, seed=11) if one.reached is False]
    assert missed == []
    assert {fault.part for fault in FAULTS} == {None, *Part}
