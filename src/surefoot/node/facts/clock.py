"""The node's clock as its kernel sees it: adjtimex(2), which any user may ask. Standard library only.

How far two nodes are apart is measured between them (`surefoot.node.mesh`); this is what the
node itself believes.
"""

from __future__ import annotations

import ctypes
from typing import Any

UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of <sys/timex.h>: no daemon has set the clock, or the last word is too old."""
NANOSECONDS = 0x2000
"""STA_NANO: offset is in ns instead of µs."""
ERROR = 5
"""TIME_ERROR: the clock is not synchronised."""


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long), ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long), ("seconds", ctypes.c_long), ("microseconds", ctypes.c_long), ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long), ("jitter", ctypes.c_long), ("shift", ctypes.c_int), ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long), ("calcnt", ctypes.c_long), ("errcnt", ctypes.c_long), ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int), ("_reserved", ctypes.c_int * 11),
    )  # fmt: skip


def clock() -> dict[str, Any]:
    """``synchronised``, ``offset_s`` (left to correct), ``estimated_error_s``, ``greatest_error_s``. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = _Timex()
    code = libc.adjtimex(ctypes.byref(state))
    if code < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    scale = 1e-9 if state.status & NANOSECONDS else 1e-6
    return {
        "synchronised": code != ERROR and not state.status & UNSYNCHRONISED,
        "offset_s": state.offset * scale,
        "estimated_error_s": state.esterror * 1e-6,
        "greatest_error_s": state.maxerror * 1e-6,
    }
