"""Records of what was staged: base model and data, each a folder named by its content. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surefoot.model.base import Record

KINDS = {"base": "models", "train": "data", "evaluate": "data"}
"""Asset → folder below the cache that it lies in."""


class StagedAsset(Record):
    """One folder ``<root>/cache/<kind>/<digest>``."""

    source: str
    """As the recipe names it."""
    source_digest: str
    """Tree digest of the source's own files, before anything was converted."""
    path: str
    digest: str
    """Tree digest of `files`, and the folder's name."""
    files: dict[str, str] = Field(min_length=1)
    """Path in the folder → sha256 (hex)."""
    size_bytes: int = Field(ge=1)
    rows: int | None = Field(default=None, ge=1)
    """Rows of data; None for a model."""
    prompts_digest: str = ""
    """`keys_digest` over the rows' (id, prompt key); empty for a model."""
    state: Literal["staged", "found", "repaired"]
    """Written now, found there with the right content, or found damaged and replaced."""


class StagedAssets(Record):
    """The three things that a fine-tune and its evaluation read."""

    base: StagedAsset
    train: StagedAsset
    evaluate: StagedAsset
    dropped: tuple[str, ...] = ()
    """Ids of training rows left out because their prompt stands in the evaluation."""

    def items(self) -> tuple[tuple[str, StagedAsset], ...]:
        """(name, asset) in a fixed order."""
        return (("base", self.base), ("train", self.train), ("evaluate", self.evaluate))
