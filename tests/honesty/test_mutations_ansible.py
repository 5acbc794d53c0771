"""Damaged evidence of the rungs inventory and drift is never judged PASSED: as `test_mutations_slurm`.

There is no seal here: it is evidence that was wrong when it was collected. What may pass all the same
stands below, each with the reason. Lines of a playbook lie in the document as text, so of them each is
also emptied, cut, repeated and taken away, and each of their figures and words is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_views import document, drift_view, inventory_view
from mutations import Mutation, is_listed, mutations
from surefoot.model.status import Status
from surefoot.rungs.base import View
from view_files import status, undetected, written

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STILL_TRUE = {
    (r"raw/config\.stdout", r"", r"content twice"): "it says the same twice",
    (r".*\.json|.*\.stdout", r"", r"extra whitespace.*"): "white space around a document says nothing",
    (r"raw/(look|check|nodes|config)\.stderr", r"", r".*"): "kept for diagnosis",
    (r"raw/\w+\.exit\.json", r"(started|ended)_at", r".*"): "when is shown; how it ended is judged",
    (r"raw/(look|check)\.stdout", r"\w+\.(started_at|ended_at)", r".*"): "when is shown",
    (r"raw/(look|check)\.stdout", r"\w+\.argv\.\d+", r".*"): "of the command, its inventories and what makes it a "
    "check run are judged; where Surefoot's own playbook lay is not",
    (r"raw/(look|check)\.stdout", r"\w+\.stderr\.\d+", r".*"): "kept for diagnosis",
    (
        r"raw/(look|check)\.stdout",
        r"\w+\.stdout\.\d+",
        r".*",
    ): "a line that is no event, or another's: see the test below",
}
"""(file, figure, kind of damage) → why the claims hold all the same."""


def explained(mutation: Mutation) -> bool:
    return is_listed(mutation, STILL_TRUE)


@pytest.mark.parametrize("make", [inventory_view, drift_view], ids=["inventory", "drift"])
def test_nothing_damaged_passes(make: Callable[[], View], tmp_path: Path) -> None:
    view = make()
    assert status(view) is Status.PASSED, "it must pass before it is damaged"
    source = written(view, tmp_path / "good")
    tried = [each for each in mutations(view.plan.rung, source, tmp_path / "none") if each.file != "plan.json"]
    passed = undetected(view, source, tried, explained)
    assert not passed, "\n".join(passed)
    assert len(tried) > 25


def lines_damaged(said: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    """(what was done, the event or an empty one, the damaged document) for each line of one answer."""
    rows = said[key]["stdout"]
    for number, row in enumerate(rows):
        event = (
            json.loads(row) if row.startswith("{") and row.endswith("}") and key not in ("inventory", "plays") else {}
        )
        done = {
            "gone": rows[:number] + rows[number + 1 :],
            "cut": [*rows[:number], row[: len(row) // 2], *rows[number + 1 :]],
            "empty": [*rows[:number], "", *rows[number + 1 :]],
            "twice": [*rows[: number + 1], *rows[number:]],
            "the rest gone": rows[:number],
        }
        for kind, changed in done.items():
            if changed != rows:
                yield f"{key}:{number + 1} {kind}: {row[:100]}", {**event, "kind": kind, "row": row}, {
                    **said, key: {**said[key], "stdout": changed}
                }  # fmt: skip


NO_CLAIM = {
    "inventory": r' +"(?!n1|n2|head)\w+"(: ("[^"]*"|\d+))?,?',
    "plays": r"|playbook: .*|    pattern: .*",
}
"""Lines that say nothing which is judged: variables (their values are judged as hosts were told them), groups
that hosts are also reached by, and words of --list-hosts."""


def harmless(name: str, key: str, event: dict[str, Any]) -> bool:
    """Whether the claims hold without this line, or with it twice; see the reasons beside each."""
    kind, what = event["kind"], event.get("event")
    if key in NO_CLAIM:
        same = key == "plays" and kind == "twice" and event["row"].startswith("      ")  # a host, twice
        return same or (kind in ("gone", "empty", "twice") and re.fullmatch(NO_CLAIM[key], event["row"]) is not None)
    if kind not in ("gone", "twice"):
        return False
    if what == "task" or (what == "result" and event.get("task") == "Asked"):
        return True  # its name stands in each of its results; what was asked is told by the task after it
    if what == "play":
        return kind == "twice" or key == "history"  # as with `serial`; whom Surefoot's own playbook asked, answered
    if what == "result" and event["status"] == "ok" and kind == "twice":
        return True  # it says the same
    # One witness less that nothing would change: what would, and what failed, Ansible counts too.
    witness = (
        key == "check"
        or event.get("task") in ("Ping", "No names yet", "Gathering Facts")
        or str(event.get("task")).startswith("Packages of ")
    )
    return name == "check" and what == "result" and event["status"] in ("ok", "skipped") and witness


@pytest.mark.parametrize(
    ("name", "keys", "make"),
    [
        ("look", ("inventory", "hosts"), inventory_view),
        ("check", ("inventory", "plays", "check", "history"), drift_view),
    ],
)
def test_no_line_of_an_answer_can_be_lost_cut_or_repeated(name: str, keys: tuple[str, ...], make: Any) -> None:
    case = "good" if name == "look" else "clean"
    passed, count = [], 0
    for key in keys:
        for words, event, damaged in lines_damaged(document(f"{name}-{case}"), key):
            count += 1
            view = make(case, edit=lambda said, damaged=damaged: said.update(damaged))
            if status(view) is Status.PASSED and not harmless(name, key, event):
                passed.append(words)
    assert not passed, "\n".join(passed)
    assert count > 300
