"""Wilson's interval, against values that are printed elsewhere."""

from __future__ import annotations

import pytest

from surefoot.stats.intervals import wilson


@pytest.mark.parametrize(
    ("found", "trials", "low", "high"),
    [
        # R 4.3, prop.test(…, correct = FALSE)
        (0, 100, 0.0, 0.0370),
        (5, 100, 0.0215, 0.1118),
        (50, 100, 0.4038, 0.5962),
        (100, 100, 0.9630, 1.0),
        (1, 2, 0.0945, 0.9055),
    ],
)
def test_published_values(found: int, trials: int, low: float, high: float) -> None:
    assert wilson(found, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(("found", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_what_is_no_proportion_is_refused(found: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no proportion"):
        wilson(found, trials)
    with pytest.raises(ValueError, match="no proportion"):
        wilson(1, 5, confidence=1.0)
