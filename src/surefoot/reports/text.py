"""Words and figures as every rendering shows them. What was not measured reads "-", never 0."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from surefoot.model.check import Value
from surefoot.model.status import ExitCode, Status
from surefoot.units import format_duration

MISSING = "-"

STATUS_GLYPHS: dict[Status, str] = {
    Status.PASSED: "✓",
    Status.FAILED: "✗",
    Status.INCONCLUSIVE: "?",
    Status.ERROR: "!",
    Status.BLOCKED: "⊘",
    Status.SKIPPED: "»",
}

STATUS_STYLES: dict[Status, str] = {
    Status.PASSED: "green",
    Status.FAILED: "red",
    Status.INCONCLUSIVE: "yellow",
    Status.ERROR: "magenta",
    Status.BLOCKED: "dim",
    Status.SKIPPED: "dim",
}
"""In rich's words. Colour only repeats what sign and word say."""

EXIT_MEANINGS: dict[int, str] = {
    ExitCode.PROVED: "proved",
    ExitCode.DISPROVED: "disproved: a check failed",
    ExitCode.UNPROVED: "not proved either way",
    ExitCode.REQUEST: "the request is wrong",
    ExitCode.MACHINERY: "the machinery broke",
    ExitCode.INTERRUPTED: "interrupted",
}

# What XML 1.0 has no way to carry, and what a page or a terminal should not be handed either.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def xml_safe(text: str) -> str:
    """`text` with every character that XML 1.0 forbids replaced by U+FFFD (lone surrogates too)."""
    return _FORBIDDEN.sub("\ufffd", text)


def terminal_safe(text: str) -> str:
    """`text` on one line, without escape sequences or direction overrides that could rewrite a terminal."""
    return _TERMINAL.sub("\ufffd", text.replace("\n", " ⏎ ").replace("\r", "").replace("\t", " "))


def shorten(text: str, limit: int) -> str:
    """The first `limit` characters, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]} … (+{len(text) - limit:,} characters)"


def one_line(text: str, limit: int) -> str:
    """`text` for a row of a table: safe for a terminal, cut at `limit` characters with an ellipsis."""
    safe = terminal_safe(text)
    return safe if len(safe) <= limit else f"{safe[: limit - 1].rstrip()}…"


def number(value: object) -> float | None:
    """`value` if it is a finite figure (True and False are none), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: object) -> int | None:
    """`value` if it is a whole number, else None."""
    figure = number(value)
    return int(figure) if figure is not None and figure == int(figure) else None


def figure(value: float | None, digits: int = 3) -> str:
    """A figure to `digits` significant digits without exponent where it is readable; "-" for None."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e15 or size < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"


def plain_value(value: Value, unit: str = "") -> str:
    """A check's expected or actual value with its unit. Whole numbers stay exact."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:,.6g}" if 1e-4 <= abs(value) < 1e15 or value == 0 else f"{value:.6g}"
    elif isinstance(value, int):
        text = f"{value:,}" if unit else str(value)
    else:
        text = value or "(empty)"
    return f"{text} {unit}" if unit else text


def value_pair(expected: Value, actual: Value, unit: str = "") -> tuple[str, str]:
    """Expected and actual for people; in full where shortening would make unlike values look alike."""
    left, right = plain_value(expected, unit), plain_value(actual, unit)
    if left == right and expected != actual:
        return f"{expected!r} {unit}".rstrip(), f"{actual!r} {unit}".rstrip()
    return left, right


def duration(seconds: float | None) -> str:
    """A duration, or "-" where there is none."""
    if seconds is None or seconds < 0:
        return MISSING
    return "< 1 ms" if seconds < 1e-3 else format_duration(seconds)


def clock(seconds: float | None) -> str:
    """A duration as a clock shows it: ``0:42``, ``12:05``, ``3:10:00``, ``2-03:10:00``; "-" where there is none."""
    if seconds is None or seconds < 0:
        return MISSING
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minutes}:{second:02d}"


def moment(at: float | None) -> str:
    """Unix time as ``2026-11-29 16:04:12 UTC``, or "-"."""
    if at is None:
        return MISSING
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return MISSING


def rate(value_gb_s: float | None) -> str:
    """A bandwidth given in GB/s, in the decimal unit that reads best."""
    if value_gb_s is None:
        return MISSING
    for factor, unit in ((1.0, "GB/s"), (1e-3, "MB/s"), (1e-6, "kB/s"), (1e-9, "B/s")):
        if abs(value_gb_s) >= factor:
            return f"{figure(value_gb_s / factor)} {unit}"
    return f"{figure(value_gb_s * 1e9)} B/s"


def microseconds(value_us: float | None) -> str:
    """A time given in microseconds, in the unit that reads best."""
    if value_us is None:
        return MISSING
    for factor, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if abs(value_us) >= factor:
            return f"{figure(value_us / factor)} {unit}"
    return f"{figure(value_us * 1e3)} ns"
