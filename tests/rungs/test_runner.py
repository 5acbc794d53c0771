"""Runner: what one command through the connection must show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rungs_harness import collected, edited, failed, judged, status_of, with_files
from surefoot.model.status import Status
from surefoot.rungs.base import View
from surefoot.rungs.runner import RUNG

STDOUT = "raw/runner.stdout"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> View:
    return collected(RUNG, {}, tmp_path_factory.mktemp("runner"))


def test_this_machine_passes_and_every_check_names_its_evidence(good: View) -> None:
    judgement = judged(RUNG, good)
    assert status_of(RUNG, good) is Status.PASSED
    assert len(judgement.checks) == 5
    assert all(check.evidence for check in judgement.checks)


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("nonce", "another", "runner.answered"),
        ("python", "3.9.2", "runner.python"),
        ("surefoot", "0.0.1", "runner.surefoot"),
        ("clock", 1.0, "runner.clock"),
        ("root", {"path": "/", "read": None, "error": "Permission denied"}, "runner.root"),
    ],
)
def test_each_fact_that_is_wrong_fails_its_own_check(good: View, key: str, value: Any, check: str) -> None:
    assert failed(RUNG, edited(good, STDOUT, lambda d: d.update({key: value}))) == {check}


@pytest.mark.parametrize(("found", "passes"), [("3.9.2", True), ("3.13.5", True), ("3.8.10", False)])
def test_a_site_that_declares_an_older_python_may_climb_as_far_as_that_goes(
    tmp_path: Path, found: str, passes: bool
) -> None:
    declared = collected(RUNG, {}, tmp_path / "evidence", software={"python": "3.8"})
    seen = edited(declared, STDOUT, lambda d: d.update(python=found))
    assert failed(RUNG, seen) == (set() if passes else {"runner.python"})


def test_a_root_that_gives_back_other_data_fails(good: View) -> None:
    damaged = edited(good, STDOUT, lambda d: d["root"].update(read="stale\n"))
    assert failed(RUNG, damaged) == {"runner.root"}


@pytest.mark.parametrize("content", [None, b"", b"{", b"Welcome to node1!\n{}", b"[]"])
def test_an_answer_that_cannot_be_read_proves_nothing(good: View, content: bytes | None) -> None:
    assert status_of(RUNG, with_files(good, {STDOUT: content})) is Status.INCONCLUSIVE


def test_a_root_that_cannot_be_written_is_reported_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    view = collected(RUNG, {}, tmp_path / "evidence")
    from surefoot.node.runner import probe_root

    found = probe_root(tmp_path / "file" / "below", "n")
    assert found["read"] is None
    assert "Not a directory" in found["error"]
    damaged = edited(view, STDOUT, lambda d: d.update(root={**found, "path": d["root"]["path"]}))
    assert failed(RUNG, damaged) == {"runner.root"}
