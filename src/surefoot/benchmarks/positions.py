"""Which entries of a product are sampled. Standard library only: ranks and judges share it."""

from __future__ import annotations

import random


def sample_positions(size: int, count: int, rank: int) -> list[tuple[int, int]]:
    """(row, column) of `count` entries of a square matrix, the same for a rank every time."""
    chooser = random.Random(f"samples of rank {rank}")
    return [(chooser.randrange(size), chooser.randrange(size)) for _ in range(count)]
