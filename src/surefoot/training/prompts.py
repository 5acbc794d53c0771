"""Prompts as token ids. Training and evaluation both call this, so that their templates cannot differ."""

from __future__ import annotations

from typing import Any

from surefoot.errors import RequestError


def render_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of one user turn in the tokenizer's own chat template, up to where the answer begins.

    No other tokens are added: what the template does not say is not there. Raises RequestError
    when the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise RequestError(
            "the base model's tokenizer has no chat template, so there is no one way to ask it something",
            next_action="use an instruct model, or add chat_template.jinja to the base model's folder",
        )
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def end_token(tokenizer: Any) -> int:
    """Id of the token that ends an answer. Raises RequestError when the tokenizer names none."""
    if tokenizer.eos_token_id is None:
        raise RequestError(
            "the base model's tokenizer names no end token (eos_token), so an answer could never end",
            next_action="set eos_token in the base model's tokenizer_config.json",
        )
    return int(tokenizer.eos_token_id)


def render_answer(tokenizer: Any, answer: str) -> list[int]:
    """Token ids of an answer with its end token: exactly what the loss is taken on."""
    return [*tokenizer(answer, add_special_tokens=False)["input_ids"], end_token(tokenizer)]
