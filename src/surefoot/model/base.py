"""What every record is: frozen, strict about unknown keys, and free of NaN."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record. Unknown keys are refused; NaN and infinity are not values."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, ser_json_bytes="base64"
    )

    def canonical(self) -> dict[str, Any]:
        """The record as plain JSON data."""
        return self.model_dump(mode="json")

    def content_digest(self) -> str:
        """sha256 (hex) of what the record says beyond the defaults: its identity.

        A key that a later version adds, with a default, does not change it: evidence that was
        collected before stays evidence for the same thing.
        """
        return digest_of(self.model_dump(mode="json", exclude_defaults=True))


def digest_of(data: Any) -> str:
    """sha256 (hex) of JSON data with sorted keys and no spaces."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
