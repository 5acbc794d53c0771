"""Which rungs a climb runs: ``--from``, ``--to``, ``--only``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from surefoot.engine.left_out import DECLARE
from surefoot.errors import RequestError
from surefoot.model.ladder import Ladder


@dataclass(frozen=True)
class Selection:
    """``start``: this rung and all that build on it. ``end``: this rung and all that it builds on.
    ``only``: these rungs. Empty: everything.
    """

    start: str | None = None
    end: str | None = None
    only: tuple[str, ...] = ()


def select(ladder: Ladder, selection: Selection, asked: Ladder | None = None) -> frozenset[str]:
    """Names of the rungs to run. Raises RequestError for a rung that the ladder has not.

    `asked`: the ladder before rungs were left out of it that this cluster has nothing for.
    """
    if selection.only and (selection.start or selection.end):
        raise RequestError("--only does not go with --from or --to", next_action="use one or the other")
    for name in (*selection.only, selection.start, selection.end):
        if name is not None and name not in ladder.names:
            if asked is not None and name in asked.names:
                raise RequestError(f"rung {name!r} is left out: the cluster declares no ansible", next_action=DECLARE)
            near = difflib.get_close_matches(name, ladder.names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise RequestError(
                f"ladder {ladder.name!r} has no rung {name!r}{hint}",
                next_action=f"its rungs: {', '.join(ladder.names)}",
            )
    if selection.only:
        return frozenset(selection.only)
    chosen = set(ladder.names)
    if selection.end:
        chosen &= below(ladder, (selection.end,)) | {selection.end}
    if selection.start:
        chosen &= above(ladder, selection.start) | {selection.start}
    if not chosen:
        raise RequestError(f"no rung lies both above {selection.start!r} and below {selection.end!r}")
    return frozenset(chosen)


def below(ladder: Ladder, rungs: Iterable[str]) -> set[str]:
    """All rungs that these build on, however far down, without themselves."""
    found: set[str] = set()
    waiting = [need for rung in rungs for need in ladder.spec(rung).needs]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += ladder.spec(name).needs
    return found


def above(ladder: Ladder, rung: str) -> set[str]:
    """All rungs that build on this one, however far up, without itself."""
    return {name for name in ladder.names if rung in below(ladder, (name,))}
