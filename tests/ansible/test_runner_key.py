"""The runner's key in a check run: another mode is told, the right one is not, and none yet is no failure.

The role's own first tasks of ``key.yml``, by a real Ansible on this machine, with a key in a folder of the test.
"""

from __future__ import annotations

import getpass
import grp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from surefoot.lab.provisioning import SITE
from surefoot.provision.commands import environment
from surefoot.provision.events import Playbook, playbook_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(sys.executable).with_name("ansible-playbook").exists(), reason="needs surefoot[ansible]"
    ),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen"),
]
LAST = "The key is the runner's alone"


def checked(home: Path) -> Playbook:
    """A check run of the tasks up to `LAST`."""
    tasks = yaml.safe_load((SITE / "roles/runner/tasks/key.yml").read_text())
    names = [task["name"] for task in tasks]
    user = getpass.getuser()
    assert grp.getgrgid(os.getgid()).gr_name == user, "the role gives the key to a group of the user's name"
    variables = {"runner_home": str(home), "runner_user": user, "runner_key_name": "runner of a test"}
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    play = {"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks[: names.index(LAST) + 1]}
    (home / "play.yml").write_text(json.dumps([play]))
    (home / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"here": here}}}))
    tool = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [tool, "-i", str(home / "hosts.yml"), str(home / "play.yml"), "--check", "--diff"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, env=environment(str(SITE), os.environ), cwd=home
    )
    assert done.stdout, done.stderr
    return playbook_of(done.stdout.splitlines(), file="ansible-playbook")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


def made(home: Path, mode: int) -> Path:
    key = home / ".ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=30)
    key.chmod(mode)
    return key


@pytest.mark.parametrize("mode", [0o400, 0o640, 0o644])
def test_a_key_of_another_mode_is_a_drift_and_stays_as_it_is(home: Path, mode: int) -> None:
    """Also one that others may read, which ssh-keygen refuses to."""
    key = made(home, mode)
    run = checked(home)
    (drift,) = run.of("changed", "failed")
    assert (drift.result.status, drift.result.task, drift.result.path) == ("changed", LAST, str(key))
    assert "0600" in drift.result.diff[0].after
    assert key.stat().st_mode & 0o777 == mode


def test_a_key_as_it_should_be_is_none(home: Path) -> None:
    made(home, 0o600)
    assert checked(home).of("changed", "failed") == []


def test_a_host_that_has_no_key_yet_would_get_one_and_does_not_fail(home: Path) -> None:
    run = checked(home)
    assert run.of("failed") == []
    assert not (home / ".ssh/id_ed25519").exists()
    assert LAST not in [told.result.task for told in run.of("ok", "changed")]
