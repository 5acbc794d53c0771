"""Roles nvidia and rdma over ssh on a lab's hosts, whose Python and apt are real, and whose GPUs and rails are pretended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from held import Held
from lab_drill import lab_here
from pretended_host import DRIVER, nvidia_host, put, rdma_host, smi
from surefoot.lab.places import LabPaths
from surefoot.lab.spec import DEFAULT_SUITE
from surefoot.provision.running import control_sockets

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long]
ANSIBLE = Path(__file__).parents[2] / "ansible"
BIN = Path(sys.executable).parent
NAMES = ("n1", "n2")


@pytest.fixture(scope="module")
def two_nodes(held: Held) -> Iterator[LabPaths]:
    """A lab of a head and two nodes. SUITE in the environment names another Debian."""
    with lab_here(held, "g", "--plain", "--suite", os.environ.get("SUITE", DEFAULT_SUITE)) as paths:
        yield paths


@pytest.fixture(scope="module")
def trees(two_nodes: LabPaths) -> Path:
    """Pretended hosts in the lab's shared folder, which every host sees under the same path."""
    folder = two_nodes.shared / "pretended"
    for name in NAMES:
        nvidia_host(folder / name / "nvidia", gpus=1, model="NVIDIA GB10", switches=0)
        rdma_host(folder / name / "rdma")
    return folder


def inventory(paths: LabPaths, folder: Path) -> Path:
    """The lab's nodes, as ssh reaches them."""
    path = folder / "inventory.yml"
    common = {"ansible_ssh_common_args": f"-F {paths.ssh_config}", "ansible_user": "root"}
    path.write_text(yaml.safe_dump({"all": {"vars": common, "hosts": dict.fromkeys(NAMES)}}))
    return path


def env(**more: str) -> dict[str, str]:
    plain = {"ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **plain, **more}


def play(hosts: Path, folder: Path, trees: Path, *options: str) -> tuple[int, str]:
    """(exit code, output) of both roles, with what inventory/two-sparks declares."""
    site = ANSIBLE / "inventory/two-sparks/group_vars/all"
    told: dict[str, Any] = {}
    for name in ("gpus", "rails"):
        told |= yaml.safe_load((site / f"{name}.yml").read_text())
    told |= {"nvidia_driver_version": DRIVER, "rdma_mtu": "9000"}
    roots = {f"{role}_look_root": f"{trees}/{{{{ inventory_hostname }}}}/{role}" for role in ("nvidia", "rdma")}
    playbook = folder / "play.yml"
    playbook.write_text("- {name: Both, hosts: all, gather_facts: true, roles: [nvidia, rdma]}\n")
    command = [
        str(BIN / "ansible-playbook"),
        "-i",
        str(hosts),
        *options,
        "-e",
        json.dumps({**told, **roots}),
        str(playbook),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env(), timeout=200, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_spark_that_differs_is_named_and_the_other_is_not(two_nodes: LabPaths, trees: Path, tmp_path: Path) -> None:
    hosts = inventory(two_nodes, tmp_path)
    code, output = play(hosts, tmp_path, trees, "--check", "--diff")
    assert code == 0, output
    assert re.findall(r"^(n\d) .* changed=0 .* failed=0", output, re.MULTILINE) == ["n1", "n2"]

    put(trees / "n2/nvidia", "smi.xml", smi(gpus=1, model="NVIDIA GB10", fabric=("N/A", "N/A"), persistence="Disabled"))
    put(trees / "n2/rdma", "sys/class/infiniband/rocep1s0f1/ports/1/rate", "100 Gb/sec (2X HDR)\n")
    code, output = play(hosts, tmp_path, trees)
    assert code != 0
    assert re.search(r"n2: of \d+ claims 1 do not hold:\npersistence mode: off on 00000000:10:00.0", output), output
    assert re.findall(r"^(n\d) .* failed=(\d)", output, re.MULTILINE) == [("n1", "0"), ("n2", "1")]

    put(trees / "n2/nvidia", "smi.xml", smi(gpus=1, model="NVIDIA GB10", fabric=("N/A", "N/A")))
    code, output = play(hosts, tmp_path, trees)
    assert code != 0
    assert "rail0: rocep1s0f1 port 1 (enp1s0f1np1): expected 200 Gb/s, found 100 Gb/s" in output


def test_the_molecule_scenario_of_the_untouched_driver_holds(two_nodes: LabPaths, tmp_path: Path) -> None:
    hosts = inventory(two_nodes, tmp_path)
    command = [str(BIN / "molecule"), "test", "--scenario-name", "driver-is-never-touched-unasked"]
    with control_sockets() as sockets:  # a socket's path has 107 characters at most
        more = {"HOME": str(tmp_path), "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets)}
        done = subprocess.run(
            command,
            cwd=ANSIBLE / "roles/nvidia",
            env=env(SUREFOOT_LAB_INVENTORY=str(hosts), **more),
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "cuda-cudart-13-0=999.1-1 installed" in done.stdout + done.stderr
