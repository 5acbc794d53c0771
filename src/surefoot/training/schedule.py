"""Learning rate by step. Pure, so that judging recomputes it exactly. No torch."""

from __future__ import annotations

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup_ratio: float, schedule: str) -> float:
    """Learning rate of optimiser step `step` (from 1) of `steps`.

    Linear warm-up over ``ceil(warmup_ratio × steps)`` steps reaches `peak`; then ``constant``, or a
    fall that would reach 0 one step after the last: ``linear``, or half a ``cosine``.
    """
    warmup = math.ceil(warmup_ratio * steps)
    if step <= warmup:
        return peak * step / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup - 1) / max(1, steps - warmup)
    if schedule == "linear":
        return peak * (1 - done)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * done))
    raise ValueError(f"no schedule is named {schedule!r}")
