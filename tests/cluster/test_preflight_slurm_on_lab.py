"""``surefoot preflight --slurm --learn FILE`` on the head of a real Slurm: SUCCESS, and a cluster file that the same
nodes pass with and that FAILS by name on the node that was changed afterwards.

Nodes of a lab declare CPUs that are pretended. Here Slurm is told how many there are, as a site's own would know.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from held import Held
from lab_drill import lab, lab_here
from surefoot.benchmarks.ddp_step import SUCCESS
from surefoot.config.load import load_cluster
from surefoot.lab.places import LabPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

SOURCES = Path(__file__).parents[2] / "src"
CPUS = os.cpu_count() or 1


@dataclass(frozen=True)
class Head:
    """Commands of the lab's user on its head, with a clone of these sources and no cluster file."""

    lab: LabPaths

    @property
    def name(self) -> str:
        return self.lab.folder.name

    @property
    def root(self) -> Path:
        """The shared root that is named to ``--shared-root``."""
        return self.lab.shared / "site"

    def surefoot(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["env", f"PYTHONPATH={self.lab.shared}/clone/src", sys.executable, "-m", "surefoot", *words]
        ssh = ["ssh", "-F", str(self.lab.ssh_config), "head", *command]
        done = subprocess.run(ssh, capture_output=True, text=True, timeout=400, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def checks(self) -> dict[str, Any]:
        """Those of the latest run's pre-check."""
        latest = max((self.root / "runs").iterdir(), key=lambda run: run.name)
        told = json.loads((latest / "rungs/precheck/result.json").read_text())
        return {check["id"]: check for check in told["judgement"]["checks"]}

    def on(self, host: str, script: str) -> None:
        """A script run on a host, as root; the lab is whole, and its nodes idle, when this ends."""
        lab("exec", host, "--", "sh", "-euc", script, name=self.name)
        lab("mend", name=self.name)


@pytest.fixture(scope="module")
def head(held: Held) -> Iterator[Head]:
    with lab_here(held, "p", "--plain", "--nodes", "2", "--gpus-per-node", "0") as paths:
        shutil.copytree(SOURCES, paths.shared / "clone/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        made = Head(paths)
        lab("exec", "all", "--", "sed", "-i", f"s/CPUs=96/CPUs={CPUS}/", "/etc/slurm/slurm.conf", name=made.name)
        lab("exec", "head", "--", "systemctl", "restart", "slurmctld", name=made.name)
        for node in ("n1", "n2"):
            made.on(node, "systemctl restart slurmd")
        yield made


def test_what_is_learnt_passes_on_the_same_nodes_and_fails_by_name_on_the_one_that_was_changed(head: Head) -> None:
    learnt = head.lab.shared / "learnt.yaml"
    done = head.surefoot("preflight", "--slurm", "--shared-root", str(head.root), "--learn", str(learnt))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == SUCCESS
    assert "Slurm's partition gpu: 2 of 2 nodes" in done.stdout
    (group,) = load_cluster(learnt).record.node_groups
    assert (group.count, group.hosts, group.gpus_per_node, group.min_cpus) == (2, "n[1-2]", 0, CPUS)
    assert {"kernel", "memlock", "cpu", "torch"} <= set(group.expect)

    by_file = ("preflight", "--cluster", str(learnt))
    same = head.surefoot(*by_file)
    assert same.returncode == 0, same.stdout[-4000:] + same.stderr[-2000:]
    assert same.stdout.splitlines()[-1] == SUCCESS

    unit = "/run/systemd/system/slurmd.service.d/less.conf"
    less = f"mkdir -p {Path(unit).parent}; printf '[Service]\\nCPUAffinity=0\\nLimitMEMLOCK=65536\\n' >{unit}"
    again = "systemctl daemon-reload; systemctl restart slurmd"
    head.on("n2", f"{less}; {again}")
    try:
        other = head.surefoot(*by_file)
        failed = {name: check for name, check in head.checks().items() if check["status"] == "FAILED"}
    finally:
        head.on("n2", f"rm {unit}; {again}")
    assert other.returncode == 1, other.stdout[-4000:] + other.stderr[-2000:]
    assert SUCCESS not in other.stdout
    for name in ("precheck.node1.cpus", f"precheck.expect.{group.name}.memlock"):
        assert name in failed, set(failed)
        assert failed[name]["nodes"] == ["n2"]
        assert "n2" in other.stdout

    whole = head.surefoot(*by_file)
    assert whole.returncode == 0, whole.stdout[-4000:]


def test_a_claim_that_was_edited_fails_on_every_node_that_does_not_keep_it(head: Head) -> None:
    learnt, edited = head.lab.shared / "learnt.yaml", head.lab.shared / "edited.yaml"
    group = load_cluster(learnt).record.node_groups[0]
    text = learnt.read_text()
    assert group.expect["kernel"] in text
    edited.write_text(text.replace(group.expect["kernel"], "1.2.3"))
    done = head.surefoot("preflight", "--cluster", str(edited))
    assert done.returncode == 1, done.stdout[-4000:]
    check = head.checks()[f"precheck.expect.{group.name}.kernel"]
    assert (check["status"], check["nodes"]) == ("FAILED", ["n1", "n2"])
    assert f"{group.expect['kernel']} on n[1-2]" in check["actual"]
