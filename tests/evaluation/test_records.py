"""Answer files are read complete, or refused with file and line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answer_sets import answer_set, as_text, with_counts
from surefoot.errors import EvidenceError
from surefoot.evaluation.records import (
    check_header,
    merge_parts,
    prompt_digest,
    read_answers,
    rescored,
    single_sample,
)
from surefoot.model.score import AnswerSet, Outcome

BASE = with_counts("base", 0, 8, 10)
LINES = as_text(BASE).splitlines()


def text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def edited(line: int, **changes: object) -> str:
    """The file with fields of line `line` (from 1) changed."""
    lines = list(LINES)
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changes})
    return text(lines)


def test_what_was_written_is_read_back() -> None:
    assert read_answers(as_text(BASE), file="answers.jsonl") == BASE


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        ("", "empty"),
        (as_text(BASE)[:-1], "answers.jsonl:51: cut off"),
        (as_text(BASE)[:-40], "answers.jsonl:51: cut off"),
        (text(LINES[:-1]), "answers.jsonl:50: the header says 50 answers, 49 follow"),
        (text(LINES[1:]), "answers.jsonl:1: .*"),
        (text([*LINES, LINES[-1]]), "answers.jsonl:52: id 'json_extraction-09' is answered twice"),
        (text([*LINES[:3], LINES[2], *LINES[4:]]), "answers.jsonl:4: id 'classification-01' is answered twice"),
        (text([*LINES[:5], "", *LINES[5:]]), "answers.jsonl:6: blank line"),
        (text([LINES[0], LINES[0], *LINES[2:]]), "answers.jsonl:2: "),
        (text(LINES).replace("0.02", "NaN", 1), "answers.jsonl:2: not valid JSON: NaN"),
        (edited(3, strict=2), "answers.jsonl:3: strict"),
        (edited(3, latency_s=-1), "answers.jsonl:3: latency_s"),
        (edited(3, outcome="fine"), "answers.jsonl:3: outcome"),
        (edited(3, note="x"), "answers.jsonl:3: note"),
        (edited(1, count=49), "the header says 49 answers, 50 follow"),
        (edited(1, kind="other"), "answers.jsonl:1: kind"),
        (text([LINES[0]]), "the header says 50 answers, 0 follow"),
    ],
)
def test_a_damaged_file_is_refused_by_file_and_line(damaged: str, problem: str) -> None:
    with pytest.raises(EvidenceError, match=problem):
        read_answers(damaged, file="answers.jsonl")


@given(st.integers(0, len(as_text(BASE)) - 1))
def test_no_prefix_of_a_file_is_a_file(length: int) -> None:
    with pytest.raises(EvidenceError):
        read_answers(as_text(BASE)[:length], file="answers.jsonl")


def test_a_file_of_another_model_run_or_attempt_is_refused() -> None:
    check_header(BASE, file="a", model="base", run="run-1", nonce="nonce-1")
    with pytest.raises(EvidenceError, match="a:1: model is 'base', asked for was 'adapter'"):
        check_header(BASE, file="a", model="adapter", run="run-1", nonce="nonce-1")
    with pytest.raises(EvidenceError, match="run is 'run-1'"):
        check_header(BASE, file="a", model="base", run="run-2", nonce="nonce-1")
    with pytest.raises(EvidenceError, match="nonce is 'nonce-1'"):
        check_header(BASE, file="a", model="base", run="run-1", nonce="nonce-2")


def split(whole: AnswerSet, width: int) -> list[AnswerSet]:
    return [answer_set(whole.header.model, whole.answers[rank::width]) for rank in range(width)]


@given(st.integers(1, 7))
def test_parts_of_any_world_size_merge_into_the_whole(width: int) -> None:
    files = [f"part-{rank}" for rank in range(width)]
    assert merge_parts(split(BASE, width), files=files) == BASE


def test_parts_that_do_not_fit_together_are_refused() -> None:
    first, second = split(BASE, 2)
    with pytest.raises(EvidenceError, match="id 'classification-00' is answered in part-0 too"):
        merge_parts([first, first], files=["part-0", "part-1"])
    short = answer_set("base", second.answers[:-1])
    with pytest.raises(EvidenceError, match=r"part-[01]:"):
        merge_parts([short, first], files=["part-0", "part-1"])
    other = second.model_copy(update={"header": second.header.model_copy(update={"model_digest": "f" * 64})})
    with pytest.raises(EvidenceError, match="part-1:1: model_digest differ from part-0"):
        merge_parts([first, other], files=["part-0", "part-1"])
    with pytest.raises(EvidenceError, match="no parts"):
        merge_parts([], files=[])


def test_an_edited_score_does_not_survive_scoring_again() -> None:
    right, wrong = BASE.answers[30], BASE.answers[0]
    assert rescored(right, 32) == ""
    assert "lenient" in rescored(wrong.model_copy(update={"lenient": 0.0}), 32)
    assert "outcome" in rescored(wrong.model_copy(update={"outcome": Outcome.CORRECT, "strict": 1.0}), 32)
    assert "outcome" in rescored(right.model_copy(update={"answer": "Oslo"}), 32)
    assert "truncated" in rescored(wrong, max_new_tokens=wrong.new_tokens)


def test_the_sample_is_the_same_for_program_and_judge() -> None:
    assert single_sample(50, 8, 0) == single_sample(50, 8, 0)
    assert single_sample(50, 8, 0) != single_sample(50, 8, 1)
    assert single_sample(5, 8, 0) == (0, 1, 2, 3, 4)
    assert single_sample(5, 0, 0) == ()


def test_a_prompt_digest_depends_on_every_token_and_their_order() -> None:
    digests = {prompt_digest(ids) for ids in ([1, 2, 3], [1, 3, 2], [12, 3], [1, 2], [1, 2, 3, 0])}
    assert len(digests) == 5
