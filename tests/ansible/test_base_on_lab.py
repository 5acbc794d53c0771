"""Roles common, munge and storage on a lab's hosts: a second run changes nothing, and what is changed by hand is named and undone."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from held import Held
from lab_drill import lab_here
from playing import Played, run
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import SITE

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HALF_DONE = """set -e
mkdir -p /root/half/DEBIAN
printf 'Package: half-done\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n' >/root/half/DEBIAN/control
dpkg-deb -b /root/half /root/half.deb >/dev/null
dpkg --unpack /root/half.deb >/dev/null
"""


@dataclass(frozen=True)
class Site:
    paths: LabPaths
    folder: Path

    def play(self, *words: str) -> Played:
        """What the three roles did."""
        key = base64.b64encode((self.paths.secrets / "munge.key").read_bytes()).decode()
        asked = [str(SITE / "inventory/common"), str(self.folder / "site.yml")]
        env = {"SUREFOOT_MUNGE_KEY_BASE64": key}
        return run(asked, self.folder, str(self.folder / "play.yml"), *words, env=env).well()

    def on(self, host: str, script: str) -> str:
        argv = ["ssh", "-F", str(self.paths.ssh_config), f"root@{host}", script]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def site(held: Held) -> Iterator[Site]:
    with lab_here(held, "b", "--plain", "--nodes", "2") as paths:
        addresses = [
            line.split()[:2]
            for line in (paths.host("head").folder / "upper/etc/hosts").read_text().splitlines()
            if "10." in line
        ]
        hosts = {host: {"common_address": address} for address, host in addresses if host in ("head", "n1", "n2")}
        hosts["head"]["common_chrony_local_stratum"] = 10
        variables = {
            "ansible_user": "root",
            "ansible_ssh_common_args": f"-F {paths.ssh_config}",
            "common_chrony_servers": ["head"],
            "common_chrony_allow": ["10.0.0.0/8"],
            "common_chrony_adjusts_clock": False,
            "common_limits": [],
            "common_sysctl": {},
            "common_users": [{"name": "climber", "uid": 2001, "create_home": False}],
            "storage_root": str(paths.shared),
            "storage_mounts": [{"src": "tmpfs", "path": "/srv/fast", "fstype": "tmpfs", "options": "size=8m,noatime"}],
        }
        folder = held.folder("bl-")
        groups = {"slurm_controller": {"hosts": {"head": hosts.pop("head")}}, "slurm_node": {"hosts": hosts}}
        (folder / "site.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))
        play = {"hosts": "common", "become": True, "roles": ["common", "storage", "munge"]}
        (folder / "play.yml").write_text(yaml.safe_dump([play]))
        yield Site(paths, folder)


@pytest.mark.timeout(600)
def test_a_second_run_changes_nothing_and_each_change_by_hand_is_named_and_undone(site: Site) -> None:
    site.play()
    site.play().well(changed=0)
    site.play("--check", "--diff").well(changed=0)
    site.on(
        "n1",
        "systemctl stop chrony; sed -i s/n2/n9/ /etc/hosts; mount -o remount,ro /srv/fast;"
        " mkdir -p /etc/cron.d; echo '* * * * * root true' > /etc/cron.d/stray; chmod 0444 /etc/munge/munge.key",
    )
    # A host that stopped between unpacking a package and configuring it; a daemon that runs with what was edited back.
    site.on("n2", HALF_DONE)
    site.on("n2", "cp -p /etc/default/munge /root; sed -i s/10/3/ /etc/default/munge; systemctl restart munge")
    site.on("n2", "cp -p /root/munge /etc/default/munge")
    checked = site.play("--check", "--diff")
    assert [row for row in checked.changed if row.startswith("n2: common: Daemons run")] == [
        "n2: common: Daemons run with the files that lie there: munge: it read /etc/default/munge otherwise than now",
        "n2: common: Daemons run with the files that lie there: ",
    ]
    events = [event for event in checked.events if event.get("host") != "n2"]
    found = [event for event in events if event.get("status") == "changed"]
    assert {event["host"] for event in found} == {"n1"}
    paths = {event.get("path") for event in found}
    assert {"/etc/hosts", "/proc/self/mounts", "/etc/cron.d/stray", "/etc/munge/munge.key"} <= paths
    assert any(event["task"] == "Chrony runs, and starts with the host" for event in found)
    site.play()
    site.play("--check", "--diff").well(changed=0)
    assert site.on("n2", "dpkg-query -W -f '${db:Status-Status}' half-done; pgrep -af munged").startswith("installed")
    assert "--num-threads 10" in site.on("n2", "pgrep -af munged")
    said = site.on(
        "n1", "systemctl is-active chrony; cat /var/lib/surefoot/strays/etc/cron.d/stray; grep /srv/fast /proc/mounts"
    )
    assert said.startswith("active\n* * * * * root true\ntmpfs /srv/fast tmpfs rw,noatime"), said
