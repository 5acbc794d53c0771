"""The written prolog as ``Prolog`` of a real Slurm, put there by the role slurm: who is drained for what, and for what nobody is.

A lab of two nodes, each with a file system of its own at /srv/fast and an interface eth0, which the cluster file
claims. What breaks is the file system: it is unmounted. About five minutes, and more on a machine with other work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from drilling import wait_until
from held import Held
from lab_drill import lab_here
from playing import Played, run
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import inventories

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long, pytest.mark.timeout(1200)]

NODES = ("n1", "n2")
PLACE = "/etc/slurm/surefoot-prolog"
MOUNT = "mkdir -p /srv/fast && { mountpoint -q /srv/fast || mount -t tmpfs tmpfs /srv/fast; }"
UNMOUNT = "umount /srv/fast"
STATUS = "/run/surefoot-prolog.json"
USABLE = {(state, "none") for state in ("idle", "mixed", "planned")}
"""State and reason of a node that Slurm starts jobs on."""


@dataclass(frozen=True)
class Site:
    """A lab whose slurm.conf names a written prolog."""

    lab: LabPaths
    folder: Path
    inventories: tuple[str, ...]

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def markers(self) -> Path:
        return self.lab.shared / "prolog-markers"

    def root(self, host: str, script: str) -> str:
        """What a script prints on a host, run by root."""
        command = ["ssh", "-F", str(self.lab.ssh_config), f"root@{host}", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{host}: {script}: {done.stdout}{done.stderr}"
        return done.stdout

    def surefoot(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "surefoot", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)

    def write(self) -> None:
        """Write the prolog of the cluster file."""
        done = self.surefoot(
            "preflight", "--cluster", str(self.cluster), "--write-prolog", str(self.folder / "prolog"),
            "--prolog-enforce", "--prolog-markers", str(self.markers),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def play(self, *words: str) -> Played:
        return run(self.inventories, self.folder, "site.yml", *words)

    # --- what Slurm says ---

    def srun(self, *words: str) -> str:
        return self.root("head", f"timeout 60 srun {' '.join(words)}").strip()

    def submit(self, *words: str) -> str:
        """Id of a job that does nothing."""
        return self.root("head", f"sbatch --parsable -o /dev/null {' '.join(words)} --wrap true").strip()

    def state(self, node: str) -> tuple[str, str]:
        """A node's state, and why it is not used."""
        state, _, reason = self.root("head", f"sinfo -h -N -p gpu -n {node} -o '%T|%E'").strip().partition("|")
        return state, reason

    def drained(self) -> list[str]:
        return [node for node in NODES if self.state(node)[0].startswith("drain")]

    def job(self, job: str) -> tuple[str, str]:
        """A job's state, and why it waits."""
        told = dict(
            word.split("=", 1) for word in self.root("head", f"scontrol -o show job {job}").split() if "=" in word
        )
        return told["JobState"], told["Reason"]

    # --- what the prolog says ---

    def status(self, node: str) -> dict[str, Any]:
        """What it found last on a node."""
        found: dict[str, Any] = json.loads(self.root(node, f"cat {STATUS} 2>/dev/null || echo '{{\"job\": null}}'"))
        return found

    def judged(self, node: str, job: str) -> dict[str, Any]:
        """What it found there before a job."""
        return wait_until(lambda: (told := self.status(node))["job"] == job and told, 60)

    def whole(self) -> None:
        """Everything as it was: mounts, markers, prolog, nodes, queue."""
        for node in NODES:
            self.root(node, f"{MOUNT}; rm -rf {PLACE}; cp -a /root/prolog-kept {PLACE}")
        self.root("head", f"scancel -u root; rm -f {self.markers}/*")
        deadline = time.monotonic() + 180
        # After a prolog that failed Slurm may show the node as mixed for minutes, and starts jobs there all the same.
        while not set((seen := {node: self.state(node) for node in NODES}).values()) <= USABLE:
            assert time.monotonic() < deadline, seen
            for node, (state, _) in seen.items():
                if state.startswith(("drain", "down")):
                    self.root("head", f"scontrol update nodename={node} state=resume")
            time.sleep(0.5)


@pytest.fixture(scope="module")
def standing(held: Held, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with lab_here(held, "p") as lab:
        folder = tmp_path_factory.mktemp("site")
        told = yaml.safe_load(lab.cluster.read_text())
        told["connection"]["config"] = str(lab.ssh_config)
        told["node_groups"][0]["expect"] = {"mount /srv/fast": "tmpfs"}
        told["env"] = {"GLOO_SOCKET_IFNAME": "eth0"}
        (folder / "more.yml").write_text(json.dumps({"all": {"vars": {"slurm_prolog_folder": str(folder / "prolog")}}}))
        told["ansible"]["inventory"] = [*inventories(lab), str(folder / "more.yml")]
        made = Site(lab, folder, tuple(told["ansible"]["inventory"]))
        made.cluster.write_text(yaml.safe_dump(told))
        made.write()
        made.markers.mkdir()
        made.markers.chmod(0o1777)
        for node in NODES:
            made.root(node, MOUNT)
        made.play().well()
        for node in NODES:
            made.root(node, f"cp -a {PLACE} /root/prolog-kept")
        yield made


@pytest.fixture
def site(standing: Site) -> Site:
    standing.whole()
    return standing


def test_the_role_puts_it_there_once_and_a_healthy_node_runs_jobs(site: Site) -> None:
    site.play("--tags", "slurm").well(changed=0)
    config = site.root("head", "scontrol show config")
    settings = {
        line.split("=")[0].strip(): line.split("=", 1)[1].strip() for line in config.splitlines() if "=" in line
    }
    assert settings["Prolog"].endswith(f"{PLACE}/prolog.sh")
    assert "Alloc" in settings["PrologFlags"]
    assert settings["PrologEpilogTimeout"].startswith("10")
    job = site.srun("-N2", "--ntasks-per-node=1", "printenv", "SLURM_JOB_ID").splitlines()[0]
    for node in NODES:
        told = site.judged(node, job)
        assert (told["outcome"], told["node"], told["code"]) == ("proved", node, 0)
        assert {name: state for name, (state, _) in told["verdicts"].items()} == dict.fromkeys(
            ("mounts", "interfaces"), "proved"
        )
    assert site.drained() == []


def test_a_broken_claim_drains_its_node_alone_and_the_job_is_held_until_somebody_releases_it(site: Site) -> None:
    site.root("n2", UNMOUNT)
    job = site.submit("-N1", "-w", "n2")
    assert wait_until(lambda: site.drained() == ["n2"], 60)
    assert site.state("n2")[1] == "Prolog error"
    told = site.judged("n2", job)
    assert (told["code"], told["verdicts"]["mounts"]) == (3, ["disproved", "not mounted: /srv/fast"])
    assert told["verdicts"]["interfaces"][0] == "proved"
    assert wait_until(lambda: site.job(job)[0] == "PENDING", 60)
    assert site.job(job)[1] == "launch_failed_requeued_held"
    assert site.srun("-N1", "hostname") == "n1", "the other node goes on"
    site.root("n2", MOUNT)
    site.root("head", f"scontrol update nodename=n2 state=resume; scontrol release {job}")
    assert wait_until(lambda: site.job(job)[0] == "COMPLETED", 60)
    assert site.status("n2")["outcome"] == "proved"


OWN_FAULTS = {
    "claims file gone": "rm {place}/claims/nodes.json",
    "claims file cut off": "truncate -s 20 {place}/claims/nodes.json",
    "archive gone": "rm {place}/prolog.pyz",
    "archive cut off": "truncate -s 9000 {place}/prolog.pyz",
    "no Python": "sed -i s,/usr/bin/python3,/no/such/python3, {place}/prolog.sh",
    "node not in the file": "sed -i 's/^(n1|n2)/(n7)/' {place}/prolog.sh",
    "markers gone": "sed -i 's,prolog-markers,no/such,' {place}/claims/nodes.json",
    "sinfo gone": "sed -i 's,^PATH=.*,PATH=/no/such,; s,^timeout,/usr/bin/timeout,' {place}/prolog.sh",
}


@pytest.mark.parametrize("damage", OWN_FAULTS)
def test_its_own_faults_drain_nothing_though_the_node_is_broken(site: Site, damage: str) -> None:
    site.root("n2", f"{UNMOUNT}; before=$(sha256sum {PLACE}/*.* {PLACE}/claims/*)"
                    f"; {OWN_FAULTS[damage].format(place=PLACE)}"
                    f'; test "$before" != "$(sha256sum {PLACE}/*.* {PLACE}/claims/* 2>/dev/null)"')  # fmt: skip
    assert site.srun("-N1", "-w", "n2", "hostname") == "n2"
    assert site.drained() == []


def test_where_both_nodes_fail_at_once_not_the_whole_cluster_is_drained(site: Site) -> None:
    for node in NODES:
        site.root(node, UNMOUNT)
    job = site.submit("-N2")
    told = [site.judged(node, job) for node in NODES]
    assert [one["verdicts"]["mounts"][0] for one in told] == ["disproved", "disproved"]
    assert sorted(path.name for path in site.markers.iterdir()) == ["n1", "n2"]
    assert any("not acted upon" in one["outcome"] for one in told), told
    more = [site.submit("-N1", "-w", node) for node in NODES]  # and those that come after it
    assert wait_until(lambda: all(site.job(one)[0] in ("COMPLETED", "PENDING") for one in more), 60)
    assert len(site.drained()) <= 1, [site.state(node) for node in NODES]


def test_a_script_that_is_not_there_drains_its_node_by_slurm_itself(site: Site) -> None:
    """Why the role puts it there before slurm.conf names it, and why it lies on the node's own disk."""
    site.root("n2", f"rm {PLACE}/prolog.sh")
    job = site.submit("-N1", "-w", "n2")
    assert wait_until(lambda: site.drained() == ["n2"], 60)
    assert site.state("n2")[1] == "Prolog error"
    assert site.job(job)[0] == "PENDING"


def test_a_change_by_hand_on_a_node_is_a_drift_and_the_next_run_undoes_it(site: Site) -> None:
    claims = f"{PLACE}/claims/nodes.json"
    before = site.root("n1", f"sha256sum {claims}")
    site.root("n1", f"sed -i s/true/false/ {claims}")
    found = json.loads(site.surefoot("drift", "--cluster", str(site.cluster), "--json").stdout)
    assert found["status"] == "FAILED"
    named = [f"{c['id']}: {c['claim']}: {c['actual']}" for c in found["checks"] if c["status"] == "FAILED"]
    assert [text for text in named if claims in text and "drift.n1." in text], named
    site.play("--tags", "slurm").well()
    assert site.root("n1", f"sha256sum {claims}") == before
