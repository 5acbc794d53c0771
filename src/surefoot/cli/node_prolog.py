"""``surefoot preflight --prolog CLAIMS``: this node judged as Slurm's Prolog judges it, without what is slow to import.

The exit codes are the prolog's own, not the command line's: 3 where a value that was read disproves a claim and may be
acted upon, else 0. A call that is written wrongly is this program's fault as any other, and must not be a 3.
"""

from __future__ import annotations

from collections.abc import Sequence


def claims_asked(given: Sequence[str]) -> list[str] | None:
    """What the prolog is called with; None where the command line asks for something else."""
    if list(given[:1]) != ["preflight"] or {"-h", "--help"} & set(given):
        return None
    if not any(word == "--prolog" or word.startswith("--prolog=") for word in given):
        return None
    rest = list(given[1:])
    if len(rest) == 1:
        rest = ["--prolog", rest[0].removeprefix("--prolog=")]
    return rest[1:] if len(rest) == 2 and rest[0] == "--prolog" and rest[1] not in ("", "--prolog") else []


def judge(words: Sequence[str]) -> int:
    """The prolog's exit code."""
    from surefoot.node import prolog

    if not words:
        prolog.say("NOTHING PROVED, own fault: written wrongly; surefoot preflight --prolog CLAIMS takes nothing else")
        return 0
    return prolog.main(list(words))
