"""The drift table: changes made by hand on a real lab's hosts, each found, named and undone, none missed; a clean site is 0.

The whole of ``ansible/site.yml``, with a mount, limits and a package that a lab alone does not have. About four minutes.
"""

from __future__ import annotations

import json
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
from playing import differing, play
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import inventories

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.timeout(1500)]

SETTINGS: dict[str, Any] = {
    "common_extra_packages": ["surefoot-toy"],
    "common_limits": [{"domain": "*", "type": "-", "item": "core", "value": "0"}],
    "storage_mounts": [{"src": "tmpfs", "path": "/srv/fast", "fstype": "tmpfs", "options": "size=8m,noatime"}],
}
"""Over what a lab's own inventory says."""
TOY = """set -e
rm -rf /root/toy && mkdir -p /root/toy/DEBIAN
printf 'Package: surefoot-toy\\nVersion: {version}\\nArchitecture: all\\nMaintainer: t <t@t>\\nDescription: t\\n' > /root/toy/DEBIAN/control
dpkg-deb -b /root/toy /root/toy.deb >/dev/null && dpkg -i /root/toy.deb >/dev/null
"""
DRIFTS: dict[str, tuple[str, str, str]] = {
    "hand-edited slurm.conf": ("n1", "sed -i s/SlurmdTimeout=.*/SlurmdTimeout=77/ /etc/slurm/slurm.conf", "/etc/slurm/slurm.conf"),
    "changed mount option": ("n1", "sed -i s/noatime/relatime/ /etc/systemd/system/srv-fast.mount", "srv-fast.mount"),
    "stopped chrony": ("n2", "systemctl stop chrony", "Chrony runs"),
    "another package version": ("n2", TOY.format(version="1.1"), "surefoot-toy: n2 has 1.1; others 1.0"),
    "stray cron file": ("n1", "mkdir -p /etc/cron.d; echo '* * * * * root true' > /etc/cron.d/mine", "/etc/cron.d/mine"),
    "changed limits file": ("n2", "echo '* - nproc 12' >> $(ls /etc/security/limits.d/*.conf | head -1)", "/etc/security/limits.d/"),
    "wrong mode of the munge key": ("n1", "chmod 640 /etc/munge/munge.key", "/etc/munge/munge.key"),
    "edited hosts file": ("n2", "echo '127.0.1.1 n2' >> /etc/hosts", "/etc/hosts"),
    "mount in force with another option": ("n2", "mount -o remount,size=9m /srv/fast", "/srv/fast"),
    "mode of the file with accounting's password": ("head", "chmod 644 /etc/slurm/slurmdbd.conf", "/etc/slurm/slurmdbd.conf"),
    "stopped slurmd": ("n2", "systemctl stop slurmd", "slurmd"),
    "disabled service": ("n2", "systemctl disable munge 2>/dev/null", "Munge runs"),
}  # fmt: skip
"""Kind → host, what somebody does there, what the report must name."""


@dataclass(frozen=True)
class Site:
    """A lab with a site of its own, and its cluster file."""

    lab: LabPaths
    folder: Path
    inventories: tuple[str, ...]

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster.yaml"

    def run(self) -> None:
        """Run the site to its end."""
        code, events = play(self.inventories, self.folder, "site.yml")
        assert (code, differing(events, "failed", "unreachable")) == (0, [])

    def root(self, host: str, script: str) -> str:
        """What a script prints on a host, run by root."""
        command = ["ssh", "-F", str(self.lab.ssh_config), f"root@{host}", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
        return done.stdout

    def surefoot(self, command: str) -> dict[str, Any]:
        """What a command of Surefoot's says as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", command, "--cluster", str(self.cluster), "--json"],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode
        return found


@pytest.fixture(scope="module")
def site(held: Held, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lab_here(held, "d") as lab:
        folder = tmp_path_factory.mktemp("site")
        hosts = ("head", "n1", "n2")
        more = {
            "hosts": dict.fromkeys(hosts, SETTINGS),
            "children": {"storage_client": {"hosts": {"n1": {}, "n2": {}}}},
        }
        (folder / "more.yml").write_text(json.dumps({"all": more}))
        asked = [*inventories(lab), str(folder / "more.yml")]
        cluster = yaml.safe_load(lab.cluster.read_text())
        cluster["connection"]["config"] = str(lab.ssh_config)
        cluster["ansible"]["inventory"] = asked
        made = Site(lab, folder, tuple(asked))
        made.cluster.write_text(yaml.safe_dump(cluster))
        for host in hosts:
            made.root(host, TOY.format(version="1.0"))
        made.run()
        yield made


def test_every_drift_is_found_and_named_and_undone_by_the_next_run_and_a_clean_site_is_zero(
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
    told_in_full = json.dumps(found)
    for name in ("munge.base64", "jwt.base64", "database"):
        assert (site.lab.secrets / name).read_text() not in told_in_full, name

    site.root("n2", TOY.format(version="1.0"))  # no version is declared: the site undoes all but this
    site.run()
    again = site.surefoot("drift")
    assert [(row["host"], row["what"], row["diff"]) for row in again["rows"]] == []
    assert (again["status"], again["exit_code"]) == ("PASSED", 0), _open(again)
    assert site.root("n1", "cat /var/lib/surefoot/strays/etc/cron.d/mine") == "* * * * * root true\n", "kept, not lost"
    (mounted,) = (line for line in site.root("n2", "cat /proc/mounts").splitlines() if " /srv/fast " in line)
    assert "size=8192k" in mounted, "what is in force, not only the unit's file"
    states = site.root("n2", "systemctl is-active chrony slurmd munge; systemctl is-enabled munge").split()
    assert states == ["active", "active", "active", "enabled"]


def _open(result: dict[str, Any]) -> list[str]:
    return [f"{c['id']} {c['status']}: {c['actual']}" for c in result["checks"] if c["status"] != "PASSED"]
