"""Charts place what was measured, leave out what was not, and say it in words too."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

import sample_run
from surefoot.model.verdict import CategoryCount
from surefoot.reports import charts, details
from surefoot.reports.details import Curve, CurvePoint, LossPoint

CURVES = details.curves(sample_run.passed_run().results)


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("text")]  # noqa: S314 (our own output)


def test_every_chart_is_well_formed_and_has_a_title_and_a_description() -> None:
    run = sample_run.passed_run()
    loss = details.training(run.results).loss
    drawn = (
        charts.collective_times(CURVES), charts.collective_bandwidths(CURVES), charts.loss_curve(loss),
        charts.learning_rate(loss), charts.category_bars(sample_run.CATEGORIES),
    )  # fmt: skip
    for svg in drawn:
        root = ET.fromstring(svg)  # noqa: S314 (our own output)
        assert root.findtext("title")
        assert root.findtext("desc")
        assert root.get("aria-label")


def test_sizes_times_and_rates_have_human_ticks_and_lines_their_names() -> None:
    times, rates = texts(charts.collective_times(CURVES)), texts(charts.collective_bandwidths(CURVES))
    assert {"8 B", "1 KiB", "1 MiB", "32 MiB", "100 µs", "10 ms"} <= set(times)
    assert {"1 GB/s", "100 MB/s"} <= set(rates)
    assert set(sample_run.curves()) <= set(times)


def test_floor_and_plateau_are_labelled_with_the_figures_of_the_first_collective() -> None:
    rows = sample_run.curves()["all_reduce"]
    floor = min(row["time_us"] or 0 for row in rows)
    assert f"latency floor {floor:.1f} µs" in texts(charts.collective_times(CURVES))
    assert any(
        text.startswith("plateau 1.") and text.endswith("at 32 MiB")
        for text in texts(charts.collective_bandwidths(CURVES))
    )


def test_a_bandwidth_that_still_rises_is_called_a_peak_and_no_plateau() -> None:
    points = tuple(CurvePoint(8 * 4**n, 10.0, 0.1 * 2**n, None) for n in range(5))
    labels = texts(charts.collective_bandwidths([Curve("all_reduce", points)]))
    assert any(label.startswith("peak ") for label in labels)
    assert not any("plateau" in label for label in labels)


def test_an_unmeasured_size_is_left_out_and_no_curve_is_no_chart() -> None:
    points = (CurvePoint(8, 10.0, None, None), CurvePoint(64, None, 0.5, None))
    assert charts.collective_times([Curve("a", points)]).count("<circle") == 1
    assert charts.collective_times([Curve("a", (CurvePoint(8, None, None, None),))]) == ""
    assert charts.loss_curve(()) == ""
    assert charts.category_bars(()) == ""


def test_labels_of_lines_that_meet_do_not_overlap() -> None:
    placed = charts._spread([100.0, 101.0, 99.0, 260.0], low=34, high=262)
    gaps = [b - a for a, b in zip(sorted(placed), sorted(placed)[1:], strict=False)]
    assert min(gaps) >= charts._LINE_HEIGHT - 1e-9
    assert placed[2] < placed[0] < placed[1]
    assert max(placed) <= 262
    at_the_top = charts._spread([34.0, 34.0, 35.0], low=34, high=262)
    assert at_the_top == [34.0, 49.0, 64.0]


def test_a_spike_survives_the_thinning_of_a_long_curve() -> None:
    points = [LossPoint(n, 1.0, None) for n in range(1, 5001)]
    points[3210] = LossPoint(3211, 9.0, None)
    thin = charts._thin(points)
    assert len(thin) < 700
    assert points[3210] in thin
    assert (thin[0], thin[-1]) == (points[0], points[-1])


def test_the_trailing_mean_is_the_mean_of_the_last_window() -> None:
    points = [LossPoint(n, float(n), None) for n in range(1, 6)]
    assert [p.loss for p in charts.trailing_mean(points, 3)] == [1.0, 1.5, 2.0, 3.0, 4.0]


def test_bars_are_as_long_as_their_share_and_carry_their_counts() -> None:
    count = CategoryCount(
        category="qa",
        items=10,
        base_correct=5,
        adapter_correct=10,
        base_lenient=7.5,
        adapter_lenient=10,
        gained=5,
        lost=0,
    )
    svg = charts.category_bars([count])
    widths = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', svg)]
    base_lenient, base, adapter_lenient, adapter = widths
    assert base == pytest.approx(adapter / 2)
    assert base_lenient == pytest.approx(adapter * 0.75)
    assert adapter_lenient == adapter
    assert {"5 / 10", "10 / 10"} <= set(texts(svg))


def test_the_loss_curve_tells_its_first_and_its_last_value() -> None:
    told = texts(charts.loss_curve([LossPoint(1, 2.5, None), LossPoint(2, 0.125, None)]))
    assert "first step 2.50, last step 0.125" in told


def test_a_category_without_items_says_so_and_has_no_bar() -> None:
    svg = charts.category_bars(
        [
            CategoryCount(
                category="qa",
                items=0,
                base_correct=0,
                adapter_correct=0,
                base_lenient=0,
                adapter_lenient=0,
                gained=0,
                lost=0,
            )
        ]
    )
    assert "no items" in texts(svg)
    assert "<rect" not in svg


@pytest.mark.parametrize("losses", [[-1.0], [0.0], [-1.0, -3.0], [-1e-9, 2.0]])
def test_a_loss_that_is_not_positive_is_drawn(losses: list[float]) -> None:
    drawn = charts.loss_curve([details.LossPoint(step, loss, None) for step, loss in enumerate(losses)])
    assert "Training loss" in str(drawn)
