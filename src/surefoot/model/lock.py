"""A lock: the exact distributions of an environment, as pip's requirements files write them. Pure.

One ``name==version`` a line, with ``--hash=sha256:…`` behind it where the content is pinned too. What
``pip freeze``, ``pip-compile --generate-hashes`` and ``uv pip compile`` write is read; what would
leave a choice open (a range, a condition, a place, an option) is refused, with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from surefoot.versions import pinned

_PINNED = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"\s*(?P<extras>\[[A-Za-z0-9._,\s-]*\])?"
    r"\s*==\s*(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?P<hashes>(?:\s+--hash[=\s](?:sha256|sha384|sha512):[0-9A-Fa-f]+)*)\s*",
    re.ASCII,
)
_COMMENT = re.compile(r"(^|\s+)#.*$")
ALLOWED = "allowed: NAME==VERSION, and behind it --hash=sha256:… where wanted"


@dataclass(frozen=True)
class Pinned:
    """One distribution of a lock."""

    name: str
    """Normalised: lower case, runs of ``-_.`` are one ``-``."""
    version: str
    text: str
    """The requirement on one line, with its hashes: what pip is given."""
    line: int
    """Where it begins in the lock, from 1."""
    hashed: bool


@dataclass(frozen=True)
class LockProblem:
    """A line that is no part of a lock."""

    line: int
    what: str


def normalised(name: str) -> str:
    """A distribution's name as names are compared (PyPA's "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_lock(text: str) -> tuple[tuple[Pinned, ...], tuple[LockProblem, ...]]:
    """Every line as a pinned distribution or as a problem. A lock without a distribution is a problem."""
    pins: dict[str, Pinned] = {}
    problems: list[LockProblem] = []
    for line, row in _rows(text):
        pin = _pin(line, row)
        if isinstance(pin, Pinned) and pin.name in pins:
            problems.append(LockProblem(line, f"{pin.name} stands in line {pins[pin.name].line} already; keep one"))
        elif isinstance(pin, Pinned):
            pins[pin.name] = pin
        else:
            problems.append(pin)
    if any(pin.hashed for pin in pins.values()):
        problems += [
            LockProblem(pin.line, f"{pin.name} has no --hash, and others have: pip wants all or none")
            for pin in pins.values()
            if not pin.hashed
        ]
    if not pins and not problems:
        problems.append(LockProblem(1, f"there is no distribution in it; {ALLOWED}, one a line"))
    return tuple(pins.values()), tuple(sorted(problems, key=lambda problem: problem.line))


def _rows(text: str) -> list[tuple[int, str]]:
    """(line where it begins, text) of each requirement: comments gone, continued lines joined."""
    rows: list[tuple[int, str]] = []
    held, begun = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        row = raw.rstrip("\r")
        comment = row.lstrip().startswith("#")
        if row.endswith("\\") and not comment:
            begun = begun or number
            held += row[:-1] + " "
            continue
        whole = _COMMENT.sub("", held + ("" if comment else row)).strip()
        if whole:
            rows.append((begun or number, whole))
        held, begun = "", 0
    if held.strip():
        rows.append((begun, held.strip()))
    return rows


def _pin(line: int, row: str) -> Pinned | LockProblem:
    match = _PINNED.fullmatch(row)
    if match is None or not pinned(match["version"]):
        return LockProblem(line, f"'{row[:120]}' {_why(row)}; {ALLOWED}")
    extras = re.sub(r"\s", "", match["extras"] or "")
    hashes = re.findall(r"sha\d+:[0-9A-Fa-f]+", match["hashes"])
    text = " ".join([f"{match['name']}{extras}=={match['version']}", *(f"--hash={value.lower()}" for value in hashes)])
    return Pinned(normalised(match["name"]), match["version"], text, line, bool(hashes))


def _why(row: str) -> str:
    """What is wrong with a line that pins nothing."""
    if re.match(r"-e\b|--editable\b", row):
        return "is an editable install, which changes under a running job"
    if row.startswith("-"):
        return "is an option of pip; index: and wheels: of the cluster file say where distributions come from"
    if re.search(r"\s@\s|://", row):
        return "names a place, not a version: put its wheel into the folder that wheels: names"
    if ";" in row:
        return "holds a condition (;): what is installed must not depend on where; write a lock for these nodes"
    if row.count("--hash") or "==" in row:
        return "is not one version"
    return "is not pinned"
