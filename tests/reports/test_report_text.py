"""Words and figures: exact where exactness matters, "-" where there is nothing."""

from __future__ import annotations

import pytest

from surefoot.model.status import ExitCode, Status
from surefoot.reports import text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0"),
        (24.18, "24.2"),
        (1.5e-3, "0.00150"),
        (123456.0, "123,456"),
        (2e-7, "2.00e-07"),
        (-0.58, "-0.580"),
    ],
)
def test_a_figure_has_three_significant_digits_and_none_is_a_dash(value: float | None, shown: str) -> None:
    assert text.figure(value) == shown


@pytest.mark.parametrize(
    ("expected", "actual", "shown"),
    [
        (2, 2, ("2", "2")),
        (None, 0, ("-", "0")),
        (True, False, ("yes", "no")),
        ("", "x", ("(empty)", "x")),
        (0.1, 0.1 + 1e-12, ("0.1", "0.10000000000100001")),
        (1, True, ("1", "yes")),
    ],
)
def test_unlike_values_never_look_alike(expected: object, actual: object, shown: tuple[str, str]) -> None:
    assert text.value_pair(expected, actual) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (-1.0, "-"), (0.0004, "< 1 ms"), (0.21, "210 ms"), (247.0, "4 min 07 s")]
)
def test_a_duration_that_is_unknown_is_a_dash_and_a_short_one_is_not_zero(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "3", None, [3], 10**400])
def test_what_is_no_finite_figure_is_not_measured(value: object) -> None:
    assert text.number(value) is None


def test_rates_and_times_take_the_unit_that_reads_best() -> None:
    assert [text.rate(v) for v in (24.18, 0.0123, 4.2e-9, None)] == ["24.2 GB/s", "12.3 MB/s", "4.20 B/s", "-"]
    assert [text.microseconds(v) for v in (27.79, 1590.0, 2.5e6, None)] == ["27.8 µs", "1.59 ms", "2.50 s", "-"]


def test_every_status_and_exit_code_has_its_own_sign_or_word() -> None:
    assert set(text.STATUS_GLYPHS) == set(text.STATUS_STYLES) == set(Status)
    assert len(set(text.STATUS_GLYPHS.values())) == len(Status)
    assert set(text.EXIT_MEANINGS) == set(ExitCode)


def test_one_line_is_one_line() -> None:
    assert text.one_line("a\nb\x1b[31m" + "x" * 50, 12) == "a ⏎ b\ufffd[31mx…"
