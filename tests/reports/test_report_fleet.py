"""The drift matrix in the terminal and on the page: all of it, for two nodes and for a thousand."""

from __future__ import annotations

import io
import random
import re
from html import unescape
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

import sample_run
from surefoot.hardware.fleet import Fleet, Unknown, compare
from surefoot.hostlist import expand
from surefoot.reports.fleet import MOST_ROWS, show_fleet, view
from surefoot.reports.html import render

LONG = "rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2"
Told = dict[str, dict[str, str | Unknown] | Unknown]


def thousand() -> Told:
    """1,000 nodes with a few drifts of each kind, and one fact in which half of them differ."""
    node: dict[str, str | Unknown] = {"driver": "580.159.03", "kernel": "6.8.0-45-generic", "root.options": LONG}
    node |= {f"gpu{g}.{fact}": f"{fact} {g}" for g in range(8) for fact in ("vbios", "ecc", "name")}
    alike = {f"gpu{number:04d}": dict(node) for number in range(1, 1001)}
    alike["gpu0017"]["driver"] = alike["gpu0041"]["driver"] = "580.142"
    alike["gpu0100"]["root.options"] = LONG.replace("600", "100")
    alike["gpu0200"]["gpu3.ecc"] = Unknown("NvmlError: not permitted")
    for host in random.Random(1).sample(sorted(alike), 480):
        alike[host]["kernel"] = "6.8.0-44-generic"
    for key in ("gpu7.vbios", "gpu7.ecc", "gpu7.name"):
        del alike["gpu0500"][key]
    return {**alike, "gpu0999": Unknown("no report after 60 s")}


def two() -> Told:
    node: dict[str, str | Unknown] = {
        "driver": "580.159.03",
        "kernel": "6.14.0",
        "os": "DGX OS 7",
        "root.options": LONG,
    }
    return {"spark-1": dict(node), "spark-2": {**node, "driver": "580.142", "kernel": Unknown("no permission")}}


THOUSAND, TWO = compare(thousand()), compare(two())


def in_terminal(fleet: Fleet, *, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    found = view({"fleet": fleet.cells()})
    assert found is not None
    show_fleet(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def on_page(fleet: Fleet) -> str:
    run = sample_run.passed_run().with_details("precheck", {"fleet": fleet.cells()})
    html = render(run.manifest, run.results, run.overall)
    return html.split('<div class="fleet">')[1].split("</main>")[0]


def text(html: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)))


@pytest.mark.parametrize("fleet", [TWO, THOUSAND], ids=["two nodes", "a thousand"])
@pytest.mark.parametrize("width", [200, 100, 80])
def test_the_terminal_s_table_fits_100_columns_and_a_narrower_window(fleet: Fleet, width: int) -> None:
    assert max(map(len, in_terminal(fleet, width=width).splitlines())) <= min(100, width)


def test_of_a_thousand_nodes_those_that_differ_are_named_and_the_others_counted() -> None:
    said = in_terminal(THOUSAND)
    assert re.search(r"driver +580\.159\.03 +997 +all others", said)
    assert re.search(r"580\.142 +2 +gpu\[0017,0041\]", said)
    assert re.search(r"gpu7\.\* \(3 facts\) +there +998", said)
    assert re.search(r"unknown \(NvmlError: not +1 +gpu0200", said)
    assert "gpu0999 told nothing: no report after 60 s" in said
    assert "999 nodes: 20 facts alike on all that are compared." in said


def test_two_nodes_stand_side_by_side() -> None:
    said = in_terminal(TWO)
    assert re.search(r"fact +spark-1 +spark-2", said)
    assert re.search(r"driver +580\.159\.03 +580\.142", said)
    assert re.search(r"kernel +6\.14\.0 +unknown \(no permission\)", said)
    assert "2 nodes: 2 facts alike on all that are compared." in said


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("xxyz"), min_size=3, max_size=60))
@example(["x", "x", "y", "x", "z"] * 12)
def test_no_node_is_lost_in_the_terminal(values: list[str]) -> None:
    told: Told = {f"n{n}": {"fact": f"value-{value}"} for n, value in enumerate(values)}
    rows = in_terminal(compare(told))
    hosts: dict[str, str] = {}
    for value, listed in re.findall(r"(?:value-(\w) +\d+|^ {20,}) +(all others|[n\d\[\],-]+) *$", rows, re.MULTILINE):
        last = value or list(hosts)[-1]
        hosts[last] = hosts.get(last, "") + listed
    if len(set(values)) > 1:
        assert hosts.keys() == set(values)
    for value, listed in hosts.items():
        assert listed == "all others" or expand(listed) == [f"n{n}" for n, v in enumerate(values) if v == value]


def test_what_the_terminal_cuts_short_stands_on_the_page() -> None:
    fleet = THOUSAND
    assert "… (see the report)" in re.sub(r"\s+", " ", in_terminal(fleet))
    kernel = next(row for row in fleet.cells()["rows"] if row["fact"] == "kernel")
    hosts = kernel["shares"][1]["hosts"]
    assert len(expand(hosts)) == 480
    assert hosts in text(on_page(fleet))


def test_the_page_has_what_differs_open_and_what_agrees_folded() -> None:
    html = on_page(THOUSAND)
    assert text(html).startswith(" Facts across 999 nodes gpu0999 told nothing: no report after 60 s")
    assert "20 facts alike on all nodes that are compared" in html
    assert html.index("580.142") < html.index("20 facts alike") < html.index("name 0")


def test_two_nodes_have_a_column_each_on_the_page() -> None:
    assert "fact spark-1 spark-2 driver 580.159.03 580.142" in text(on_page(TWO))


def test_many_rows_are_counted_where_they_are_left_out() -> None:
    told: Told = {f"n{n}": {f"fact {chr(65 + k)}{k * 7 % 97}": f"{n % 3}{k}" for k in range(60)} for n in range(9)}
    fleet = compare(told)
    assert f"… and {len(fleet.rows) - MOST_ROWS} more rows: see the report" in in_terminal(fleet)


def test_values_from_nodes_rewrite_neither_the_terminal_nor_the_page() -> None:
    evil = "<script>alert(1)</script>\x1b[31m\u202e"
    told: Told = {f"n{n}": {"driver": evil if n else "580", f"x{evil}": "1"} for n in range(3)}
    fleet = compare({**told, "n7": Unknown(evil)})
    assert not re.search("[\x1b\u202e]", in_terminal(fleet))
    html = on_page(fleet)
    assert "<script>alert" not in html
    assert "\x1b" not in html


@pytest.mark.parametrize(
    "details",
    [{}, {"fleet": None}, {"fleet": []}, {"fleet": {"rows": "x"}}, {"fleet": {"hosts": "n1", "count": 1, "silent": [], "odd": [], "rows": [{}]}}],
)  # fmt: skip
def test_what_is_no_matrix_is_not_drawn(details: dict[str, Any]) -> None:
    assert view(details) is None
    run = sample_run.passed_run().with_details("precheck", details)
    assert '<div class="fleet">' not in render(run.manifest, run.results, run.overall)


def test_a_lone_node_is_not_said_to_agree() -> None:
    fleet = compare({"n1": {"driver": "580"}})
    assert "1 node: 0 facts alike" in in_terminal(fleet)
    assert "No fact is known to be alike on two nodes" in text(on_page(fleet))
