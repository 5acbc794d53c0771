"""Scorers: strict is the form asked for, lenient is whether the right answer is in there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.evaluation.scorers import check_expected, score, score_text
from surefoot.model.score import Outcome, Task

WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def figures(scorer: Any, expected: str, answer: str) -> tuple[float, float]:
    found = score_text(scorer, expected, answer, truncated=False)
    return found.strict, found.lenient


@pytest.mark.parametrize(
    ("answer", "strict", "lenient"),
    [
        ("positive", 1, 1),
        ("  positive\n", 1, 1),
        ("Positive", 0, 1),
        ("The sentiment of this review is positive.", 0, 1),
        ("positively", 0, 0),
        ("negative", 0, 0),
        ("", 0, 0),
    ],
)
def test_exact_wants_the_label_and_leniently_finds_it_as_a_word(answer: str, strict: float, lenient: float) -> None:
    assert figures("exact", "positive", answer) == (strict, lenient)


def test_an_expected_phrase_is_found_across_white_space() -> None:
    assert figures("exact", "card not working", "It is: card  not\nworking!") == (0, 1)


@pytest.mark.parametrize(
    ("answer", "strict", "lenient"),
    [
        ("the museum", 1, 1),
        ("The Museum.", 1, 1),
        ("Museum", 1, 1),
        ("It is the museum in Oslo", 0, 1),
        ("museum library", 0, 1),
        ("the library", 0, 0),
    ],
)
def test_qa_normalises_as_squad_does(answer: str, strict: float, lenient: float) -> None:
    assert figures("qa", "the museum", answer) == (strict, lenient)


def test_qa_gives_f1_when_only_some_words_are_right() -> None:
    # 1 shared word, 2 expected, 2 given: F1 = 2·1 / (2 + 2)
    assert figures("qa", "Maria Lopez", "Maria Silva") == (0, 0.5)


@pytest.mark.parametrize(
    ("answer", "strict", "lenient"),
    [
        ('{"count": 3, "city": "Lisbon"}', 1, 1),
        ('{"count": 3.0, "city": "Lisbon"}', 1, 1),
        ('```json\n{"city": "Lisbon", "count": 3}\n```', 0, 1),
        ('Here it is: {"city": "lisbon", "count": "3"}.', 0, 1),
        ('{"city": "Lisbon", "count": 4}', 0, 0.5),
        ('{"city": "Lisbon", "count": true}', 0, 0.5),
        ('{"city": "Lisbon"}', 0, 0.5),
        ('{"city": "Lisbon", "count": 3, "day": "Monday"}', 0, 1),
        ('{"city": "Lisbon", "city": "Lisbon", "count": 3}', 0, 0),
        ('{"city": "Lisbon", "count": NaN}', 0, 0),
        ('{"city": "Lisbon", "count": 3', 0, 0),
        ("[" * 5000, 0, 0),
        ("Lisbon, 3", 0, 0),
    ],
)
def test_json_wants_the_equal_object_and_leniently_counts_fields(answer: str, strict: float, lenient: float) -> None:
    assert figures("json", '{"city": "Lisbon", "count": 3}', answer) == (strict, lenient)


def test_true_is_not_one() -> None:
    assert figures("json", '{"n": 1}', '{"n": true}') == (0, 0)
    assert figures("json", '{"n": true}', '{"n": 1}') == (0, 0)


@pytest.mark.parametrize(
    ("answer", "truncated", "outcome"),
    [
        ("positive", False, Outcome.CORRECT),
        ("positive", True, Outcome.CORRECT),
        ("negative", False, Outcome.WRONG),
        ("negative and so on", True, Outcome.TRUNCATED),
        ("", False, Outcome.EMPTY),
        (" \n\t", True, Outcome.EMPTY),
    ],
)
def test_wrong_empty_and_truncated_are_told_apart(answer: str, truncated: bool, outcome: Outcome) -> None:
    task = Task(id="t", category="c", prompt="p", answer="positive")
    assert score(task, answer, truncated).outcome is outcome


def test_a_task_that_no_answer_can_meet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"task 't'.*not JSON"):
        check_expected(Task(id="t", category="c", prompt="p", answer="{oops", scorer="json"))
    with pytest.raises(ValueError, match="blank"):
        check_expected(Task(id="t", category="c", prompt="p", answer="  "))


@given(st.sampled_from(["exact", "qa"]), WORDS, st.text(max_size=60), st.booleans())
def test_strict_is_0_or_1_and_never_above_lenient(scorer: Any, expected: str, answer: str, truncated: bool) -> None:
    found = score_text(scorer, expected, answer, truncated)
    assert found.strict in (0, 1)
    assert found.strict <= found.lenient <= 1
    assert (found.outcome is Outcome.CORRECT) == (found.strict == 1)


@given(JSON, st.text(max_size=60))
def test_json_scores_any_text_within_bounds(expected: Any, answer: str) -> None:
    found = score_text("json", json.dumps(expected), answer, truncated=False)
    assert 0 <= found.strict <= found.lenient <= 1


@given(JSON)
def test_json_accepts_the_expected_value_in_any_layout(value: Any) -> None:
    assert figures("json", json.dumps(value), json.dumps(value, indent=3, sort_keys=True)) == (1, 1)


@given(st.sampled_from(["exact", "qa"]), WORDS)
def test_the_expected_answer_is_always_correct(scorer: Any, expected: str) -> None:
    assert figures(scorer, expected, f" {expected} \n") == (1, 1)


@given(WORDS, st.text(st.characters(categories=("P", "Z")), min_size=1, max_size=5))
def test_the_label_inside_a_sentence_is_lenient(expected: str, edge: str) -> None:
    assert score_text("exact", expected, f"It is{edge} {expected} {edge}so.", truncated=False).lenient == 1
