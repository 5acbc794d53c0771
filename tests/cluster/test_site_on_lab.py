"""Bare hosts, made a cluster by ``ansible/site.yml`` as a user's would be: it holds, and it is changed under a job.

The lab is that of other tests, which climb it and hold it against its site (``test_climb_on_lab``). The tests stand
in the order of a site's life, and the last of them changes it: no other file uses the lab after this one.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from drilling import wait_until
from lab_drill import LabDrill
from playing import differing, play, totals
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import SITE, inventories

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = SITE / "inventory/lab/group_vars/all/slurm.yml"


@pytest.fixture
def provisioned(climbing_lab: LabPaths) -> LabPaths:
    if not climbing_lab.inventory.exists():
        pytest.skip("this lab was made without roles: LAB_UP")
    return climbing_lab


@pytest.fixture
def drill(provisioned: LabPaths, tmp_path: Path) -> LabDrill:
    return LabDrill(tmp_path / "root", lab=provisioned)


def test_a_second_run_of_the_whole_site_changes_nothing(provisioned: LabPaths, tmp_path: Path) -> None:
    code, events = play(inventories(provisioned), tmp_path, "site.yml")
    assert (code, differing(events, "changed", "failed", "unreachable")) == (0, [])
    assert totals(events, "changed") == {"head": 0, "n1": 0, "n2": 0}
    assert {each.get("role") for each in events if each["event"] == "task"} >= {"common", "munge", "storage", "gres", "slurm"}  # fmt: skip


def test_a_rolling_change_ends_no_job_and_is_drift_until_the_inventory_declares_it(
    drill: LabDrill, tmp_path: Path
) -> None:
    go = drill.paths.shared / "go"
    step = shlex.quote(f"srun sh -c 'until [ -e {go} ]; do sleep 1; done'")
    job = drill.on_head("sbatch", "--parsable", "-A", "lab", "-N2", "-n2", "-o", "/dev/null", "--wrap", step).strip()
    wait_until(lambda: drill.on_head("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
    settings = yaml.safe_load(CONFIG.read_text())["slurm_config"] | {"SlurmdTimeout": 25}
    change = tmp_path / "change.json"
    change.write_text(json.dumps({"slurm_config": settings}))

    code, events = play(inventories(drill.paths), tmp_path, "rolling.yml", "--extra-vars", f"@{change}")
    assert (code, differing(events, "failed", "unreachable")) == (0, [])
    assert all(totals(events, "changed").values())
    assert drill.on_head("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    assert "= 25 sec" in drill.on_head("scontrol", "show", "config").split("SlurmdTimeout")[1].splitlines()[0]
    go.touch()
    wait_until(lambda: drill.on_head("squeue", "-h", "-j", job, "-o", "%T").strip() == "")
    assert drill.on_head("sacct", "-n", "-X", "-P", "-j", job, "-o", "state,exitcode").split() == ["COMPLETED|0:0"]
    assert set(drill.on_head("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}

    drift = drill.run("drift", "--cluster", str(drill.paths.cluster), root=False)
    assert drift.returncode == 1, drift.stdout + drift.stderr
    for host in ("head", "n1", "n2"):
        assert host in drift.stdout
    assert "/etc/slurm/slurm.conf" in drift.stdout
    assert "SlurmdTimeout" in drift.stdout
