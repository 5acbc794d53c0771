"""Who kept the others waiting: the one that never came, failed by itself or is behind, not those that gave up on it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.benchmarks.mesh import ORDER, ClockRound, Trail, clock_offset, slow, stuck, waited
from surefoot.benchmarks.mesh_steps import LARGEST, LENGTH, Phase, known_values, summed_values

TIMEOUT = "DistBackendError: [../gloo/transport/tcp/pair.cc] Timed out waiting 60000ms for recv operation"


def trail(rank: int, stands: Phase | None = None, problem: str | None = None, took_s: float = 1.0) -> Trail:
    """A trail up to a phase, in which it stands without an end or with a problem; to the end for None."""
    upto = ORDER if stands is None else ORDER[: ORDER.index(stands) + 1]
    phases: list[dict[str, Any]] = [
        {"name": phase.name, "began": 1.7e9 + i, "took_s": took_s, "problem": None} for i, phase in enumerate(upto)
    ]
    if stands is not None:
        phases[-1] |= {"took_s": 60.0 if problem else None, "problem": problem}
    return Trail.model_validate(
        {
            "rank": rank, "local_rank": rank % 2, "world_size": 4, "nonce": "n", "job_id": "1", "host": f"n{rank // 2}",
            "slurm_node": None, "pid": 100 + rank, "facts": {}, "phases": phases,
        }
    )  # fmt: skip


def world(*trails: Trail) -> dict[int, Trail]:
    return {trail.rank: trail for trail in trails}


def test_where_every_rank_finished_nobody_is_named() -> None:
    assert stuck(world(*(trail(rank) for rank in range(4))), 4) == []


def test_a_rank_that_never_began_is_named_and_those_that_gave_up_on_it_are_not() -> None:
    waiting = [trail(rank, Phase.RENDEZVOUS, "DistStoreError: Timed out after 61 seconds") for rank in (0, 1, 2)]
    (only,) = stuck(world(*waiting), 4)
    assert (only.kind, only.ranks) == ("absent", (3,))


def test_a_rank_that_failed_by_itself_explains_those_that_waited() -> None:
    trails = [trail(0, Phase.STEP, TIMEOUT), trail(1, Phase.STEP, TIMEOUT), trail(2, Phase.STEP, "RuntimeError: CUDA error: uncorrectable ECC error"), trail(3, Phase.STEP)]  # fmt: skip
    (only,) = stuck(world(*trails), 4)
    assert (only.kind, only.ranks) == ("failed", (2,))
    assert "uncorrectable ECC" in only.words
    assert str(Phase.STEP) in only.words


def test_a_rank_that_is_behind_is_named_as_hung() -> None:
    trails = [trail(rank, Phase.RENDEZVOUS, "DistStoreError: Timed out") for rank in (0, 1, 2)] + [
        trail(3, Phase.DEVICE)
    ]
    (only,) = stuck(world(*trails), 4)
    assert (only.kind, only.ranks) == ("hung", (3,))
    assert str(Phase.DEVICE) in only.words


def test_a_rank_that_stops_in_the_phase_in_which_the_others_give_up_is_named() -> None:
    trails = [trail(rank, Phase.ALL_REDUCE, TIMEOUT) for rank in (0, 1, 3)] + [trail(2, Phase.ALL_REDUCE)]
    (only,) = stuck(world(*trails), 4)
    assert (only.kind, only.ranks) == ("hung", (2,))


def test_where_all_gave_up_on_each_other_their_own_words_are_told() -> None:
    (only,) = stuck(world(*(trail(rank, Phase.RENDEZVOUS, TIMEOUT) for rank in range(4))), 4)
    assert only.ranks == (0, 1, 2, 3)
    assert "Timed out" in only.words


def test_where_all_hang_in_one_phase_all_are_named() -> None:
    (only,) = stuck(world(*(trail(rank, Phase.FIRST_COLLECTIVE) for rank in range(4))), 4)
    assert (only.kind, only.ranks) == ("hung", (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("problem", "waiting"),
    [
        (TIMEOUT, True),
        ("DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.", True),
        ("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer", True),
        ("DistBackendError: NCCL error: ncclInvalidUsage, Duplicate GPU detected : rank 1 and rank 0", False),
        ("RuntimeError: local rank 7 was asked to use a GPU of its own, but this process sees 7", False),
        ("AcceleratorError: CUDA error: uncorrectable ECC error encountered", False),
    ],
)
def test_errors_about_others_are_told_from_a_ranks_own(problem: str, waiting: bool) -> None:
    assert waited(problem) is waiting


@given(st.lists(st.sampled_from(["well", "absent", "failed", "gave up", "silent"]), min_size=4, max_size=4))
def test_somebody_is_named_whenever_not_every_rank_finished(kinds: list[str]) -> None:
    made = {
        "well": trail,
        "failed": lambda rank: trail(rank, Phase.DEVICE, "RuntimeError: no such GPU"),
        "gave up": lambda rank: trail(rank, Phase.STEP, TIMEOUT),
        "silent": lambda rank: trail(rank, Phase.STEP),
    }
    trails = world(*(made[kind](rank) for rank, kind in enumerate(kinds) if kind != "absent"))
    found = stuck(trails, 4)
    assert bool(found) == any(kind != "well" for kind in kinds)
    named = {rank for problem in found for rank in problem.ranks}
    assert not {rank for rank, kind in enumerate(kinds) if kind == "well"} & named
    assert {rank for rank, kind in enumerate(kinds) if kind in ("absent", "failed")} <= named


@pytest.mark.parametrize(
    "damage",
    [
        lambda phases: phases[1:],
        lambda phases: [phases[0], phases[0], *phases[2:]],
        lambda phases: [{**phases[0], "took_s": None}, *phases[1:]],
        lambda phases: [{**phases[0], "problem": "x"}, *phases[1:]],
    ],
)
def test_a_trail_that_cannot_have_been_written_so_is_refused(damage: Any) -> None:
    data = trail(0, Phase.STEP).canonical()
    data["phases"] = damage(data["phases"])
    with pytest.raises(ValueError, match="phase"):
        Trail.model_validate(data)


def test_a_rank_that_imports_for_much_longer_than_the_others_is_slow() -> None:
    trails = world(*(trail(rank, took_s=20.0 if rank == 2 else 2.0) for rank in range(4)))
    assert [words.split(" took")[0] for words in slow(trails)] == ["rank 2 on n1", "rank 2 on n1"]
    assert slow(world(*(trail(rank, took_s=0.9 if rank == 2 else 0.1) for rank in range(4)))) == []


@given(
    st.floats(-5, 5),
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 0.1), st.floats(0, 0.1)), min_size=1, max_size=7),
)  # fmt: skip
def test_the_bounds_hold_the_true_offset(offset: float, rounds: list[tuple[float, float, float, float]]) -> None:
    mine, other = [], []
    for number, (enter_a, enter_b, leave_a, leave_b) in enumerate(rounds):
        begun = 1.7e9 + 10 * number
        last = max(enter_a, enter_b)
        mine.append(ClockRound(at=begun + last + leave_a + offset, within_s=last + leave_a - enter_a))
        other.append(ClockRound(at=begun + last + leave_b, within_s=last + leave_b - enter_b))
    low, high = clock_offset(mine, other)
    assert low - 1e-6 <= offset <= high + 1e-6
    assert high - low <= 1.3


def test_known_values_are_whole_and_their_sums_exact_in_float32() -> None:
    assert len(known_values(1, 0)) == LENGTH
    assert max(map(abs, known_values(1, 0))) <= LARGEST
    assert known_values(1, 0) != known_values(1, 1) != known_values(2, 1)
    assert LARGEST * 16_384 <= 2**24
    ranks = [known_values(1, rank) for rank in range(70)]
    assert summed_values(1, 70) == [sum(values) for values in zip(*ranks, strict=True)]
    assert min(map(min, ranks)) < -1000
    assert max(map(max, ranks)) > 1000
