"""Which rows go to which rank in which step. Pure, so that judging recomputes it exactly. No torch."""

from __future__ import annotations

import random
from dataclasses import dataclass

from surefoot.errors import RequestError


@dataclass(frozen=True)
class BatchPlan:
    """How the global batch is split: ``global = world size × micro-batch × accumulation``."""

    world_size: int
    micro_batch_size: int
    accumulation: int

    @property
    def global_batch_size(self) -> int:
        return self.world_size * self.micro_batch_size * self.accumulation


def plan_batches(global_batch_size: int, world_size: int, micro_batch_size: int | None) -> BatchPlan:
    """The split of a global batch over ranks. Without a micro-batch: the largest, so no accumulation.

    Raises RequestError when the global batch is not ``world size × micro-batch × a whole number``.
    """
    if global_batch_size % world_size:
        raise RequestError(
            f"global_batch_size {global_batch_size} cannot be shared evenly by {world_size} ranks",
            next_action=f"let the recipe say global_batch_size: {-(-global_batch_size // world_size) * world_size}, "
            "or run on a number of ranks that divides it",
        )
    per_rank = global_batch_size // world_size
    micro = micro_batch_size or per_rank
    if per_rank % micro:
        fitting = max(size for size in range(1, min(micro, per_rank) + 1) if per_rank % size == 0)
        raise RequestError(
            f"global_batch_size {global_batch_size} is not {world_size} ranks × micro_batch_size {micro} × a whole number",
            next_action=f"let the recipe say micro_batch_size: {fitting}, or leave it out",
        )
    return BatchPlan(world_size, micro, per_rank // micro)


def steps_per_epoch(rows: int, global_batch_size: int) -> int:
    """Optimiser steps that visit every row once; the last one may be smaller."""
    return -(-rows // global_batch_size)


def step_rows(rows: int, *, global_batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Row numbers (from 0) of each step's global batch in one epoch (from 0): a seeded permutation, cut.

    Every row is in exactly one step. The order does not depend on ranks or micro-batches.
    """
    order = list(range(rows))
    random.Random(f"surefoot:{seed}:{epoch}").shuffle(order)
    return [order[start : start + global_batch_size] for start in range(0, rows, global_batch_size)]


def rank_rows(batch: list[int], rank: int, world_size: int) -> list[int]:
    """A rank's share of a global batch: every row at exactly one rank, shares differ by one row at most.

    In the uneven last batch of an epoch a rank may have none.
    """
    return batch[rank::world_size]
