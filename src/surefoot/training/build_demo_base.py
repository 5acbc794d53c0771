"""Rebuild the demonstration's base model and data from nothing.

``python -m surefoot.training.build_demo_base OUT [--steps N]`` writes ``OUT/base/``,
``OUT/demo-train.jsonl``, ``OUT/demo-eval.jsonl`` and ``OUT/MANIFEST.json``: what
``surefoot/shipped/demo`` holds. 5,000 steps take about eleven minutes on one thread of an old CPU.

The base is pre-trained to know the tasks and to answer classification in whole sentences; only
LABEL_SHARE of its answers are in short form. That leaves an adapter something visible to learn:
the form. Another torch or another CPU gives other weights, so the shipped digest is not reproduced
bit for bit; the figures are (docs/decisions/demo-model.md).
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from surefoot.model.score import Task
from surefoot.node.rank import say
from surefoot.training.data import Sample, collate, encode
from surefoot.training.demo_tasks import DemoItem, held_out_prompts, make_items, write_demo_data
from surefoot.training.loss import LossModel
from surefoot.training.shipped_demo import write_manifest

STEPS = 5000
BATCH = 16
PEAK_RATE = 3e-3
WARMUP_STEPS = 50
FLOOR = 0.05
"""Share of the peak rate that the cosine ends at."""
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.98)
ITEMS = 24_000
ITEMS_SEED = 1
TOKENIZER_ITEMS = 6_000
LABEL_SHARE = 0.08
LABEL_SEED = 5
VOCABULARY = 768
MAX_LENGTH = 512
END, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"

# Qwen's pre-tokenizer. AutoTokenizer gives every qwen2 folder this one, whatever its tokenizer.json
# says, so the merges have to be learned on top of it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>'+m['role']+'\n'+m['content']+'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}"
)


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of VOCABULARY tokens with ChatML's special tokens and template."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """An untrained model of Qwen2's architecture, 0.379 M parameters."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            initializer_range=0.05,
        )
    )


def pretraining_samples(items: Iterable[DemoItem], tokenizer: Any) -> list[Sample]:
    """Items with their sentences as answers, a share of them with the short form."""
    draw = random.Random(LABEL_SEED)
    return [
        encode(
            tokenizer,
            Task(
                id=str(number),
                category=item.category,
                prompt=item.prompt,
                answer=item.answer if draw.random() < LABEL_SHARE else item.sentence,
            ),
            max_length=MAX_LENGTH,
        )
        for number, item in enumerate(items)
    ]


def batches(samples: list[Sample], *, seed: int) -> Iterator[list[Sample]]:
    """Batches without end. Samples of like length are put together, 16 batches at a time, then mixed."""
    draw = random.Random(seed)
    while True:
        order = list(range(len(samples)))
        draw.shuffle(order)
        window = BATCH * 16
        chunks = [
            sorted(order[start : start + window], key=lambda k: samples[k].length)
            for start in range(0, len(order), window)
        ]
        pool = [chunk[start : start + BATCH] for chunk in chunks for start in range(0, len(chunk), BATCH)]
        draw.shuffle(pool)
        for batch in reversed(pool):
            yield [samples[k] for k in batch]


def rate(step: int, steps: int) -> float:
    """Learning rate of step `step` (from 0)."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (FLOOR + (1 - FLOOR) * cosine)


def pretrain(model: Qwen2ForCausalLM, samples: list[Sample], *, steps: int, pad_id: int, seed: int) -> list[float]:
    """Train all weights on the answers' tokens. Returns the loss of every step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY, betas=BETAS, fused=True)
    losses: list[float] = []
    loss_model = LossModel(model.train())
    start = time.monotonic()
    for step, chosen in zip(range(steps), batches(samples, seed=seed), strict=False):
        batch = collate(chosen, pad_id=pad_id)
        for group in optimiser.param_groups:
            group["lr"] = rate(step, steps)
        loss = loss_model(batch.input_ids, batch.attention_mask, batch.labels) / batch.targets
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if step % 250 == 0 or step == steps - 1:
            say(f"step {step + 1}/{steps} loss {losses[-1]:.3f} {time.monotonic() - start:.0f} s")
    return losses


def build(out: Path, *, steps: int = STEPS, items: int = ITEMS, seed: int = 0) -> list[float]:
    """Write the whole demonstration into `out`. Returns the pre-training losses."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    made = make_items(items, ITEMS_SEED, exclude=held_out_prompts())
    tokenizer = build_tokenizer(item.prompt + "\n" + item.sentence for item in made[:TOKENIZER_ITEMS])
    model = build_model(tokenizer)
    samples = pretraining_samples(made, tokenizer)
    losses = pretrain(model, samples, steps=steps, pad_id=int(tokenizer.pad_token_id), seed=seed)
    model.half().save_pretrained(out / "base")
    tokenizer.save_pretrained(out / "base")
    (out / "base" / "model.safetensors").chmod(0o644)
    write_demo_data(out)
    write_manifest(out)
    return losses


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Rebuild the demonstration's base model and data.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    build(asked.out, steps=asked.steps)


if __name__ == "__main__":
    main()
