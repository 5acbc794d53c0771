"""The drift table: changes made by hand on a real lab's hosts, each found and named, none missed, and a clean site is 0.

The site is made of the roles in ``ansible/`` that such changes touch, and of two tasks of its own (a
mount and a package), so that it holds whatever else ``site.yml`` is made of. It takes about five minutes.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from held import Held
from lab_drill import lab_here
from surefoot.lab.places import LabPaths

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
SITE = """
- name: Base of every host
  hosts: common
  become: true
  roles: [{role: common}]
- name: A mount, a package
  hosts: common
  become: true
  gather_facts: false
  tasks:
    - name: Scratch is mounted with the declared options
      ansible.builtin.copy:
        dest: /etc/systemd/system/mnt-scratch.mount
        mode: "0644"
        content: |
          [Mount]
          What=tmpfs
          Where=/mnt/scratch
          Type=tmpfs
          Options=noatime,size=16m
    - name: The toy is installed
      ansible.builtin.apt: {name: surefoot-toy, state: present}
- name: Who vouches for whom
  hosts: munge
  become: true
  roles: [{role: munge}]
- name: GPUs as Slurm counts them
  hosts: gres
  become: true
  roles: [{role: gres}]
- name: Slurm on nodes
  hosts: slurm_node
  become: true
  roles: [{role: slurm}]
"""
TOY = """set -e
rm -rf /root/toy && mkdir -p /root/toy/DEBIAN
printf 'Package: surefoot-toy\\nVersion: {version}\\nArchitecture: all\\nMaintainer: t <t@t>\\nDescription: t\\n' > /root/toy/DEBIAN/control
dpkg-deb -b /root/toy /root/toy.deb >/dev/null && dpkg -i /root/toy.deb >/dev/null
"""
DRIFTS: dict[str, tuple[str, str, str]] = {
    "hand-edited slurm.conf": ("n1", "sed -i s/SlurmdTimeout=.*/SlurmdTimeout=77/ /etc/slurm/slurm.conf", "/etc/slurm/slurm.conf"),
    "changed mount option": ("n1", "sed -i s/noatime/relatime/ /etc/systemd/system/mnt-scratch.mount", "mnt-scratch.mount"),
    "stopped chrony": ("n2", "systemctl stop chrony", "Chrony runs"),
    "another package version": ("n2", TOY.format(version="1.1"), "surefoot-toy: n2 has 1.1; others 1.0"),
    "stray cron file": ("n1", "mkdir -p /etc/cron.d; echo '* * * * * root true' > /etc/cron.d/mine", "/etc/cron.d/mine"),
    "changed limits file": ("n2", "echo '* - nproc 12' >> $(ls /etc/security/limits.d/*.conf | head -1)", "/etc/security/limits.d/"),
    "wrong mode of the munge key": ("n1", "chmod 640 /etc/munge/munge.key", "/etc/munge/munge.key"),
    "edited hosts file": ("n2", "echo '127.0.1.1 n2' >> /etc/hosts", "/etc/hosts"),
    "disabled service": ("n2", "systemctl disable munge 2>/dev/null", "Munge runs"),
}  # fmt: skip
"""Kind → host, what somebody does there, what the report must name."""


@dataclass(frozen=True)
class Site:
    """A site on a lab, and its cluster file."""

    lab: LabPaths
    folder: Path
    cluster: Path
    env: dict[str, str]

    def root(self, host: str, script: str) -> str:
        """What a script says that root runs on a host."""
        command = ["ssh", "-F", str(self.lab.ssh_config), f"root@{host}", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
        return done.stdout

    def apply(self) -> str:
        """Run the site; its recap."""
        asked = yaml.safe_load(self.cluster.read_text())["ansible"]
        words = [word for path in asked["inventory"] for word in ("-i", path)]
        tool = Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [str(tool), *words, "site.yml"], cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout[done.stdout.index("PLAY RECAP") :]

    def surefoot(self, command: str) -> dict[str, Any]:
        """What a command of Surefoot's says as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", command, "--cluster", str(self.cluster), "--json"],
            env=self.env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode
        return found


@pytest.fixture(scope="module")
def site(held: Held, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab of its own with the site applied: it is another cluster then."""
    with lab_here(held, "d", "--plain") as lab:
        yield _applied(lab, tmp_path_factory)


def _applied(lab: LabPaths, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    for name in ("roles", "plugins", "ansible.cfg"):
        (folder / name).symlink_to(ROOT / "ansible" / name)
    (folder / "site.yml").write_text(SITE)
    cluster = yaml.safe_load(lab.cluster.read_text())
    cluster["connection"]["config"] = str(lab.ssh_config)
    (folder / "hosts.yml").write_text(json.dumps(_inventory(lab, cluster["name"])))
    cluster["ansible"] = {
        "site": str(folder),
        "inventory": [str(ROOT / "ansible/inventory/common"), str(folder / "hosts.yml")],
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    sockets = tmp_path_factory.mktemp("cp")
    env = {
        **os.environ,
        # Hosts of all labs have the same names: Ansible's own folder of connections is not for two of them.
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=5s",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "SUREFOOT_MUNGE_KEY_BASE64": base64.b64encode((lab.secrets / "munge.key").read_bytes()).decode(),
        "SUREFOOT_SLURM_DATABASE_PASSWORD": "a-password-of-the-test",
    }
    made = Site(lab, folder, folder / "cluster.yaml", env)
    for host in ("head", "n1", "n2"):
        made.root(host, TOY.format(version="1.0"))
    made.apply()
    return made


def _inventory(lab: LabPaths, name: str) -> dict[str, Any]:
    def address(host: str) -> str:
        asked = subprocess.run(
            ["ssh", "-F", str(lab.ssh_config), f"root@{host}", "hostname -I"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return asked.stdout.split()[0]

    nodes = {host: {"common_address": address(host)} for host in ("n1", "n2")}
    head = {"head": {"common_address": address("head"), "common_chrony_local_stratum": 10}}
    variables = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F {lab.ssh_config}",
        "common_chrony_servers": ["head"],
        "common_chrony_allow": ["10.0.0.0/8"],
        "common_chrony_adjusts_clock": False,
        "common_limits": [{"domain": "*", "type": "-", "item": "core", "value": "0"}],
        "common_sysctl": {"net.core.somaxconn": 4096},
        "slurm_cluster_name": name,
        "slurm_node_cpus": 96,
        "slurm_node_memory_mib": 2000000,
        "slurm_partitions": [{"name": "gpu", "default": True}, {"name": "low"}],
        "slurm_config": {
            "AuthInfo": "cred_expire=5", "SlurmdParameters": "config_overrides", "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none", "JobAcctGatherType": "jobacct_gather/linux", "SlurmdTimeout": 15,
        },
        "slurm_cgroup_config": {"CgroupPlugin": "disabled"},
        "gres_gpus_per_node": 8,
        "gres_gpu_type": "h100",
        "gres_device_glob": "/dev/fakegpu[0-9]*",
    }  # fmt: skip
    groups = {"slurm_controller": {"hosts": head}, "slurm_node": {"hosts": nodes}}
    return {"all": {"vars": variables, "children": groups}}


def test_every_drift_is_found_and_named_and_a_clean_site_is_zero(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = site.surefoot("drift")
    assert [(row["host"], row["what"], row["diff"]) for row in clean["rows"]] == []
    assert (clean["status"], clean["exit_code"]) == ("PASSED", 0), _open(clean)
    for host, script, _ in DRIFTS.values():
        site.root(host, script)
    found = site.surefoot("drift")
    assert (found["status"], found["exit_code"]) == ("FAILED", 1)
    told = [f"{c['id']}: {c['claim']}: {c['actual']}" for c in found["checks"] if c["status"] == "FAILED"]
    by_kind = {
        kind: [text for text in told if word in text and (f"drift.{host}." in text or "drift.packages" in text)]
        for kind, (host, _, word) in DRIFTS.items()
    }
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(f"{kind}: {texts[:1]}" for kind, texts in by_kind.items()) + "\n")
    assert [kind for kind, texts in by_kind.items() if not texts] == []
    strangers = {row["host"] for row in found["rows"]} - {"n1", "n2"}
    assert strangers == set(), "a host that nobody touched has drifts"
    key = site.env["SUREFOOT_MUNGE_KEY_BASE64"]
    assert key not in json.dumps(found)


def _open(result: dict[str, Any]) -> list[str]:
    return [f"{c['id']} {c['status']}: {c['actual']}" for c in result["checks"] if c["status"] != "PASSED"]
