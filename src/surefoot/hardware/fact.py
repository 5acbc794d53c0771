"""One fact of a node: a value, nothing where there is no such thing, or unknown with the reason."""

from __future__ import annotations

from typing import Annotated, Generic, Self, TypeVar

from pydantic import Field, model_validator

from surefoot.model.base import Record

T = TypeVar("T")

Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(gt=0, lt=1 << 64)]
Natural = Annotated[int, Field(ge=0, lt=1 << 64)]
"""Kernels and drivers count in 64 bits."""


class Fact(Record, Generic[T]):
    """A value; None where there is no such thing (no driver loaded, no limit); or unknown with a reason."""

    value: T | None
    unknown: str | None = None

    @model_validator(mode="after")
    def _unknown_has_no_value(self) -> Self:
        if self.unknown is not None and (self.value is not None or not self.unknown):
            raise ValueError("an unknown fact has a reason and no value")
        return self

    @property
    def shown(self) -> str:
        """For people and fingerprints; an unknown fact says so."""
        if self.unknown is not None:
            return f"unknown: {self.unknown}"
        return "none" if self.value is None else str(self.value)


class Known(Fact[T], Generic[T]):
    """A fact that has a value, or a reason why it has none."""

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if self.value is None and not self.unknown:
            raise ValueError("a fact has a value, or a reason why it has none")
        return self


TextFact = Fact[Text]
