"""What is wrong with a Slurm site is found by the first rung that can know it, named with node and cause, and gone after mend."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drilling import QUICK
from lab_drill import LabDrill, lab
from surefoot.lab.places import LabPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Seen:
    """How a fault shows."""

    rung: str
    check: str
    words: tuple[str, ...]
    status: str = "FAILED"
    settings: tuple[str, ...] = ()


FLOOR = ("collectives.max_size=4MiB", "collectives.min_busbw_gb_s={all_reduce: 0.05}")
"""Between what two hosts of the lab carry and what a link held to 200 Mbit/s does, 0.025 GB/s."""
SILENT, DEAF = "slurmd does not listen", "accepts nothing that is said to it: another munge key, or a clock"
FAULTS: dict[tuple[str, ...], Seen] = {
    ("slurmd-killed", "n1"): Seen("runner", "runner.slurm.nodes", ("n1: ", SILENT)),
    ("link-cut", "n2"): Seen("runner", "runner.slurm.nodes", ("n2: ", SILENT)),
    ("munge-key", "n1"): Seen("runner", "runner.slurm.nodes", ("n1: ", DEAF)),
    ("clock-off", "n2"): Seen("runner", "runner.slurm.nodes", ("n2: ", DEAF)),
    ("clock-off", "n1", "--set", "-30s"): Seen("scheduler", "scheduler.slurm.clocks", ("n1 is ", "s behind")),
    ("clock-off", "n2", "--set", "+60s"): Seen(
        "sync", "job.sync.ended", ("could not start its ranks on n2", "credential expired"), "ERROR"
    ),
    ("gres-missing", "n2"): Seen("runner", "runner.slurm.nodes", ("n2 is ", "gres/gpu count reported lower")),
    ("slurm-conf-edited", "n1"): Seen("scheduler", "scheduler.slurm.conf", ("n1: ", "-KillWait=5 / +KillWait=31")),
    ("disk-full", "n1"): Seen("sync", "job.sync.ended", ("n1 is drained", "SlurmdSpoolDir is full"), "ERROR"),
    ("stale-job-folder", "n2"): Seen("sync", "sync.rank1.code", ("on n2 sees", "src/surefoot/__init__.py differs")),
    ("loopback-name", "n1"): Seen("precheck", "precheck.node0.own_name", ("n1 → 127.0.1.1",)),
    ("link-shaped", "n2"): Seen(
        "collectives", "collectives.all_reduce.busbw", ("the slowest link is n", "n2"), settings=FLOOR
    ),
    ("slurmctld-stopped", "head"): Seen("runner", "runner.slurm.controller", ("head is DOWN", "Unable to contact")),
    ("slurmdbd-stopped", "head"): Seen("runner", "runner.slurm.accounting", ("host:head:6819", "Connection refused")),
}  # fmt: skip


@pytest.fixture
def drill(breaking_lab: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=breaking_lab)


def result(drill: LabDrill, rung: str) -> Any:
    return json.loads((drill.run_folder() / f"rungs/{rung}/result.json").read_text())


MEASURED = ("link-shaped",)
"""Faults that show by how fast something is."""


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.alone] if fault[0] in MEASURED else []) for fault in FAULTS],
    ids=" ".join,
)
def test_a_fault_is_named_by_the_rung_that_can_know_it_and_gone_after_mend(
    drill: LabDrill, fault: tuple[str, ...]
) -> None:
    seen, name = FAULTS[fault], drill.paths.folder.name
    settings = [word for setting in seen.settings for word in ("--set", setting)]
    if fault[0] == "stale-job-folder":  # it damages what is there already
        assert LabDrill(drill.root.with_name("before"), lab=drill.paths).run(
            "climb", *drill.on_lab, "--to", "sync"
        ).returncode == 0  # fmt: skip
    lab("break", *fault, name=name)
    try:
        climbed = drill.run("climb", *drill.on_lab, *QUICK, *settings, "--to", seen.rung, "--json")
    finally:
        lab("mend", name=name)
    found = result(drill, seen.rung)
    assert found["status"] == seen.status, climbed.stdout[-3000:]
    assert climbed.returncode == {"FAILED": 1, "ERROR": 4}[seen.status]
    (check,) = [each for each in found["judgement"]["checks"] if each["id"] == seen.check]
    assert check["status"] == seen.status
    said = f"{check['claim']}: {check['actual']}"
    assert [word for word in seen.words if word not in said] == [], said
    assert check["next_action"]
    assert drill.queue() == []
    run = drill.run_folder().name
    again = drill.run("climb", "--resume", run, "--to", seen.rung, "--json")
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-2000:]
    assert result(drill, seen.rung)["status"] == "PASSED"
