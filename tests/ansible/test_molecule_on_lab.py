"""The molecule scenarios of roles, on a node of a lab that the roles made: what was damaged is as declared again.

Each scenario damages something (prepare), runs the role, runs it again (changed=0), and looks (verify).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from held import Held
from lab_drill import lab_here
from surefoot.lab.places import LabPaths
from surefoot.provision.running import control_sockets

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long]

ROLES = Path(__file__).parents[2] / "ansible/roles"
SCENARIOS = {path.parent.name: path.parents[2] for path in ROLES.glob("*/molecule/*/prepare.yml")}


@pytest.fixture(scope="module")
def lab(held: Held) -> Iterator[LabPaths]:
    with lab_here(held, "m", "--nodes", "1") as paths:
        yield paths


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_scenario_holds(lab: LabPaths, tmp_path: Path, name: str) -> None:
    folder = Path(sys.executable).parent
    with control_sockets() as sockets:
        done = subprocess.run(
            [folder / "molecule", "test", "--scenario-name", name],
            cwd=SCENARIOS[name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250, check=False,
            env={
                **os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path),
                "LC_ALL": "C.UTF-8", "SUREFOOT_LAB_INVENTORY": str(lab.inventory), "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
            },
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"changed=[1-9]", done.stdout), "nothing was damaged"
