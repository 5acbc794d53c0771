"""Answer files and the evaluation's own account, as records. Pure: no torch, no I/O.

An answers file is JSON lines: an `AnswersHeader`, then exactly `count` `Answer` lines. With W ranks
each rank writes the part that holds items r, r+W, r+2W, … of the prompt set; `merge_parts` puts the
parts together again. Everything here reads text, so that files from anywhere can be read.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from surefoot.benchmarks.device import Device
from surefoot.errors import EvidenceError
from surefoot.evaluation.scorers import score_text
from surefoot.evidence import parse_json, parse_record
from surefoot.model.base import Record
from surefoot.model.score import Answer, AnswerSet, AnswersHeader, Outcome

Model = Literal["base", "adapter"]
MODELS: tuple[Model, ...] = ("base", "adapter")

PROGRAM = "surefoot.evaluation.run"


def answers_file(model: Model, rank: int, *, single: bool = False) -> str:
    """Name of a rank's part; `single`: the sample that was answered one item at a time."""
    return f"answers-{model}{'-batch1' if single else ''}.rank-{rank}.jsonl"


class AdapterLoad(Record):
    """What PEFT did with the adapter's file, tensor by tensor."""

    tensors_in_file: int = Field(ge=0)
    tensors_in_model: int = Field(ge=0)
    tensors_equal: int = Field(ge=0)
    """Tensors of the loaded model that are bit for bit those of the file."""
    parameters: int = Field(ge=0)


class Probe(Record):
    """Next-token logits of one prompt with the base and with the adapter, float32."""

    id: str
    prompt_digest: str
    base_argmax: int = Field(ge=0)
    base_max: float
    adapter_argmax: int = Field(ge=0)
    adapter_max: float
    max_abs_delta: float = Field(ge=0)
    """Largest \\|adapter - base\\| over the vocabulary; 0 means that the adapter does nothing."""


class BatchFailure(Record):
    """A batch that could not be generated as one; its items were then tried one at a time."""

    model: Model
    items: int = Field(ge=1)
    error: str


class Batch(Record):
    """One call of ``generate`` that gave answers, as it was made: read off the tensors, not off the request."""

    model: Model
    alone: bool
    """Of the sample that is answered again one item at a time."""
    ids: tuple[str, ...] = Field(min_length=1)
    prompt_tokens: tuple[Annotated[int, Field(ge=1)], ...]
    """Tokens of each prompt without padding, in the order of `ids`."""
    width: int = Field(ge=1)
    """Tokens of each row with padding: the longest prompt's."""
    seconds: float = Field(gt=0)
    smallest_gap: float | None = Field(default=None, ge=0)
    """Smallest (first - second) / |first| of the two highest logits over the answer's tokens. Measured where
    an item is answered alone in less than float32; None elsewhere."""


class Decoding(Record):
    """The generation configuration that a model held after it had answered."""

    do_sample: bool
    num_beams: int = Field(ge=1)
    max_new_tokens: int = Field(ge=1)
    repetition_penalty: float
    end_tokens: tuple[int, ...] = Field(min_length=1)
    """Any of them ends an answer."""


class EvaluationReport(Record):
    """What `surefoot.evaluation.run` says of itself (`data` of its rank report). Raw values only."""

    rank: int = Field(ge=0)
    """The rank that wrote it, so that data swapped between reports shows."""
    tasks_digest: str
    """Tree digest of the staged prompt set as read."""
    tasks: int = Field(ge=1)
    items: int = Field(ge=0)
    """Items of this rank."""
    base_digest: str
    """Tree digest of the base model's files as read."""
    adapter_digest: str
    device: Device
    """Where the model's own tensors were."""
    dtype: str
    """Of the model's parameters, as loaded."""
    decoding: dict[Model, Decoding]
    batches: tuple[Batch, ...]
    versions: dict[str, str]
    adapter_load: AdapterLoad
    probes: tuple[Probe, ...]
    batch_failures: tuple[BatchFailure, ...] = ()
    load_s: float = Field(ge=0)
    answering_s: dict[Model, float]
    """Wall time of answering all items of this rank, batched."""
    files: dict[str, str]
    """sha256 of each file that this rank wrote."""


def prompt_digest(token_ids: Sequence[int]) -> str:
    """sha256 (hex) of the rendered token ids as JSON: identical prompts have identical digests."""
    return hashlib.sha256(json.dumps(list(token_ids), separators=(",", ":")).encode()).hexdigest()


def single_sample(count: int, size: int, seed: int) -> tuple[int, ...]:
    """Positions of the items that are answered again one at a time: min(size, count), ascending.

    Program and judge compute it alike, so the sample cannot be chosen after the fact.
    """
    return tuple(sorted(random.Random(f"surefoot-batch1:{seed}").sample(range(count), min(size, count))))


def read_answers(text: str, *, file: str) -> AnswerSet:
    """An answers file, complete. Raises EvidenceError with file and line: no header, another count of
    lines than the header says, an id twice, a line that is cut off, NaN, an unknown key.
    """
    rows = _lines(text, file)
    number, first = rows[0]
    header = parse_record(AnswersHeader, parse_json(first, file=file, line=number), file=file, line=number)
    seen: set[str] = set()
    answers = []
    for number, row in rows[1:]:
        answer = parse_record(Answer, parse_json(row, file=file, line=number), file=file, line=number)
        if answer.id in seen:
            raise EvidenceError(f"id {answer.id!r} is answered twice", file=file, line=number, text=row)
        seen.add(answer.id)
        answers.append(answer)
    if len(answers) != header.count:
        raise EvidenceError(
            f"the header says {header.count} answers, {len(answers)} follow",
            file=file,
            line=len(rows),
            text=rows[-1][1],
        )
    return AnswerSet(header=header, answers=tuple(answers))


def check_header(answers: AnswerSet, *, file: str, model: Model, run: str, nonce: str) -> None:
    """Raises EvidenceError unless the file is of this model, this run and this attempt."""
    wanted = {"model": model, "run": run, "nonce": nonce}
    for key, value in wanted.items():
        found = getattr(answers.header, key)
        if found != value:
            raise EvidenceError(f"{key} is {found!r}, asked for was {value!r}", file=file, line=1)


def merge_parts(parts: Sequence[AnswerSet], *, files: Sequence[str]) -> AnswerSet:
    """The parts of ranks 0 … W-1 as one set, interleaved: item i stands in part i mod W at i div W.

    Raises EvidenceError unless all headers speak of one prompt set and one model, and the parts are as
    long as splitting their sum over W ranks makes them.
    """
    if not parts:
        raise EvidenceError("no parts", file=files[0] if files else "answers")
    first = parts[0].header
    total = sum(part.header.count for part in parts)
    width = len(parts)
    seen: dict[str, str] = {}
    for rank, (part, file) in enumerate(zip(parts, files, strict=True)):
        header = part.header.model_copy(update={"count": first.count})
        if header != first:
            differing = [k for k in AnswersHeader.model_fields if getattr(header, k) != getattr(first, k)]
            raise EvidenceError(f"{', '.join(differing)} differ from {files[0]}", file=file, line=1)
        share = len(range(rank, total, width))
        if len(part.answers) != share:
            raise EvidenceError(
                f"{len(part.answers)} answers; rank {rank} of {width} has {share} of {total}", file=file, line=1
            )
        for line, answer in enumerate(part.answers, 2):
            other = seen.setdefault(answer.id, file)
            if other != file:
                raise EvidenceError(f"id {answer.id!r} is answered in {other} too", file=file, line=line)
    merged = tuple(parts[i % width].answers[i // width] for i in range(total))
    return AnswerSet(header=first.model_copy(update={"count": total}), answers=merged)


def rescored(answer: Answer, max_new_tokens: int) -> str:
    """What is wrong with an answer's recorded score, in words; empty when scoring it again agrees.

    `new_tokens` does not count the end-of-turn token, so an answer of `max_new_tokens` tokens is one
    that the limit stopped.
    """
    if answer.outcome is Outcome.ERROR:
        return "" if answer.strict == answer.lenient == 0 else "an error has no score"
    again = score_text(answer.scorer, answer.expected, answer.answer, answer.new_tokens >= max_new_tokens)
    pairs = (
        ("outcome", answer.outcome.value, again.outcome.value),
        ("strict", answer.strict, again.strict),
        ("lenient", answer.lenient, again.lenient),
    )
    return "; ".join(f"{name} recorded {was}, scored again {now}" for name, was, now in pairs if not _same(was, now))


def _same(was: float | str, now: float | str) -> bool:
    if isinstance(was, str) or isinstance(now, str):
        return was == now
    return abs(was - now) < 1e-9


def _lines(text: str, file: str) -> list[tuple[int, str]]:
    """(line number, text) of every line. A file that is empty, cut off or has blank lines is refused."""
    if not text:
        raise EvidenceError("empty", file=file)
    rows = text.split("\n")
    if rows.pop() != "":
        raise EvidenceError("cut off: the last line has no end", file=file, line=len(rows) + 1, text=text[-120:])
    numbered = list(enumerate(rows, 1))
    for number, row in numbered:
        if not row.strip():
            raise EvidenceError("blank line", file=file, line=number)
    return numbered
