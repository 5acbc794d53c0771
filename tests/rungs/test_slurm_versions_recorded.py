"""Runner and scheduler on every version of Slurm that a lab was: judged on what it answered there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rungs_harness import edited, failed, judged
from slurm_views import GOLDEN, answered, document, runner_document, scheduler_view, site
from surefoot.rungs.runner import RUNG as RUNNER
from surefoot.rungs.runner import STDOUT
from surefoot.rungs.scheduler_smoke import RUNG as SCHEDULER
from surefoot.rungs.slurm_view import Answer, Node, config_of, controllers_clock, controllers_up, nodes_of_answer

RECORDED = sorted(path.parent for path in GOLDEN.parent.glob("*/scheduler-head.json") if path.parent != GOLDEN)


@pytest.fixture(params=RECORDED, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def answer(golden: Path, case: str) -> Answer:
    said = json.loads((golden / f"{case}.json").read_text())
    return Answer.model_validate({**said, "error": "", "started_at": 1.0, "ended_at": 2.0})


def nodes(golden: Path, case: str) -> dict[str, Node]:
    return {node.name: node for node in nodes_of_answer(answer(golden, case), file=case)}


def test_there_is_an_older_and_a_newer_version_than_the_one_that_all_other_tests_read() -> None:
    assert [path.name[:5] for path in RECORDED] == ["20.11", "22.05", "24.11", "26.05"]


def test_a_whole_lab_passes_the_runner(golden: Path) -> None:
    view = answered(site(RUNNER), runner_document("good", golden))
    old = {"runner.python"} if golden.name.startswith("20.11") else set()  # Debian 11 has Python 3.9
    assert failed(RUNNER, view) == old
    assert judged(RUNNER, view).summary.endswith("Slurm cluster 'lab': 2 of 2 nodes take jobs")


def test_a_whole_lab_passes_the_scheduler(golden: Path) -> None:
    view = scheduler_view(golden=golden)
    assert failed(SCHEDULER, view) == set()
    assert judged(SCHEDULER, view).summary.endswith(f"told apart; Slurm {golden.name}, 2 nodes configured alike")


def test_a_node_that_is_drained_or_does_not_respond_fails_with_slurms_reason(golden: Path) -> None:
    def out(said: Any) -> None:
        said["answers"]["nodes"]["stdout"] = document("nodes-down", golden)["stdout"]

    view = edited(answered(site(RUNNER), runner_document("good", golden)), STDOUT, out)
    assert "runner.slurm.nodes" in failed(RUNNER, view)
    found = nodes(golden, "nodes-down")
    assert "drained: no new job starts there). Slurm's reason: bad rail, row 3 [said root]" in found["n1"].trouble
    assert found["n2"].bad == ["DOWN", "NOT_RESPONDING"]
    assert (
        "its slurmd does not answer the controller). Slurm's reason: Not responding [said slurm]" in found["n2"].trouble
    )


def test_a_gpu_that_slurmd_does_not_find_puts_the_node_out_but_for_20_11(golden: Path) -> None:
    """With SlurmdParameters=config_overrides, as a lab has it, 20.11 believes slurm.conf and says so in its log alone."""
    node = nodes(golden, "nodes-inval")["n1"]
    if golden.name.startswith("20.11"):
        assert node.trouble == ""
    else:
        assert "INVALID_REG" in node.bad
        assert "gres/gpu count reported lower than configured (7 < 8)" in node.trouble


def test_the_controller_and_its_configuration_are_read(golden: Path) -> None:
    config = config_of(answer(golden, "config"), file="config")
    assert (config["SLURM_VERSION"], config["ClusterName"], config["HASH_VAL"]) == (golden.name, "lab", "Match")
    assert config.accounting
    assert config.munge
    assert controllers_clock(answer(golden, "config")) is not None
    assert controllers_clock(answer(golden, "config-away")) is None
    assert controllers_up(answer(golden, "ping")) == (["Slurmctld(primary) at head is UP"], [])
    assert controllers_up(answer(golden, "ping-away")) == ([], ["Slurmctld(primary) at head is DOWN"])
