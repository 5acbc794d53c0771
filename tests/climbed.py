"""A real climb of the shipped local ladder, made once for all tests that look at one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surefoot.config.load import load_cluster, load_ladder, load_policy, load_recipe
from surefoot.engine.selection import Selection, select
from surefoot.engine.session import Chosen, Session, start
from surefoot.model.run import RungResult
from surefoot.rungs.table import RUNGS


@dataclass(frozen=True)
class Climbed:
    """A recorded run and the results that the climb came to."""

    session: Session
    results: dict[str, RungResult]


def climb_local(root: Path) -> Climbed:
    """Climb the shipped local ladder with the shipped recipe: real ranks, real training, about 40 s."""
    chosen = Chosen(
        cluster=load_cluster("local").record,
        ladder=load_ladder("local").record,
        recipe=load_recipe("demo").record,
        policy=load_policy("seed").record,
        root=str(root),
    )
    session = start(chosen, ("surefoot", "climb"))
    selected = select(session.manifest.inputs.ladder, Selection())
    return Climbed(session, session.climb(RUNGS, selected, lambda _event: None).run())
