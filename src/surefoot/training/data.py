"""Rows as token ids, and batches of them as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from surefoot.errors import RequestError
from surefoot.model.score import Task
from surefoot.training.prompts import render_answer, render_prompt

IGNORED = -100
"""Label of a position that no loss is taken on (PyTorch's and transformers' convention)."""


@dataclass(frozen=True)
class Sample:
    """One training row as token ids: the prompt, and the answer with its end token."""

    id: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens in all."""
        return len(self.prompt) + len(self.answer)

    @property
    def targets(self) -> int:
        """Tokens that the loss is taken on."""
        return len(self.answer)


@dataclass(frozen=True)
class Batch:
    """Samples side by side, padded at the right. Shapes: (samples, longest)."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    """Token ids where a loss is taken, IGNORED elsewhere."""
    samples: int
    tokens: int
    """Tokens without padding."""
    targets: int


def encode(tokenizer: Any, task: Task, *, max_length: int) -> Sample:
    """One row as a sample. Raises RequestError naming a row that is too long or has nothing to learn."""
    prompt, answer = render_prompt(tokenizer, task.prompt), render_answer(tokenizer, task.answer)
    if len(answer) < 2:
        raise RequestError(
            f"training row {task.id!r}: its answer {task.answer!r} has no tokens, so there is nothing to learn from it",
            next_action="take the row out, or give it an answer",
        )
    if len(prompt) + len(answer) > max_length:
        raise RequestError(
            f"training row {task.id!r} has {len(prompt) + len(answer)} tokens, max_length is {max_length}",
            next_action=f"raise max_length in the recipe to {len(prompt) + len(answer)} or more, or take the row out",
        )
    return Sample(task.id, tuple(prompt), tuple(answer))


def encode_all(tokenizer: Any, tasks: Sequence[Task], *, max_length: int) -> list[Sample]:
    """All rows as samples. Raises RequestError."""
    if not tasks:
        raise RequestError("there are no training rows")
    return [encode(tokenizer, task, max_length=max_length) for task in tasks]


def collate(samples: Sequence[Sample], *, pad_id: int, learn: bool = True) -> Batch:
    """Samples as one batch, padded at the right to a multiple of 8 tokens. With `learn` False nothing is a target."""
    longest = max(sample.length for sample in samples)
    shape = (len(samples), -(-longest // 8) * 8)
    ids = torch.full(shape, pad_id, dtype=torch.long)
    labels = torch.full(shape, IGNORED, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.long)
    for row, sample in enumerate(samples):
        ids[row, : sample.length] = torch.tensor(sample.prompt + sample.answer)
        mask[row, : sample.length] = 1
        if learn:
            labels[row, len(sample.prompt) : sample.length] = torch.tensor(sample.answer)
    return Batch(
        input_ids=ids,
        attention_mask=mask,
        labels=labels,
        samples=len(samples) if learn else 0,
        tokens=sum(sample.length for sample in samples) if learn else 0,
        targets=sum(sample.targets for sample in samples) if learn else 0,
    )
