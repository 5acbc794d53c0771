"""Hosts that have nothing but systemd, sshd and Python, an apt repository on their own disk, and the site that is made of them."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import stand_in_runner
from apt_repository import repository
from held import Held, remove_folder
from lab_drill import lab
from playing import Played, run
from surefoot.lab import machine
from surefoot.lab.base_root import ensure_base, packages
from surefoot.lab.configuration import GPU_DEVICE, GPU_TYPE
from surefoot.lab.hosts import on_host
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, LabPaths, lab_home
from surefoot.lab.provisioning import SITE
from surefoot.lab.spec import CLIMBER, CLIMBER_UID, DEFAULT_SUITE, MGMT, Tier, address
from surefoot.lab.state import LabState, load

HOME = lab_home(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))
MORE = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "nfs-common", "nfs-kernel-server")
"""What roles may ask for beyond what the lab's usual base root has."""
SETTINGS = {
    "SlurmdParameters": "config_overrides",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "SchedulerParameters": "bf_interval=2,sched_min_interval=0,batch_sched_delay=0",
}
"""Of the lab: nodes are larger than this machine, and Slurm touches no cgroup."""


@dataclass
class BareSite:
    """Bare hosts, and the site that is made of them."""

    paths: LabPaths
    folder: Path
    secret: dict[str, str] = field(repr=False)
    """Name in the environment → a secret of the site."""
    told: list[str] = field(default_factory=list, repr=False)
    """All that plays printed so far."""

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    @property
    def state(self) -> LabState:
        return load(HOME, self.paths.folder.name)

    def on(self, host: str, script: str, *, check: bool = True) -> str:
        """What a shell script prints on a host, run by root."""
        return on_host(self.state, host, ["bash", "-c", script], timeout_s=120, check=check).stdout

    def play(
        self,
        *words: str,
        playbook: str = "site.yml",
        env: Mapping[str, str] | None = None,
        kill_after: float | tuple[str, str] | None = None,
    ) -> Played:
        """Run a playbook to its end, or until it is killed; with all that Ansible can say, as that is where secrets slip out."""
        asked = [str(SITE / "inventory/common"), str(self.inventory)]
        own = self.secret | dict(env or {})
        played = run(asked, self.folder / "a", playbook, "--diff", "-vvv", *words, env=own, kill_after=kill_after)
        self.told.append(played.text)
        return played


@contextmanager
def bare_site(held: Held, letter: str, more: Mapping[str, Any] | None = None) -> Iterator[BareSite]:
    """A head and two nodes, with the repository as their only source of packages. `more`: groups beside the usual."""
    if missing := machine.problems(Tier.HOSTS, HOME.folder):
        pytest.fail(f"this machine cannot hold a lab: {'; '.join(each.what for each in missing)}", pytrace=False)
    name = held.lab(letter)
    folder = held.folder("bare-")
    try:
        yield make(name, folder, more or {})
    finally:
        lab("down", "--purge", name=name)
        remove_folder(str(folder))


def make(name: str, folder: Path, more: Mapping[str, Any]) -> BareSite:
    """The same, without an end."""
    base = ensure_base(HOME, DEFAULT_SUITE, "", lambda _: None, bare=True)
    place = repository(HOME, base, (*packages(DEFAULT_SUITE), *MORE), own=stand_in_runner)
    lab("up", "--bare", "--nodes", "2", "--no-python", "--bind", str(place), name=name)
    secret = {
        "SUREFOOT_MUNGE_KEY_BASE64": base64.b64encode(secrets.token_bytes(128)).decode(),
        "SUREFOOT_SLURM_JWT_KEY_BASE64": base64.b64encode(secrets.token_bytes(32)).decode(),
        "SUREFOOT_SLURM_DATABASE_PASSWORD": secrets.token_hex(16),
        "SUREFOOT_RUNNER_TOKEN": f"glrt-{secrets.token_hex(10)}",
    }
    site = BareSite(HOME.lab(name), folder, secret)
    tree = inventory(site.state, site.paths)
    tree["all"]["children"] |= more
    site.inventory.write_text(yaml.safe_dump(tree))
    for host in site.state.spec.hosts:
        # As on a machine that was installed a while ago: what apt knew is old.
        source = f"deb [trusted=yes] file:{place} ./"
        site.on(host, f"echo '{source}' >/etc/apt/sources.list; touch -d '2 days ago' /var/lib/apt/lists")
    return site


def inventory(state: LabState, paths: LabPaths) -> dict[str, Any]:
    """The site: what a lab is, with monitoring, and a runner on n2 that logs in to the head."""
    spec, slot = state.spec, state.slot
    hosts = {
        host: {"ansible_host": f"{spec.name}-{host}", "common_address": address(slot, host)} for host in spec.hosts
    }
    head, nodes = {"hosts": {"head": None}}, {"hosts": dict.fromkeys(spec.node_names)}
    users = [
        {"name": CLIMBER, "uid": CLIMBER_UID, "shell": "/bin/bash", "home": f"/home/{CLIMBER}", "create_home": False},
        {"name": "surefoot-ci", "uid": 2100, "shell": "/bin/bash", "home": "/home/surefoot-ci", "create_home": False},
    ]
    variables = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F {paths.ssh_config}",
        "common_users": users,
        "common_limits": [],
        "common_sysctl": {},
        "common_chrony_adjusts_clock": False,
        "common_chrony_answer_within_s": 0,
        "common_extra_hosts": [{"address": address(slot, MGMT), "names": [MGMT]}],
        "slurm_cluster_name": spec.name,
        "slurm_node_cpus": 96,
        "slurm_node_memory_mib": 2_000_000,
        "slurm_config": SETTINGS,
        "slurm_cgroup_config": {"CgroupPlugin": "disabled"},
        "slurm_accounts": [{"name": "lab", "users": ["root", CLIMBER, "surefoot-ci"]}],
        "slurm_database_settings": {"innodb_buffer_pool_size": "64M", "loose_innodb_snapshot_isolation": "OFF"},
        "gres_gpus_per_node": spec.gpus_per_node,
        "gres_gpu_type": GPU_TYPE,
        "gres_device_glob": f"{GPU_DEVICE}[0-9]*",
        "storage_root": str(paths.shared),
        "monitoring_scrape_interval_s": 2,
        "monitoring_slurm_interval_s": 2,
        "runner_gitlab_url": "https://gitlab.example.org",
        "runner_packages": ["gitlab-runner"],
    }
    groups = {
        "slurm_controller": head,
        "slurm_database": head,
        "slurm_rest": head,
        "slurm_login": head,
        "slurm_node": nodes,
        "monitoring_server": head,
        "monitoring_exporter": {"hosts": dict.fromkeys(spec.hosts)},
        "runner": {"hosts": {"n2": None}},
    }
    return {"all": {"vars": variables, "hosts": hosts, "children": groups}}
