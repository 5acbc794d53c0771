"""A changed input makes the evidence that rests on it stale, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot.config.load import apply_overrides, load_cluster, load_ladder, load_policy, load_recipe
from surefoot.engine.inputs import configuration_digests
from surefoot.engine.session import Chosen, Session, start
from surefoot.rungs.table import RUNGS

# The rungs above read what these have left: what they depend on beyond that is in their inputs.
PLANNED = (
    "runner", "sync", "scheduler", "precheck", "storage", "collectives", "compute", "cache", "ddp", "fake_trainer",
)  # fmt: skip


def session(root: Path, **changes: Any) -> Session:
    chosen: dict[str, Any] = {
        "cluster": load_cluster("local").record,
        "ladder": load_ladder("local").record,
        "recipe": load_recipe("demo").record,
        "policy": load_policy("seed").record,
        "root": str(root),
    }
    return start(Chosen(**{**chosen, **changes}), ("surefoot",), run_id="run", record=False)


def asked(made: Session) -> dict[str, object]:
    """What each rung asks and rests on, where that can be known without evidence."""
    found: dict[str, object] = {}
    for spec in made.manifest.inputs.ladder.rungs:
        inputs = configuration_digests(RUNGS[spec.rung], spec, made.manifest.inputs)
        found[spec.rung] = inputs
        if spec.rung in PLANNED:
            plan = made.planner(RUNGS).plan(spec, 1, {}, "0123456789abcdef")
            found[spec.rung] = (inputs, plan.steps, plan.expect)
    return found


def other_ladder() -> Any:
    return apply_overrides(load_ladder("local"), ["collectives.max_size=1MiB"]).record


CHANGES = {
    "policy": (lambda: load_policy("seed").record.model_copy(update={"max_empty_outputs": 1}), {"sync"}),
    "recipe": (
        lambda: load_recipe("demo").record.model_copy(update={"learning_rate": 1e-4}),
        {"sync", "cache", "finetune", "evaluate"},
    ),
    "ladder": (other_ladder, {"sync", "collectives"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_rests_on_it_is_stale(tmp_path: Path, name: str) -> None:
    change, expected = CHANGES[name]
    before, after = asked(session(tmp_path)), asked(session(tmp_path, **{name: change()}))
    stale = {rung for rung in before if before[rung] != after[rung]}
    assert stale <= expected | {"review"}
    assert stale >= expected - {"cache"}


def test_nothing_is_stale_without_a_change(tmp_path: Path) -> None:
    assert asked(session(tmp_path)) == asked(session(tmp_path))
