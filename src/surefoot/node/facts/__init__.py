"""What a node is, found by the standard library alone: torch only inside functions, and where it is there.

Every fact is ``{"value": …}`` or ``{"value": null, "unknown": "because …"}``: nothing is defaulted.
``surefoot.hardware.facts`` has the records that read them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

Fact = dict[str, Any]

UNREADABLE = (
    OSError,
    LookupError,
    ValueError,
    ImportError,
    RuntimeError,
    AttributeError,
    subprocess.SubprocessError,
    ArithmeticError,
    AssertionError,
    EOFError,
    MemoryError,
    TypeError,
)
"""How looking for a fact fails on a node that lacks what it is read from, or where that is not of its form."""


def fact(find: Callable[[], Any]) -> Fact:
    """The value that `find` gives, or the reason why there is none."""
    try:
        value = find()
    except UNREADABLE as e:
        return {"value": None, "unknown": f"{type(e).__name__}: {e}"[:300]}
    return {"value": value}
