"""The whole site, on hosts that have nothing: systemd, sshd, Python, and an apt repository on their own disk.

A lab's usual base root has Slurm's packages already, and so hides what a role forgot to name. These hosts
reach no mirror: what no role installs is missed. The repository holds more than is needed, so that it is
the roles that decide what is installed.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import stand_in_runner
from apt_repository import repository
from held import Held, remove_folder
from lab_drill import lab
from surefoot.lab import machine
from surefoot.lab.base_root import PACKAGES, ensure_base, packages
from surefoot.lab.configuration import GPU_DEVICE, GPU_TYPE
from surefoot.lab.hosts import on_host
from surefoot.lab.places import DEFAULT_HOME, HOME_VARIABLE, LabPaths, lab_home
from surefoot.lab.spec import CLIMBER, CLIMBER_UID, DEFAULT_SUITE, MGMT, Tier, address
from surefoot.lab.state import LabState, load
from surefoot.provision.commands import environment

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.timeout(1200)]

SITE = Path(__file__).parents[2] / "ansible"
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
class Told:
    """What a run of the site said."""

    code: int
    text: str = field(repr=False)
    stats: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass
class BareSite:
    """Bare hosts, and the site that is made of them."""

    paths: LabPaths
    inventory: Path
    env: dict[str, str] = field(repr=False)

    @property
    def state(self) -> LabState:
        return load(HOME, self.paths.folder.name)

    def on(self, host: str, script: str, *, check: bool = True) -> str:
        """What a shell script prints on a host, run by root."""
        return on_host(self.state, host, ["bash", "-c", script], timeout_s=120, check=check).stdout

    def play(self, *words: str) -> Told:
        """Run site.yml to its end."""
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(SITE / "inventory/common")]
        command += ["-i", str(self.inventory), str(SITE / "site.yml"), "--diff", "-vvv", *words]
        done = subprocess.run(command, env=self.env, cwd=SITE, capture_output=True, text=True, timeout=900, check=False)
        told = Told(done.returncode, done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            if not line.startswith('{"event"'):
                continue
            event = json.loads(line)
            where = f"{event.get('host')}: {event.get('role')}: {event.get('task')}"
            if event["event"] == "stats":
                told.stats = event["hosts"]
            elif event.get("status") in ("failed", "unreachable") and not event.get("ignored"):
                told.problems.append(f"{where}: {event.get('message', '')}")
            elif event.get("status") == "changed":
                told.changed.append(f"{where}: {event.get('path') or event.get('item') or ''}")
        return told


@pytest.fixture(scope="module")
def bare(held: Held) -> Iterator[BareSite]:
    """A head and two nodes, with the repository as their only source of packages."""
    if missing := machine.problems(Tier.HOSTS, HOME.folder):
        pytest.fail(f"this machine cannot hold a lab: {'; '.join(each.what for each in missing)}", pytrace=False)
    base = ensure_base(HOME, DEFAULT_SUITE, "", lambda _: None, bare=True)
    place = repository(HOME, base, (*packages(DEFAULT_SUITE), *MORE), own=stand_in_runner)
    name = held.lab("b")
    folder = held.folder("bare-")
    try:
        lab("up", "--bare", "--nodes", "2", "--no-python", "--bind", str(place), name=name)
        paths = HOME.lab(name)
        secret = {
            "SUREFOOT_MUNGE_KEY_BASE64": base64.b64encode(secrets.token_bytes(128)).decode(),
            "SUREFOOT_SLURM_JWT_KEY_BASE64": base64.b64encode(secrets.token_bytes(32)).decode(),
            "SUREFOOT_SLURM_DATABASE_PASSWORD": secrets.token_hex(16),
            "SUREFOOT_RUNNER_TOKEN": f"glrt-{secrets.token_hex(10)}",
        }
        sockets = folder / "cp"
        sockets.mkdir()
        env = environment(str(SITE), os.environ, sockets=str(sockets)) | secret | {"ANSIBLE_HOME": str(folder / "a")}
        site = BareSite(paths, folder / "inventory.yml", env)
        site.inventory.write_text(yaml.safe_dump(inventory(site.state, paths)))
        for host in site.state.spec.hosts:
            # As on a machine that was installed a while ago: what apt knew is old.
            source = f"deb [trusted=yes] file:{place} ./"
            site.on(host, f"echo '{source}' >/etc/apt/sources.list; touch -d '2 days ago' /var/lib/apt/lists")
        yield site
    finally:
        lab("down", "--purge", name=name)
        remove_folder(str(folder))


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


def test_a_package_that_a_role_does_not_name_is_missed_though_the_labs_usual_root_has_it(bare: BareSite) -> None:
    assert "munge" in PACKAGES
    told = bare.play("--extra-vars", json.dumps({"munge_packages": []}))
    assert told.code != 0
    assert {row.partition(":")[0] for row in told.problems} >= {"head", "n1", "n2"}, told.problems or told.text[-3000:]
    assert all(": munge: " in row for row in told.problems), told.problems


def test_the_site_makes_a_cluster_of_bare_hosts_and_a_second_run_changes_nothing(bare: BareSite) -> None:
    started = time.monotonic()
    told = bare.play()
    took = time.monotonic() - started
    assert told.code == 0, "\n".join(told.problems) or told.text[-3000:]
    assert set(told.stats) >= {"head", "n1", "n2"}
    sys.stderr.write(f"bare hosts to a cluster in {took:.0f} s\n")
    shown = wait_for(bare, "sinfo -h -N -p long -o '%N %T %G'", lambda text: text.count(" idle ") == 2)
    assert shown.split("\n")[:2] == [f"n{number} idle gpu:{GPU_TYPE}:8" for number in (1, 2)]
    ran = bare.on("head", f"runuser -u {CLIMBER} -- srun --chdir=/ -N2 -p long --gres=gpu:2 hostname")
    assert sorted(ran.split()) == ["n1", "n2"]
    again = bare.play()
    assert again.code == 0, "\n".join(again.problems)
    assert {host: row["changed"] for host, row in again.stats.items()} == dict.fromkeys(again.stats, 0), again.changed
    for name, value in bare.env.items():
        if name.startswith("SUREFOOT_") and any(word in name for word in ("KEY", "PASSWORD", "TOKEN")):
            assert value not in told.text + again.text, f"{name} is in the log"


def wait_for(site: BareSite, script: str, fits: Any, timeout_s: float = 60) -> str:
    """What a script prints on the head, once it fits."""
    deadline = time.monotonic() + timeout_s
    while not fits(text := site.on("head", script, check=False)):
        assert time.monotonic() < deadline, f"{script}: {text}"
        time.sleep(0.5)
    return text


def test_prometheus_sees_every_host_and_a_node_that_slurm_drains(bare: BareSite) -> None:
    def asks(expression: str) -> str:
        script = "import json,sys,urllib.parse,urllib.request as r;u='http://127.0.0.1:9090/api/v1/query?'"
        script += "+urllib.parse.urlencode({'query':sys.argv[1]});print(json.dumps(json.load(r.urlopen(u))['data']['result']))"
        return f"python3 -c \"{script}\" '{expression}'"

    # What the package's own configuration watched at first is remembered for five minutes.
    wait_for(bare, asks('up{instance!~"localhost:.*"} == 1'), lambda text: text.count('"instance"') == 5)
    wait_for(bare, asks('surefoot_slurm_nodes{state="idle"} == 2'), lambda text: "head" in text)
    bare.on("head", "scontrol update nodename=n1 state=drain reason=trial")
    try:
        seen = wait_for(bare, asks("surefoot_slurm_node_unavailable"), lambda text: '"n1"' in text)
        assert '"drained"' in seen
    finally:
        bare.on("head", "scontrol update nodename=n1 state=resume")
    bare.on("head", "systemctl stop slurmctld")
    try:
        wait_for(bare, asks("surefoot_slurm_answers == 0"), lambda text: "head" in text)
        assert wait_for(bare, asks('surefoot_slurm_nodes{instance!~"localhost:.*"}'), lambda text: text.strip() == "[]")
    finally:
        bare.on("head", "systemctl start slurmctld")


def test_jobs_of_the_runner_reach_the_login_host_and_nothing_that_is_not_theirs(bare: BareSite) -> None:
    job = """\
id -un
ssh -o BatchMode=yes head 'id -un; hostname'
ssh -o BatchMode=yes -o ExitOnForwardFailure=yes -R 0:localhost:22 head true && echo forwarded
ssh -o BatchMode=yes -tt head 'tty -s' && echo terminal
ssh -o BatchMode=yes root@head true && echo root on the login host
ssh -o BatchMode=yes n1 true && echo another host
echo own-key >>/etc/ssh/authorized_keys.d/surefoot-ci.n2 && echo key changed
echo x >>$HOME/.ssh/known_hosts && echo known_hosts changed
/usr/bin/su -c true && echo su
cat /proc/self/status | grep NoNewPrivs
cat /etc/munge/munge.key && echo munge key
"""
    home = "/var/lib/gitlab-runner"
    bare.on("n2", f"cat >{home}/jobs/one.sh <<'E'\n{job}E\n")
    out = wait_for_file(bare, f"{home}/jobs/one.out")
    said = [line for line in out.splitlines() if line in job or "NoNewPrivs" in line or line in ("head", "surefoot-ci")]
    assert out.splitlines()[0] == "gitlab-runner", out
    assert "surefoot-ci\nhead\n" in out, out
    assert "NoNewPrivs:\t1" in out, out
    gained = ("forwarded", "terminal", "root on the login host", "another host", "changed", "\nsu\n", "munge key\n")
    assert not [word for word in gained if word in out], (out, said)
    facts = bare.on(
        "n2", f"stat -c '%a %U' {home}/.gitlab-runner/config.toml; systemctl is-enabled gitlab-runner || true"
    )
    assert facts.split("\n")[0] == "600 gitlab-runner"
    assert "disabled" in facts
    # From another address the key is worth nothing.
    key = bare.on("n2", f"base64 -w0 {home}/.ssh/id_ed25519")
    tried = bare.on(
        "n1",
        f"umask 077; base64 -d <<<{key} >/root/stolen; ssh -o BatchMode=yes -o StrictHostKeyChecking=no -i /root/stolen "
        "surefoot-ci@head true 2>&1; echo $?; rm /root/stolen",
    )
    assert "Permission denied" in tried, tried


def wait_for_file(site: BareSite, path: str) -> str:
    deadline = time.monotonic() + 90
    while not (text := site.on("n2", f"cat {path} 2>/dev/null", check=False)):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.5)
    return text
