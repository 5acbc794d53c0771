"""What each rank of a mesh goes through, in order, and the data whose sum every rank must end with.

Standard library only: ranks and judges share it.
"""

from __future__ import annotations

import random
from enum import StrEnum

LENGTH = 4096
"""Values in the all-reduced vector: 16 KiB as float32."""
LARGEST = 1024
"""Values are whole and this small, so that sums over 16,384 ranks are exact in float32 (2²⁴)."""


class Phase(StrEnum):
    """A step of a rank, in its order. Its value is how people read it."""

    IMPORT = "importing torch"
    DEVICE = "taking its device"
    RENDEZVOUS = "meeting the other ranks"
    FIRST_COLLECTIVE = "the first collective"
    CLOCKS = "comparing clocks"
    STEP = "a training step"
    ALL_REDUCE = "an all-reduce of known data"
    LEAVING = "leaving together"


ALONE = (Phase.IMPORT, Phase.DEVICE)
"""Phases in which a rank waits for nobody: one that takes much longer than the others is slow by itself."""


def known_values(seed: int, rank: int) -> list[int]:
    """The vector of one rank: `LENGTH` whole numbers of which none exceeds `LARGEST`."""
    chooser = random.Random(f"{seed} of rank {rank}")
    return [chooser.randint(-LARGEST, LARGEST) for _ in range(LENGTH)]


def summed_values(seed: int, world_size: int) -> list[int]:
    """What the all-reduce gives on every rank."""
    total = [0] * LENGTH
    for rank in range(world_size):
        total = [a + b for a, b in zip(total, known_values(seed, rank), strict=True)]
    return total


def digest_text(values: list[int]) -> str:
    """The values as text, for a digest that ranks and judges form alike."""
    return ",".join(map(str, values))
