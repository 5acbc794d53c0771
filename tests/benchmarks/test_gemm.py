"""The error bound of a product lets rounding through and nothing else; impossible figures are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from surefoot.benchmarks.gemm import Product, sample_bound, sample_problems, tflops
from surefoot.benchmarks.positions import sample_positions

SIZE, SAMPLES = 64, 4


def product(**changes: Any) -> Product:
    samples = [
        {"row": row, "column": column, "value": 3.0, "reference": 3.0, "magnitude": 40.0}
        for row, column in sample_positions(SIZE, SAMPLES, 0)
    ]
    good: dict[str, Any] = {
        "dtype": "float32", "size": SIZE, "batch": 2, "times_s": [0.25, 0.25], "wall_s": 1.0,
        "digest_before": "0" * 64, "digest_after": "0" * 64, "samples": samples, "exact_rows": SIZE, "exact_rows_wrong": 0,
    }  # fmt: skip
    return Product.model_validate({**good, **changes})


def test_a_possible_product_is_accepted_and_its_rate_is_two_n_cubed_over_the_median_time() -> None:
    assert product().impossible(SIZE, SAMPLES, 1.0, 0) == ""
    assert tflops(product()) == 2 * SIZE**3 / 0.25 / 1e12


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"times_s": [0.0, 0.25]}, "none"),
        ({"times_s": [0.25]}, "add up"),
        ({"times_s": [0.5, 0.5]}, "add up"),
        ({"wall_s": 0.5, "times_s": [0.125, 0.125]}, "sustained"),
        ({"size": 32}, "asked for"),
        ({"exact_rows": 10}, "asked for"),
        ({"samples": []}, "samples"),
    ],
)
def test_figures_that_cannot_be_are_refused(changes: dict[str, Any], word: str) -> None:
    assert word in product(**changes).impossible(SIZE, SAMPLES, 1.0, 0)


def test_samples_of_another_rank_are_refused() -> None:
    assert "samples" in product().impossible(SIZE, SAMPLES, 1.0, 1)


def test_a_value_outside_the_bound_is_a_problem_and_one_inside_is_not() -> None:
    good = product()
    bound = sample_bound(good, good.samples[0])
    for factor, problems in ((0.9, 0), (1.1, 1)):
        sample = good.samples[0].model_copy(update={"value": 3.0 + factor * bound})
        assert len(sample_problems(good.model_copy(update={"samples": (sample, *good.samples[1:])}))) == problems


def test_narrow_formats_have_wider_bounds() -> None:
    sample = product().samples[0]
    bounds = [sample_bound(product(dtype=dtype), sample) for dtype in ("float32", "bf16", "tf32")]
    assert bounds == sorted(bounds)
    assert bounds[0] < 1e-3 < bounds[1]


def test_a_figure_that_is_no_number_is_no_record() -> None:
    with pytest.raises(ValidationError):
        product(wall_s=float("nan"))
