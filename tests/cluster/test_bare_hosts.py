"""The whole site, on hosts that have nothing: systemd, sshd, Python, and an apt repository on their own disk.

A lab's usual base root has Slurm's packages already, and so hides what a role forgot to name. These hosts
reach no mirror: what no role installs is missed. The repository holds more than is needed, so that it is
the roles that decide what is installed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bare_site import BareSite, bare_site
from held import Held
from surefoot.lab.base_root import PACKAGES
from surefoot.lab.configuration import GPU_TYPE
from surefoot.lab.spec import CLIMBER

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.sites, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def bare(held: Held) -> Iterator[BareSite]:
    with bare_site(held, "b") as site:
        yield site


def test_a_package_that_a_role_does_not_name_is_missed_though_the_labs_usual_root_has_it(bare: BareSite) -> None:
    assert "munge" in PACKAGES
    told = bare.play("--extra-vars", json.dumps({"munge_packages": []}))
    assert told.code != 0
    assert {row.partition(":")[0] for row in told.problems} >= {"head", "n1", "n2"}, told.problems or told.text[-3000:]
    assert all(": munge: " in row for row in told.problems), told.problems


def test_the_site_makes_a_cluster_of_bare_hosts_and_a_second_run_changes_nothing(bare: BareSite) -> None:
    started = time.monotonic()
    told = bare.play().well()
    took = time.monotonic() - started
    assert set(told.stats) >= {"head", "n1", "n2"}
    sys.stderr.write(f"bare hosts to a cluster in {took:.0f} s\n")
    shown = wait_for(bare, "sinfo -h -N -p long -o '%N %T %G'", lambda text: text.count(" idle ") == 2)
    assert shown.split("\n")[:2] == [f"n{number} idle gpu:{GPU_TYPE}:8" for number in (1, 2)]
    ran = bare.on("head", f"runuser -u {CLIMBER} -- srun --chdir=/ -N2 -p long --gres=gpu:2 hostname")
    assert sorted(ran.split()) == ["n1", "n2"]
    again = bare.play().well(changed=0)
    for name, value in bare.secret.items():
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
