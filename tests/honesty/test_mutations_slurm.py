"""Damaged evidence of a Slurm site is never judged PASSED: as `test_mutations`, on what a real lab answered.

There is no seal here: it is evidence that was wrong when it was collected. What may pass all the same
stands below, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mutations import Mutation, is_listed, mutations
from slurm_views import answered, runner_document, scheduler_view, site
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.runner import RUNG as RUNNER
from surefoot.rungs.scheduler_smoke import RUNG as SCHEDULER
from view_files import status, undetected, written

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STILL_TRUE = {
    (r".*\.json|.*\.stdout", r"", r"extra whitespace.*"): "white space around a JSON document says nothing",
    (r".*\.out", r"", r"extra whitespace.*|content twice"): "judged where it belongs: `scheduler.<job>.output`",
    (r"raw/(head|decoded|runner|here)\.stderr", r"", r".*"): "kept for diagnosis",
    (r"raw/(array|limit|cancelled|nodes)/.*\.out", r"", r".*"): "a job's log, kept for diagnosis",
    (r"raw/here\.stdout", r"", r".*"): "another machine all the same",
    (r"raw/(here|head|decoded)\.exit\.json", r"(started|ended)_at", r".*"): "when is shown; how it ended is judged",
    (r"raw/(limit|cancelled)\.status\.json", r"", r"delete"): "done.json says the same",
    (r"raw/(limit|cancelled)/done\.json", r"", r"delete"): "the scheduler's word is there; `scheduler.limit` is open",
    (r"raw/(limit|cancelled)\.status\.json", r"(reason|word|nodes|elapsed_s|cause|expected_start).*", r".*"): "words",
    (r".*/done\.json", r"reason", r".*"): "words",
    (r"raw/(limit|cancelled)/done\.json", r"ranks\.0\.signal", r".*"): "its state is judged, and that no rank "
    "ended with 0",
    (r"raw/nodes/rank-\d\.json", r"data\.configuration\.(found|files\..*\.path)", r".*"): "words",
    (r"raw/nodes/rank-\d\.json", r"data\.munge\.(head|others\.\d|made\.\w+)\.(started_at|ended_at)", r".*"): "no claim",
    (r"raw/nodes/rank-\d\.json", r"data\.munge\.(head|others\.\d)\.stdout\.(?!0$|13$)\d+", r".*"): "shown only; "
    "status and content are judged",
    (
        r"raw/nodes/rank-\d\.json",
        r"data\.munge\.made\.\w+\.(stdout\.0|argv\.1)",
        r".*",
    ): "what others decoded is judged",
}


def explained(mutation: Mutation) -> bool:
    return is_listed(mutation, STILL_TRUE)


def runner_view() -> View:
    return answered(site(RUNNER), runner_document("good"))


@pytest.mark.parametrize("make", [runner_view, scheduler_view], ids=[RUNNER.name, SCHEDULER.name])
def test_nothing_damaged_passes(make: Callable[[], View], tmp_path: Path) -> None:
    view = make()
    assert status(view) is Status.PASSED, "it must pass before it is damaged"
    source = written(view, tmp_path / "good")
    made = list(mutations(view.plan.rung, source, tmp_path / "none"))
    tried = [each for number, each in enumerate(made) if each.file != "plan.json" and not (each.where and number % 2)]
    passed = undetected(view, source, tried, explained)
    assert not passed, "\n".join(passed)
    assert len(made) > 20
