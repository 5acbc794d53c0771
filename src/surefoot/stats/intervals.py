"""Intervals of proportions. Pure."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson(found: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (E. B. Wilson, JASA 22, 1927): of 0 of 100 it is 0 to 0.037.

    Raises ValueError where nothing was tried, or more was found than tried.
    """
    if trials < 1 or not 0 <= found <= trials or not 0 < confidence < 1:
        raise ValueError(f"{found} of {trials} at a confidence of {confidence} is no proportion")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = found / trials, z * z / trials
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
