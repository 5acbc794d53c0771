"""The only place where units convert. Names carry units; these functions carry the factors.

Rates follow the tools they are compared with: network line rates are decimal gigabits per
second (Gb/s), bandwidths decimal gigabytes per second (GB/s, as nccl-tests prints), message
sizes binary (KiB, MiB, GiB).
"""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B?)\s*$", re.IGNORECASE)
_FACTORS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1024 * GIB}


def parse_size(text: str | int) -> int:
    """Bytes of ``8``, ``8B``, ``32M``, ``32MiB``, ``16G``. Binary factors, as nccl-tests' ``-e 16G``.

    Raises ValueError when the text is not a size.
    """
    if isinstance(text, int):
        if text < 0:
            raise ValueError(f"a size is not negative: {text}")
        return text
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"not a size: {text!r} (8, 64K, 32MiB and 16G are sizes)")
    return int(float(match.group(1)) * _FACTORS[match.group(2).upper()])


def format_size(size_bytes: int) -> str:
    """``8 B``, ``32 MiB``, ``16 GiB``: the largest binary unit that keeps the figure ≥ 1."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """``840 ms``, ``12.3 s``, ``4 min 07 s``, ``2 h 05 min``."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"
