"""Answers from a model: batched, greedy, on token ids that were rendered once. Runs on nodes.

Base and adapter are asked the identical ids. Items are sorted by length so that a batch has little
padding, padded on the left so that every answer begins at the same position, and given back in the
order in which they came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

# The one chat-template path of training and evaluation: the only thing used of a sibling layer.
from surefoot.training.prompts import end_token, render_prompt


@dataclass(frozen=True)
class Generated:
    """One item's answer, or the error that came instead."""

    text: str
    new_tokens: int
    """Tokens of the answer, the end token not counted: equal to the limit when the limit stopped it."""
    latency_s: float
    error: str = ""


@dataclass(frozen=True)
class FailedBatch:
    """A batch that could not be generated as one."""

    items: int
    error: str


@dataclass(frozen=True)
class Generator:
    """A loaded model and how it is asked."""

    model: Any
    tokenizer: Any
    max_new_tokens: int

    @property
    def config(self) -> GenerationConfig:
        """Greedy, and nothing else: a base's own generation_config.json may ask for sampling or a penalty."""
        ends = {end_token(self.tokenizer)}
        declared = self.model.config.eos_token_id
        ends.update([declared] if isinstance(declared, int) else declared or [])
        return GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=self.max_new_tokens,
            eos_token_id=sorted(ends),
            pad_token_id=pad_token(self.tokenizer),
        )

    def render(self, prompt: str) -> list[int]:
        """Token ids of a prompt, up to where the answer begins."""
        return render_prompt(self.tokenizer, prompt)

    def answer(self, prompts: Sequence[Sequence[int]]) -> list[Generated]:
        """Answers to one batch. Raises whatever the machinery raises."""
        config = self.config
        started = time.perf_counter()
        ids, mask = left_pad(prompts, config.pad_token_id, self.model.device)
        # Anything that the call does not name is taken from the model's own configuration otherwise.
        self.model.generation_config = config
        with torch.inference_mode():
            out = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        rows = out[:, ids.shape[1] :].tolist()
        latency = (time.perf_counter() - started) / len(prompts)
        return [self._cut(row, set(config.eos_token_id), latency) for row in rows]

    def _cut(self, row: list[int], ends: set[int], latency_s: float) -> Generated:
        """The row up to its end token, as text. Padding stands after the end token only."""
        length = next((i for i, token in enumerate(row) if token in ends), len(row))
        text = self.tokenizer.decode(row[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Generated(text=text, new_tokens=length, latency_s=latency_s)

    def last_logits(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of the first answer token of each prompt, one at a time, float32: (prompts, vocabulary)."""
        found = []
        with torch.inference_mode():
            for prompt in prompts:
                ids = torch.tensor([list(prompt)], device=self.model.device)
                found.append(self.model(input_ids=ids).logits[0, -1].float().cpu())
        return torch.stack(found)


def pad_token(tokenizer: Any) -> int:
    """Id to pad with. It is masked, so which one it is changes nothing."""
    return int(end_token(tokenizer) if tokenizer.pad_token_id is None else tokenizer.pad_token_id)


def left_pad(
    prompts: Sequence[Sequence[int]], pad: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, mask) of shape (prompts, longest prompt), padded on the left."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask


def answer_all(
    generator: Generator,
    prompts: Sequence[Sequence[int]],
    batch_size: int,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[Generated], list[FailedBatch]]:
    """Answers to all prompts, in their order, and the batches that had to be taken apart.

    A batch that fails is tried again one item at a time, so that an error belongs to the item that
    causes it. What still fails is an error with its text: never an empty answer, never a wrong one.
    """
    limit = getattr(generator.model.config, "max_position_embeddings", None)
    found: dict[int, Generated] = {}
    fitting = []
    for i, prompt in enumerate(prompts):
        if limit is not None and len(prompt) + generator.max_new_tokens > limit:
            error = f"prompt of {len(prompt)} tokens and {generator.max_new_tokens} new ones exceed the model's {limit}"
            found[i] = Generated(text="", new_tokens=0, latency_s=0.0, error=error)
        else:
            fitting.append(i)
    # Longest first: what does not fit into memory shows at once.
    fitting.sort(key=lambda i: (-len(prompts[i]), i))
    failed = []
    for start in range(0, len(fitting), batch_size):
        batch = fitting[start : start + batch_size]
        try:
            answers = generator.answer([prompts[i] for i in batch])
        except Exception as error:  # noqa: BLE001  (whatever the machinery raises is recorded, not judged here)
            failed.append(FailedBatch(items=len(batch), error=_words(error)))
            answers = [_alone(generator, prompts[i]) for i in batch]
        found.update(zip(batch, answers, strict=True))
        progress(len(found))
    return [found[i] for i in range(len(prompts))], failed


def _alone(generator: Generator, prompt: Sequence[int]) -> Generated:
    """One item in a batch of its own; an error is an answer of its own kind."""
    started = time.perf_counter()
    try:
        return generator.answer([prompt])[0]
    except Exception as error:  # noqa: BLE001
        return Generated(text="", new_tokens=0, latency_s=time.perf_counter() - started, error=_words(error))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]
