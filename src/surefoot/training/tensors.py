"""Reading safetensors with the standard library, so that judging needs no torch.

Format: 8 bytes little-endian header length N, N bytes JSON (name → dtype, shape, data_offsets
relative to the end of the header), then the data (github.com/huggingface/safetensors).
"""

from __future__ import annotations

import hashlib
import math
import operator
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from surefoot.errors import EvidenceError
from surefoot.evidence import parse_json

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Tensor:
    """One tensor as stored."""

    dtype: str
    shape: tuple[int, ...]
    raw: memoryview

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def square_sum(self) -> float:
        """Sum of squares of a float32 tensor; NaN or infinity where a value is. Raises ValueError otherwise."""
        if self.dtype != "F32":
            raise ValueError(f"float32 is expected, this is {self.dtype}")
        values = array("f", bytes(self.raw))
        if sys.byteorder == "big":
            values.byteswap()
        return sum(map(operator.mul, values, values))


def read_tensors(data: bytes, *, file: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Raises EvidenceError unless they fill the file exactly."""
    if len(data) < 8:
        raise EvidenceError(f"not safetensors: {len(data)} bytes", file=file)
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise EvidenceError(f"cut off: a header of {length} bytes in a file of {len(data)}", file=file)
    try:
        text = data[8 : 8 + length].decode()
    except UnicodeDecodeError as error:
        raise EvidenceError("not safetensors: the header is not UTF-8", file=file) from error
    header = parse_json(text, file=file)
    body = memoryview(data)[8 + length :]
    found: dict[str, Tensor] = {}
    spans: list[tuple[int, int]] = []
    if not isinstance(header, dict):
        raise EvidenceError("not safetensors: the header is no JSON object", file=file)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            fits = 0 <= start <= end <= len(body) and end - start == math.prod(shape) * _BYTES[dtype]
        except (KeyError, TypeError, ValueError) as error:
            raise EvidenceError(f"tensor {name!r}: not dtype, shape and data_offsets", file=file) from error
        if not fits:
            raise EvidenceError(f"tensor {name!r}: {dtype} {shape} does not lie in bytes {start} to {end}", file=file)
        found[name] = Tensor(dtype, shape, body[start:end])
        spans.append((start, end))
    ends = [0, *sorted(end for _, end in spans)]
    if sorted(start for start, _ in spans) != ends[:-1] or ends[-1] != len(body):
        raise EvidenceError("tensors overlap or leave bytes unused", file=file)
    return found


def parameter_digest(tensors: Iterable[tuple[str, str, tuple[int, ...], bytes | memoryview]]) -> str:
    """sha256 (hex) over (name, dtype, shape, bytes) of all tensors, sorted by name.

    The trainer computes it from memory and judging from the file: equal means the file holds what
    every rank ended with.
    """
    total = hashlib.sha256()
    for name, dtype, shape, raw in sorted(tensors, key=lambda entry: entry[0]):
        total.update(f"{name}\0{dtype}\0{','.join(map(str, shape))}\0".encode())
        total.update(raw)
    return total.hexdigest()


def file_parameter_digest(tensors: Mapping[str, Tensor]) -> str:
    """`parameter_digest` of tensors that were read from a file."""
    return parameter_digest((name, t.dtype, t.shape, t.raw) for name, t in tensors.items())
