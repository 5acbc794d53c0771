"""A run that an older version recorded is still a run: keys that came since are no damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot.engine.judge import Judge
from surefoot.engine.package import CONFIGURATION, configuration_tree
from surefoot.engine.store import load_manifest
from surefoot.errors import RunNotFoundError
from surefoot.model.base import Record
from surefoot.model.status import Status
from surefoot.paths import RunPaths
from toy_ladder import NAMES, climb, new_session, statuses, toys


def as_recorded_before(run: RunPaths, change: Any) -> None:
    """The manifest as a version wrote it that did not know some keys."""
    data = json.loads(run.manifest.read_text())
    change(data["inputs"])
    recorded = {name: data["inputs"][name] for name in CONFIGURATION}
    data["inputs"]["configuration_digest"] = configuration_tree(recorded).digest
    run.manifest.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def test_a_run_without_keys_that_came_later_is_judged_as_before(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    before = climb(session, toys())

    def without(inputs: dict[str, Any]) -> None:
        del inputs["cluster"]["env"]
        for rung in inputs["ladder"]["rungs"]:
            del rung["time_limit_s"]

    as_recorded_before(session.run_paths, without)
    manifest = load_manifest(session.run_paths)
    judged = Judge(session.run_paths, manifest, toys()).run()
    assert statuses(judged) == statuses(before) == dict.fromkeys(NAMES, Status.PASSED)


def test_a_key_that_was_changed_is_damage_all_the_same(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    data = json.loads(session.run_paths.manifest.read_text())
    data["inputs"]["ladder"]["rungs"][0]["time_limit_s"] = 77
    session.run_paths.manifest.write_text(json.dumps(data))
    with pytest.raises(RunNotFoundError, match="is not the one whose digest it records"):
        load_manifest(session.run_paths)


def test_what_a_record_says_beyond_its_defaults_is_its_identity() -> None:
    class Before(Record):
        size: int = 3

    class Since(Record):
        size: int = 3
        colour: str = "grey"

    assert Before().content_digest() == Since().content_digest()
    assert Before(size=4).content_digest() == Since(size=4).content_digest() != Before().content_digest()
    assert Since(colour="red").content_digest() != Since().content_digest()
