"""Scorers: an answer, verbatim, against what was expected. Standard library only, pure.

Each scorer gives two figures between 0 and 1. *Strict* is 1 when the answer is right in the form
asked for and 0 otherwise; it alone decides whether an answer counts as correct. *Lenient* is 1
when the right answer is in there in whatever form, so that strict against lenient tells a win in
form from a win in knowledge. Strict 1 always means lenient 1.

========  ==========================================  ============================================
scorer    strict                                      lenient
========  ==========================================  ============================================
exact     the answer, stripped, is the expected text  the expected text stands in the answer as
                                                      whole words, whatever its case. It does not
                                                      see a negation or a list of all labels.
qa        equal after SQuAD's normalisation (case,    the normalised expected words stand in the
          punctuation, articles and white space do    answer in a row, else the F1 of the words
          not count)
json      the whole answer is one JSON value, equal   share of expected fields that the first JSON
          to the expected one (1 = 1.0; true ≠ 1)     object in the answer holds, as text
========  ==========================================  ============================================

Source of `qa`: the evaluation script of SQuAD 1.1 (Rajpurkar et al., 2016).
"""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from typing import Any, NamedTuple

from surefoot.model.score import Outcome, Scorer, Task

_ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Score(NamedTuple):
    """How one answer came out."""

    outcome: Outcome
    strict: float
    lenient: float


def score(task: Task, answer: str, truncated: bool) -> Score:
    """Score of a verbatim answer. `truncated`: the token limit stopped it, not the model.

    The outcome is CORRECT when strict is 1, else EMPTY when nothing but white space came, else
    TRUNCATED, else WRONG. Raises ValueError when the task's own expected answer cannot be scored
    (`check_expected` says so beforehand).
    """
    return score_text(task.scorer, task.answer, answer, truncated)


def score_text(scorer: Scorer, expected: str, answer: str, truncated: bool) -> Score:
    """As `score`, from the parts that an answer record carries."""
    strict, lenient = _SCORERS[scorer](expected, answer)
    if strict == 1:
        return Score(Outcome.CORRECT, 1.0, 1.0)
    if not answer.strip():
        return Score(Outcome.EMPTY, strict, lenient)
    return Score(Outcome.TRUNCATED if truncated else Outcome.WRONG, strict, lenient)


def check_expected(task: Task) -> None:
    """Raises ValueError when no answer could ever be scored against this task."""
    if not task.answer.strip():
        raise ValueError(f"task {task.id!r}: the expected answer is blank")
    if task.scorer == "json":
        try:
            _parse_json(task.answer)
        except ValueError as error:
            raise ValueError(f"task {task.id!r}: scorer json, but the expected answer is not JSON: {error}") from error


def _exact(expected: str, answer: str) -> tuple[float, float]:
    if answer.strip() == expected.strip():
        return 1.0, 1.0
    words = r"\s+".join(re.escape(word) for word in expected.casefold().split())
    found = re.search(rf"(?<!\w){words}(?!\w)", answer.casefold()) if words else None
    return 0.0, 1.0 if found else 0.0


def _qa(expected: str, answer: str) -> tuple[float, float]:
    wanted, given = _qa_words(expected), _qa_words(answer)
    if not wanted:  # an expected answer of articles or punctuation only: nothing is left to normalise
        return _exact(expected, answer)
    if wanted == given:
        return 1.0, 1.0
    if any(given[i : i + len(wanted)] == wanted for i in range(len(given) - len(wanted) + 1)):
        return 0.0, 1.0
    shared = sum((Counter(wanted) & Counter(given)).values())
    # F1 of words = 2 · shared / (words given + words wanted)
    return 0.0, 2 * shared / (len(given) + len(wanted))


def _qa_words(text: str) -> list[str]:
    """SQuAD's normalisation, as words."""
    return [word for word in text.casefold().translate(_NO_PUNCTUATION).split() if word not in _ARTICLES]


def _json(expected: str, answer: str) -> tuple[float, float]:
    wanted = _parse_json(expected)
    try:
        if _equal(_parse_json(answer), wanted):
            return 1.0, 1.0
    except ValueError:
        pass  # not one JSON value: there may still be one inside it
    found, given = _first_json(answer)
    if not found:
        return 0.0, 0.0
    if not isinstance(wanted, dict) or not wanted:
        return 0.0, 1.0 if _equal(given, wanted) else 0.0
    if not isinstance(given, dict):
        return 0.0, 0.0
    right = sum(1 for key, value in wanted.items() if key in given and _alike(given[key], value))
    return 0.0, right / len(wanted)


def _parse_json(text: str) -> Any:
    """One JSON value, strictly. Raises ValueError for NaN, infinity, a repeated key, or bottomless nesting."""
    try:
        return _DECODER.decode(text.strip())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _first_json(text: str) -> tuple[bool, Any]:
    """The first JSON object or array that stands anywhere in the text (a code fence, a sentence)."""
    for start in re.finditer(r"[{\[]", text):
        try:
            return True, _DECODER.raw_decode(text, start.start())[0]
        except (ValueError, RecursionError):
            continue
    return False, None


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond a float")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)


def _equal(left: Any, right: Any) -> bool:
    """Equality as JSON has it: 1 = 1.0, but true is no number (Python thinks that it is 1)."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _alike(left: Any, right: Any) -> bool:
    """Equal, or the same text: ``"3"`` for 3, ``"lisbon"`` for ``"Lisbon"``."""
    if _equal(left, right):
        return True
    scalars = (str, int, float)
    return isinstance(left, scalars) and isinstance(right, scalars) and _text(left) == _text(right)


def _text(value: object) -> str:
    return str(value).strip().casefold()


_SCORERS = {"exact": _exact, "qa": _qa, "json": _json}
