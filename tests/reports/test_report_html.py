"""report.html says what it was given, escapes everything and needs nothing but itself."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_run
from sample_run import Run
from surefoot.model.check import Check, Evidence
from surefoot.model.run import Judgement
from surefoot.model.status import Status
from surefoot.reports.html import evidence_link, render

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}\x00\x1b[31m\u202e"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """The page's elements; raises when a tag is closed that isn't open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]


def page(run: Run, **options: str) -> Page:
    return Page(render(run.manifest, run.results, run.overall, **options))


@pytest.mark.parametrize("name", ["passed", "failed", "interrupted"])
def test_every_tag_is_closed_and_headings_do_not_skip_a_level(name: str) -> None:
    found = page(sample_run.all_runs()[name])
    assert found.open == []
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_page_refers_to_nothing_outside_itself_but_evidence() -> None:
    found = page(sample_run.passed_run())
    assert not any("src" in attrs for _, attrs in found.tags)
    links = [attrs["href"] for tag, attrs in found.tags if "href" in attrs and tag in ("a", "link", "use")]
    assert all(link.startswith(("#", "./rungs/", "./inputs/", "data:,")) for link in links)
    policy = next(a["content"] for a in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("passed", "PASSED: 14 of 14 rungs proved"),
        ("failed", "FAILED: 9 of 14 rungs proved, 1 failed, 4 blocked"),
        ("interrupted", "ERROR: 8 of 14 rungs proved, 1 error, 2 inconclusive, 2 blocked, 1 skipped"),
    ],
)
def test_the_headline_counts_the_statuses_it_was_given(name: str, headline: str) -> None:
    assert headline in page(sample_run.all_runs()[name]).text


def test_the_page_shows_the_overall_status_it_was_given_and_computes_none() -> None:
    run = sample_run.passed_run()
    found = Page(render(run.manifest, run.results, Status.INCONCLUSIVE))
    assert "INCONCLUSIVE: 14 of 14 rungs proved" in found.text
    assert "Exit code 2" in found.text


def test_what_failed_stands_first_with_figures_evidence_and_next_action() -> None:
    text = page(sample_run.failed_run()).text
    first = text[text.index("Look here first") : text.index("The ladder")]
    for part in ("Fake trainer", "exit 0", "exit 1", "raw/fake_trainer/done.json:1", "take that out"):
        assert part in first


def test_a_failed_rung_is_unfolded_and_a_passed_one_folded() -> None:
    run = sample_run.failed_run()
    html = render(run.manifest, run.results, run.overall)
    rungs = dict(re.findall(r'id="rung-(\w+)">.*?<details( open)?>', html, re.DOTALL))
    assert rungs["fake_trainer"] == " open"
    assert rungs["runner"] == ""


def test_every_status_is_a_word_and_a_sign_of_its_own_not_only_a_colour() -> None:
    found = page(sample_run.interrupted_run())
    signs = {attrs["href"] for attrs in found.all("use")}
    for status in ("passed", "inconclusive", "error", "blocked", "skipped"):
        assert f"#i-{status}" in signs
        assert status.upper() in found.text


def test_hostile_text_is_shown_and_never_run() -> None:
    run = sample_run.passed_run()
    seen = Evidence(file=f"rungs/x/{HOSTILE}", line=3, text=HOSTILE)
    wrong = Check(
        id=HOSTILE, claim=HOSTILE, status=Status.FAILED, expected=HOSTILE, actual=HOSTILE, unit=HOSTILE,
        evidence=(seen,), derivation=HOSTILE, next_action=HOSTILE,
    )  # fmt: skip
    old = run.result("storage")
    run = run.with_result(old.model_copy(update={
        "title": HOSTILE, "proves": HOSTILE, "status": Status.FAILED, "reason": HOSTILE,
        "judgement": Judgement(checks=(wrong,), summary=HOSTILE),
    }))  # fmt: skip
    answers = [
        dict.fromkeys(
            ("id", "category", "prompt", "expected", "base", "adapter", "base_outcome", "adapter_outcome"), HOSTILE
        )
    ]
    run = run.with_details(
        "evaluate", {"changed": answers, "categories": [{**sample_run.CATEGORIES[0].canonical(), "category": HOSTILE}]}
    )
    run = run.with_details("precheck", {"nodes": [{"host": HOSTILE, HOSTILE: HOSTILE}]})
    run = run.with_details("review", {"lineage": {HOSTILE: HOSTILE}, "proposal": [HOSTILE], "decision": HOSTILE})
    run = run.with_details("collectives", {"curves": {HOSTILE: sample_run.curves()["all_reduce"]}})
    html = render(
        run.manifest.model_copy(update={"host": HOSTILE, "command": ("surefoot", HOSTILE)}), run.results, run.overall
    )
    found = Page(html)
    assert len(found.all("script")) == 1
    assert found.all("img") == []
    assert not any(key.startswith("on") for _, attrs in found.tags for key in attrs)
    assert found.text.count("<script>alert('x')</script>") > 20
    assert "{{ 7*7 }}" in found.text
    assert "\x00" not in html
    assert "\x1b" not in html


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret", "rungs/../../x", "a\\b", ""])
def test_a_path_outside_the_run_is_text_and_no_link(path: str) -> None:
    assert evidence_link(path) is None


def test_a_path_is_quoted_so_that_it_stays_a_relative_link() -> None:
    assert evidence_link("javascript:alert(1)") == "./javascript%3Aalert%281%29"
    assert evidence_link("rungs/a b/#1?.json", "../runs/r/") == "../runs/r/rungs/a%20b/%231%3F.json"


def test_two_thousand_changed_answers_are_capped_and_the_rest_is_counted_and_located() -> None:
    run = sample_run.passed_run()
    rows = [{**row, "base": "very long " * 5000} for row in sample_run.changed(2000)]
    run = run.with_details("evaluate", {"changed": rows})
    html = render(run.manifest, run.results, run.overall)
    assert len(html) < 1_000_000
    text = Page(html).text
    assert "1,800 more changed answers are left out" in text
    assert "rungs/evaluate/attempt-001/raw/" in text
    assert "qa-004" in text  # the one that was lost comes first, though it stands last in the data


def test_what_was_not_measured_reads_as_missing_never_as_zero() -> None:
    run = sample_run.passed_run()
    rows = [{"size_bytes": 8, "time_us": 20.0, "algbw_gb_s": None, "busbw_gb_s": None}]
    run = run.with_details("collectives", {"curves": {"all_reduce": rows}}).with_details("finetune", {})
    text = page(run).text
    network = text[text.rindex("Network: collectives") : text.rindex("Evaluation: base against")]
    assert network.count("not measured") == 2  # the bandwidth chart and the fine-tune
    assert "all_reduce 20.0 µs - - - no" in network
    assert not re.search(r"\b0(\.0+)? [kMG]?B/s", network)


def test_a_rung_without_a_result_is_named_as_such() -> None:
    run = sample_run.passed_run()
    found = Page(render(run.manifest, run.results[:-1], Status.INCONCLUSIVE))
    assert "13 of 14 rungs proved, 1 without a result" in found.text
    assert "NO RESULT" in found.text


def test_a_run_without_any_result_still_has_a_page() -> None:
    run = sample_run.passed_run()
    assert "0 of 14 rungs proved" in Page(render(run.manifest, (), Status.INCONCLUSIVE)).text


def test_the_commands_to_reproduce_can_be_pasted_into_a_shell() -> None:
    run = sample_run.passed_run()
    cluster = run.manifest.inputs.cluster.model_copy(update={"root": "/srv/a b"})
    inputs = run.manifest.inputs.model_copy(update={"cluster": cluster})
    text = Page(render(run.manifest.model_copy(update={"inputs": inputs}), run.results, run.overall)).text
    assert "surefoot climb --cluster local --name 'after the driver update'" in text
    assert f"surefoot judge --root '/srv/a b' {sample_run.RUN_ID}" in text
    assert f"surefoot climb --root '/srv/a b' --resume {sample_run.RUN_ID}" in text


@pytest.mark.parametrize(
    ("other", "shown"),
    [("ab" * 32, "abababababab…"), ("9b" + "0" * 62, "9b0000000000…"), (sample_run.DIGEST[:-1] + "1", "6f71")],
)
def test_digests_are_shortened_unless_unlike_ones_would_look_alike(other: str, shown: str) -> None:
    run = sample_run.passed_run()
    wrong = sample_run.check("sync", "digest", "c", expected=sample_run.DIGEST, actual=other, status=Status.FAILED)
    run = run.with_result(
        run.result("sync").model_copy(update={"status": Status.FAILED, "judgement": Judgement(checks=(wrong,))})
    )
    html = render(run.manifest, run.results, run.overall)
    actual = re.findall(r"<dt>actual</dt><dd>(.*?)</dd>", html)
    assert any(shown in found for found in actual)


def test_evidence_links_begin_with_the_root_that_is_asked_for() -> None:
    found = page(sample_run.passed_run(), evidence_root="../runs/r1")
    assert "../runs/r1/rungs/storage/attempt-001/collection.json" in [a.get("href") for a in found.all("a")]


def test_the_same_run_gives_the_same_page() -> None:
    run = sample_run.passed_run()
    assert render(run.manifest, run.results, run.overall) == render(run.manifest, run.results, run.overall)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = {
    "collectives": st.fixed_dictionaries({"curves": JSON | st.dictionaries(st.text(max_size=5), st.lists(
        st.dictionaries(st.sampled_from(("size_bytes", "time_us", "busbw_gb_s")), JSON), max_size=3), max_size=2)}),
    "finetune": st.dictionaries(st.sampled_from(("loss", "time_split", "trainable", "total")), JSON | st.lists(
        st.dictionaries(st.sampled_from(("step", "loss", "lr")), st.integers() | st.floats()), max_size=4)),
    "evaluate": st.dictionaries(st.sampled_from(("categories", "changed")), JSON | st.lists(st.dictionaries(
        st.sampled_from(("id", "base", "items", "category", "base_outcome")), JSON), max_size=3)),
    "review": st.dictionaries(st.sampled_from(("lineage", "proposal", "decision")), JSON),
    "precheck": st.fixed_dictionaries({"nodes": JSON | st.lists(st.dictionaries(st.text(max_size=4), JSON), max_size=3)}),
}  # fmt: skip
SAMPLE = sample_run.passed_run()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(KEYS)).flatmap(lambda rung: st.tuples(st.just(rung), KEYS[rung])))
def test_details_of_any_shape_never_break_the_page(case: tuple[str, dict[str, object]]) -> None:
    rung, details = case
    run = SAMPLE.with_details(rung, details)
    html = render(run.manifest, run.results, run.overall)
    html.encode()
    assert Page(html).open == []
