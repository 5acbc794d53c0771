"""Answers to evaluation items, and how they were scored. One JSON line each, under a header line."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from surefoot.model.base import Record

Scorer = Literal["exact", "qa", "json"]


class Task(Record):
    """One evaluation item, or one training row (then `answer` is the target)."""

    id: str = Field(min_length=1)
    category: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    answer: str = Field(min_length=1)
    scorer: Scorer = "exact"


class Outcome(StrEnum):
    """Five different things; only the first two are about what the model knows."""

    CORRECT = "correct"
    WRONG = "wrong"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    """Stopped by the token limit and not correct."""
    ERROR = "error"
    """The machinery failed to get an answer."""


class AnswersHeader(Record):
    """First line of an answers file."""

    kind: Literal["surefoot-answers"] = "surefoot-answers"
    version: Literal[1] = 1
    prompt_set: str
    prompt_set_digest: str
    count: int = Field(ge=0)
    """Items in the prompt set: the number of lines that must follow."""
    model: str
    """``base`` or ``adapter``."""
    model_digest: str
    run: str = ""
    nonce: str = ""


class Answer(Record):
    """One answer, verbatim, with its score."""

    id: str
    category: str
    prompt_digest: str
    """sha256 (hex) of the rendered token ids, as JSON: identical prompts have identical digests."""
    expected: str
    answer: str
    """As the model gave it, special tokens removed, white space at the ends kept."""
    outcome: Outcome
    strict: float = Field(ge=0, le=1)
    """1 when the answer is right in the form asked for."""
    lenient: float = Field(ge=0, le=1)
    """1 when the right answer is in there, in whatever form."""
    latency_s: float = Field(ge=0)
    """Wall time of the batch that it was answered in, divided by the batch's items."""
    new_tokens: int = Field(default=0, ge=0)
    scorer: Scorer = "exact"
    error: str = ""


class AnswerSet(Record):
    """All answers of one model to one prompt set, in the order of the prompt set."""

    header: AnswersHeader
    answers: tuple[Answer, ...]

    @property
    def correct(self) -> int:
        """Answers that are right in the form asked for."""
        return sum(answer.outcome is Outcome.CORRECT for answer in self.answers)

    @property
    def accuracy(self) -> float | None:
        """Share of correct answers; None for the empty set."""
        return self.correct / len(self.answers) if self.answers else None
