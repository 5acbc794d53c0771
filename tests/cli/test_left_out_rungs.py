"""A rung that is left out is told aloud wherever a run is told of, and is never a pass nor what another stands on."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from toy_cli import ToyCli, statuses
from toy_ladder import ToyRung, toys

LADDER = """\
name: toy
rungs:
  - rung: runner
  - {rung: inventory, needs: [runner], optional: true}
  - {rung: drift, needs: [inventory], optional: true}
  - {rung: sync, needs: [drift]}
"""
NOTE = "left out: inventory, drift (cluster 'local' declares no ansible: nothing is known of them)"


@pytest.fixture
def left(toy: ToyCli) -> ToyCli:
    """Toy rungs under all four names: had one that is left out been run, it would have PASSED."""
    toy.ladder.write_text(LADDER)
    given(toy)
    return toy


def given(toy: ToyCli, **codes: str) -> None:
    rungs = {**toys(**codes), "inventory": ToyRung("inventory"), "drift": ToyRung("drift")}
    for module in ("running", "runs", "dry_run"):
        toy.patch.setattr(f"surefoot.cli.{module}.RUNGS", rungs)


def test_a_dry_run_tells_it_and_plans_nothing_of_it(left: ToyCli) -> None:
    said = left.climb("--dry-run")
    assert said.code == 2
    assert f"\n{NOTE}\n" in said.out
    assert "sync  (needs runner)" in said.out
    told = left.climb("--dry-run", "--json").json
    assert (told["left_out"], list(told["plans"])) == (["inventory", "drift"], ["runner", "sync"])


def test_a_climb_its_record_and_each_report_tell_it_and_count_it_as_nothing(left: ToyCli) -> None:
    said = left.climb()
    assert said.code == 0, said.err
    assert NOTE in " ".join(said.out.split())
    assert "2 of 2 rungs proved" in said.out
    run = left.only_run
    recorded = json.loads(run.manifest.read_text())["inputs"]
    assert [one["rung"] for one in recorded["asked_ladder"]["rungs"]] == ["runner", "inventory", "drift", "sync"]
    assert [one["rung"] for one in recorded["ladder"]["rungs"]] == ["runner", "sync"]
    summary = json.loads(run.summary.read_text())
    assert summary["left_out"] == ["inventory", "drift"]
    assert statuses(summary) == {"runner": "PASSED", "sync": "PASSED"}
    assert (summary["counts"]["PASSED"], sum(summary["counts"].values())) == (2, 2)
    assert NOTE[1:] in run.report.read_text().replace("&#39;", "'")
    for name in ("inventory", "drift"):
        assert not run.rung(name).folder.exists()
    assert NOTE in " ".join(left("show").out.split())
    assert left("show", "--json").json["left_out"] == ["inventory", "drift"]


def test_in_junit_it_is_skipped_with_the_reason_and_never_green(left: ToyCli) -> None:
    left.climb()
    suites = {suite.get("name"): suite for suite in ET.parse(left.only_run.junit).getroot()}  # noqa: S314 - our own
    for name in ("inventory", "drift"):
        (case,) = suites[name]
        (skipped,) = case
        assert (skipped.tag, skipped.get("message")) == ("skipped", NOTE)
        assert (suites[name].get("tests"), suites[name].get("skipped")) == ("1", "1")


def test_what_stood_on_it_still_stands_on_what_that_stood_on(left: ToyCli) -> None:
    given(left, runner="raise SystemExit(1)")
    said = left.climb("--json")
    assert said.code != 0
    found = statuses(said.json)
    assert found["sync"] == "BLOCKED"
    assert found.keys() == {"runner", "sync"}


@pytest.mark.parametrize("options", [["--only", "drift"], ["--to", "drift"], ["--from", "inventory"]])
def test_asked_for_by_its_name_it_is_refused_with_what_to_declare(left: ToyCli, options: list[str]) -> None:
    said = left.climb(*options)
    assert said.code == 3
    assert f"rung '{options[1]}' is left out: the cluster declares no ansible" in said.err
    assert "declare the site under `ansible:` in the cluster file" in said.err
    assert left.runs == []
    assert left("rung", "drift", "--run", "ci-1", "--ladder", str(left.ladder)).code == 3


def test_a_run_resumed_where_ansible_is_declared_climbs_it_and_what_it_passed_does_not_stay_where_it_is_gone(
    left: ToyCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surefoot.engine.left_out.find_tool", lambda *_: "/usr/bin/true")  # the rungs are toys
    for name in ("site/ansible.cfg", "site/site.yml", "hosts.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    head = f"name: local\nroot: {left.root}\nnode_groups: [{{name: all, count: 1, gpus_per_node: 0}}]\n"
    (tmp_path / "bare.yaml").write_text(head)
    (tmp_path / "whole.yaml").write_text(f"{head}ansible: {{site: site, inventory: [hosts.yml]}}\n")
    assert left.climb("--cluster", str(tmp_path / "bare.yaml")).code == 0
    run = left.only_run.folder.name
    whole = left("climb", "--resume", run, "--cluster", str(tmp_path / "whole.yaml"), "--json").json
    assert set(statuses(whole).items()) == {(name, "PASSED") for name in ("runner", "inventory", "drift", "sync")}
    assert whole["left_out"] == []
    bare = left("climb", "--resume", run, "--cluster", str(tmp_path / "bare.yaml"), "--json").json
    assert (bare["left_out"], statuses(bare).keys()) == (["inventory", "drift"], {"runner", "sync"})
    assert bare["counts"]["PASSED"] == 2
    shown = left("show", run, "--json").json
    assert (shown["left_out"], statuses(shown).keys()) == (["inventory", "drift"], {"runner", "sync"})
