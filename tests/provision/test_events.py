"""Lines of a playbook: complete, or an error with the line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_views import document, events
from surefoot.errors import EvidenceError
from surefoot.provision.events import playbook_of

ROWS = document("check-drifted")["check"]["stdout"]


def rows(*changed: dict[str, Any]) -> list[str]:
    return [json.dumps(event) for event in changed]


def test_a_whole_run_is_read_with_its_plays_results_and_totals() -> None:
    run = playbook_of(ROWS, file="f")
    assert (run.run.playbook, run.run.check, run.run.diff) == ("site.yml", True, True)
    assert [play.play for play in run.plays] == ["Files and packages", "Only where there are any"]
    assert {host: total.changed for host, total in run.totals.items()} == {"head": 0, "n1": 2, "n2": 1}
    assert [told.result.path for told in run.of("changed") if told.result.host == "n1"] == [
        "/etc/toy/limits.conf", "/etc/toy/two",
    ]  # fmt: skip


def test_of_a_loop_the_items_count_and_not_the_task_again() -> None:
    (two,) = [told for told in playbook_of(ROWS, file="f").of("changed") if told.result.path == "/etc/toy/two"]
    assert two.result.item == "two"


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda found: found[:-1], "cut off: the playbook's totals"),
        (lambda found: found[1:], "first line is missing"),
        (lambda found: found[:0], "told nothing"),
        (lambda found: [*found, found[-1]], "totals are not its last line"),
        (lambda found: [{**found[0], "check": "yes, surely"}, *found[1:]], "no event of a playbook"),
        (lambda found: [found[0], {"event": "lunch"}, *found[1:]], "no event of a playbook"),
        (lambda found: [*found[:-1], {**found[-1], "hosts": {}}], "is not in the totals"),
    ],
)
def test_a_run_that_is_not_whole_is_refused(damage: Any, word: str) -> None:
    with pytest.raises(EvidenceError, match=word):
        playbook_of(rows(*damage(events({"stdout": ROWS}))), file="f")


def test_a_line_that_is_no_json_is_named() -> None:
    with pytest.raises(EvidenceError, match="f:2: not valid JSON"):
        playbook_of([ROWS[0], "PLAY [all] ****", *ROWS[1:]], file="f")
