"""Answers from a model: batched, greedy, on token ids that were rendered once. Runs on nodes.

Base and adapter are asked the identical ids. Items are sorted by length so that a batch has little
padding, padded on the left so that every answer begins at the same position, and given back in the
order in which they came.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig

from surefoot.evaluation.records import prompt_digest

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
    prompt_digest: str = ""
    """`prompt_digest` of the ids that the model was given, taken from the tensor; empty for an error."""


@dataclass(frozen=True)
class FailedBatch:
    """A batch that could not be generated as one."""

    items: int
    error: str


@dataclass(frozen=True)
class Call:
    """One call of ``generate`` that gave answers, read off the tensors that went in and out."""

    prompt_tokens: tuple[int, ...]
    width: int
    seconds: float
    smallest_gap: float | None = None
    """See `surefoot.evaluation.records.Batch`."""


class Answers(NamedTuple):
    """Answers in the order of their prompts, the batches that had to be taken apart, and the calls made."""

    answers: list[Generated]
    failed: list[FailedBatch]
    calls: list[tuple[tuple[int, ...], Call]]
    """(positions among the prompts, the call that answered them)."""


def end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends an answer: the tokenizer's, the model's configuration's and its generation_config's.

    Instruct models often name their end of turn in one of the three only; a model that runs past it
    would be marked down for what the asking did.
    """
    ends = {end_token(tokenizer)}
    for config in (model.config, getattr(model, "generation_config", None)):
        declared = getattr(config, "eos_token_id", None)
        ends.update([declared] if isinstance(declared, int) else declared or [])
    return tuple(sorted(ends))


@dataclass(frozen=True)
class Generator:
    """A loaded model and how it is asked. `of` makes one."""

    model: Any
    tokenizer: Any
    max_new_tokens: int
    ends: tuple[int, ...]
    """Tokens that end an answer."""
    measure_gaps: bool = False
    """Measure, where one item is answered alone, how close its two best tokens came."""

    @classmethod
    def of(cls, model: Any, tokenizer: Any, max_new_tokens: int, *, measure_gaps: bool = False) -> Generator:
        """A generator for a model as it was loaded: before it answers, its own generation_config still stands."""
        return cls(model, tokenizer, max_new_tokens, end_tokens(model, tokenizer), measure_gaps)

    @property
    def config(self) -> GenerationConfig:
        """Greedy, and nothing else: a base's own generation_config.json may ask for sampling or a penalty."""
        return GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=self.max_new_tokens,
            eos_token_id=list(self.ends),
            pad_token_id=pad_token(self.tokenizer),
        )

    @property
    def held_config(self) -> GenerationConfig:
        """The generation configuration that the innermost model, the one that generates, holds now."""
        inner = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return inner.generation_config

    def render(self, prompt: str) -> list[int]:
        """Token ids of a prompt, up to where the answer begins."""
        return render_prompt(self.tokenizer, prompt)

    def answer(self, prompts: Sequence[Sequence[int]]) -> tuple[list[Generated], Call]:
        """Answers to one batch, and the call as it was made. Raises whatever the machinery raises."""
        config = self.config
        measure = self.measure_gaps and len(prompts) == 1
        if measure:
            config.update(output_logits=True, return_dict_in_generate=True)
        started = time.perf_counter()
        ids, mask = left_pad(prompts, config.pad_token_id, self.model.device)
        # Anything that the call does not name is taken from the model's own configuration otherwise.
        self.model.generation_config = config
        with torch.inference_mode():
            out = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        rows = (out.sequences if measure else out)[:, ids.shape[1] :].tolist()
        seconds = time.perf_counter() - started
        given = [
            [token for token, real in zip(row, real_tokens, strict=True) if real]
            for row, real_tokens in zip(ids.tolist(), mask.tolist(), strict=True)
        ]
        answers = [
            self._cut(row, seconds / len(prompts), prompt_digest(prompt))
            for row, prompt in zip(rows, given, strict=True)
        ]
        gap = smallest_gap(out.logits) if measure else None
        return answers, Call(tuple(map(len, given)), ids.shape[1], seconds, gap)

    def _cut(self, row: list[int], latency_s: float, digest: str) -> Generated:
        """The row up to its end token, as text. Padding stands after the end token only."""
        length = next((i for i, token in enumerate(row) if token in self.ends), len(row))
        text = self.tokenizer.decode(row[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Generated(text=text, new_tokens=length, latency_s=latency_s, prompt_digest=digest)

    def last_logits(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of the first answer token of each prompt, one at a time, float32: (prompts, vocabulary)."""
        found = []
        with torch.inference_mode():
            for prompt in prompts:
                ids = torch.tensor([list(prompt)], device=self.model.device)
                found.append(self.model(input_ids=ids).logits[0, -1].float().cpu())
        return torch.stack(found)


def smallest_gap(logits: Sequence[torch.Tensor]) -> float:
    """Smallest (first - second) / |first| of the two highest logits over the tokens of one answer.

    `logits`: one tensor a token, of shape (1, vocabulary), before any processing. Computed in float32.
    """
    best = torch.cat(list(logits)).float().topk(2, dim=-1).values
    size = best.abs().amax(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    return float(((best[:, 0] - best[:, 1]) / size).min())


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
) -> Answers:
    """Answers to all prompts, in their order, the batches that had to be taken apart, and the calls made.

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
    failed: list[FailedBatch] = []
    calls: list[tuple[tuple[int, ...], Call]] = []

    def ask(batch: Sequence[int]) -> None:
        answers, call = generator.answer([prompts[i] for i in batch])
        found.update(zip(batch, answers, strict=True))
        calls.append((tuple(batch), call))

    for start in range(0, len(fitting), batch_size):
        batch = fitting[start : start + batch_size]
        try:
            ask(batch)
        except Exception as error:  # noqa: BLE001  (whatever the machinery raises is recorded, not judged here)
            failed.append(FailedBatch(items=len(batch), error=_words(error)))
            for i in batch:
                started = time.perf_counter()
                try:
                    ask([i])
                except Exception as own:  # noqa: BLE001
                    found[i] = Generated("", 0, time.perf_counter() - started, error=_words(own))
        progress(len(found))
    return Answers([found[i] for i in range(len(prompts))], failed, calls)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]
