"""The roles on other Debians than the default: hosts become a cluster, a second run changes nothing, and none drifts.

Each is a lab by roles (``surefoot lab up --suite SUITE --by-roles``). Part of ``make test-versions``;
ROLE_SUITES names other suites to try.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from drilling import wait_until
from held import Held
from lab_drill import LabDrill, lab_here
from playing import differing, play, totals
from surefoot.lab.base_root import SUITES as RELEASES
from surefoot.lab.hosts import on_host
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import inventories
from surefoot.lab.spec import DEFAULT_SUITE
from surefoot.lab.state import LabState

pytestmark = [pytest.mark.lab, pytest.mark.versions, pytest.mark.timeout(1200)]

SUITES = os.environ.get("ROLE_SUITES", "bullseye trixie").split()


@dataclass(frozen=True)
class OfSuite:
    """A lab of a suite by roles."""

    suite: str
    paths: LabPaths

    @property
    def state(self) -> LabState:
        return LabState.model_validate_json(self.paths.state.read_text())

    def on(self, host: str, *argv: str) -> str:
        return on_host(self.state, host, list(argv)).stdout.strip()


@pytest.fixture(scope="module", params=SUITES)
def by_roles(request: pytest.FixtureRequest, held: Held) -> Iterator[OfSuite]:
    suite = request.param
    with lab_here(held, f"v{suite[0]}", "--suite", suite, "--by-roles", "--nodes", "2") as paths:
        yield OfSuite(suite, paths)


def test_the_roles_make_a_cluster_of_another_slurm_that_runs_a_program_on_every_node(by_roles: OfSuite) -> None:
    assert by_roles.suite != DEFAULT_SUITE, "that one is run by the tests of the lab itself"
    release = RELEASES[by_roles.suite]
    said = {host: by_roles.on(host, "sinfo", "-V").split()[1] for host in by_roles.state.spec.hosts}
    assert release == "newest" or all(version.startswith(f"{release}.") for version in said.values()), said
    assert f"for Slurm {release}" in by_roles.on("n1", "cat", "/etc/slurm/cgroup.conf") or release == "newest"
    program = ["srun", "-A", "lab", "-N2", "--gpus-per-node=8", "sh", "-c", "hostname; echo $CUDA_VISIBLE_DEVICES"]
    assert sorted(by_roles.on("head", *program).split()) == ["0,1,2,3,4,5,6,7"] * 2 + ["n1", "n2"]
    wait_until(lambda: "COMPLETED|0:0|" in by_roles.on("head", "sacct", "-n", "-X", "-P", "-o", "state,exitcode,alloctres"))  # fmt: skip
    assert "gres/gpu=16" in by_roles.on("head", "sacct", "-n", "-X", "-P", "-o", "alloctres")


def test_a_second_run_of_the_whole_site_changes_nothing_there(by_roles: OfSuite, tmp_path: Path) -> None:
    code, events = play(inventories(by_roles.paths), tmp_path, "site.yml")
    assert (code, differing(events, "changed", "failed", "unreachable")) == (0, [])
    assert totals(events, "changed") == {"head": 0, "n1": 0, "n2": 0}
    assert {each.get("role") for each in events if each["event"] == "task"} >= {"common", "munge", "storage", "gres", "slurm"}  # fmt: skip


def test_hosts_there_agree_with_the_inventory_and_a_hand_edit_is_found(by_roles: OfSuite, tmp_path: Path) -> None:
    drill = LabDrill(tmp_path / "root", lab=by_roles.paths)
    cluster = ("--cluster", str(by_roles.paths.cluster))
    for command in ("inventory", "drift"):
        done = drill.run(command, *cluster, root=False, timeout_s=600)
        assert done.returncode == 0, done.stdout + done.stderr
    by_roles.on("n2", "sh", "-c", "echo '# by hand' >>/etc/slurm/cgroup.conf")
    drift = drill.run("drift", *cluster, root=False, timeout_s=600)
    assert drift.returncode == 1, drift.stdout + drift.stderr
    for word in ("n2", "/etc/slurm/cgroup.conf", "by hand"):
        assert word in drift.stdout
