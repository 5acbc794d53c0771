"""``surefoot inventory`` and ``surefoot drift`` on this machine as the one host, by a real Ansible: what a user sees."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from surefoot.cli import run

HERE = platform.node().split(".", maxsplit=1)[0]
REAL = Path(sys.executable).parent
HOSTILE = 'it\'s a "site"\nhöst-日本 5$'

needs_ansible = pytest.mark.skipif(not (REAL / "ansible-playbook").exists(), reason="needs surefoot[ansible]")


@dataclass
class Site:
    """A site of one file on this machine, and commands on it."""

    folder: Path
    cluster: Path
    capture: pytest.CaptureFixture[str]

    @property
    def file(self) -> Path:
        """What the site's one task makes."""
        return self.folder / "toy.conf"

    def declare(self, **ansible: Any) -> None:
        """The cluster file, with these keys of ``ansible``."""
        keys = {"site": str(self.folder / "site"), "inventory": [str(self.folder / "hosts.yml")], **ansible}
        group = {"name": "all", "count": 1, "hosts": HERE}
        declared = {"name": "here", "root": ".surefoot", "node_groups": [group], "ansible": keys}
        self.cluster.write_text(json.dumps(declared))

    def tools(self, **scripts: str) -> None:
        """Ansible's commands are these shell scripts; those not named are the real ones."""
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        for name in ("python", "ansible-playbook", "ansible-inventory"):
            script = scripts.get(name.removeprefix("ansible-"), f'exec {REAL / name} "$@"')
            (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (bin_folder / name).chmod(0o755)
        self.declare(python=str(bin_folder / "python"))

    def __call__(self, command: str, *options: str) -> tuple[int, str, str]:
        self.capture.readouterr()
        code = run([command, "--cluster", str(self.cluster), *options])
        return (code, *self.capture.readouterr())


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Site:
    """A site in a folder of the name that the test is given, else of a plain one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUREFOOT_ROOT", raising=False)
    folder = tmp_path / getattr(request, "param", "plain")
    (folder / "site").mkdir(parents=True)
    (folder / "site/ansible.cfg").write_text("[defaults]\ninventory_any_unparsed_is_failed = True\n")
    found = Site(folder, tmp_path / "c.yaml", capsys)
    copy = {"dest": str(found.file), "content": "as declared\n", "mode": "0644"}
    task = {"name": "The file is as declared", "ansible.builtin.copy": copy}
    play = {"name": "All", "hosts": "all", "gather_facts": False, "tasks": [task]}
    (folder / "site/site.yml").write_text(json.dumps([play]))
    here = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"vars": here, "children": {"slurm_node": {"hosts": {HERE: {}}}}}})
    )
    found.declare()
    return found


@needs_ansible
@pytest.mark.slow
@pytest.mark.parametrize("site", [HOSTILE], indirect=True)
def test_an_inventory_that_agrees_exits_0_shows_nothing_but_what_is_asked_for_and_leaves_nothing(
    site: Site, tmp_path: Path
) -> None:
    """In a folder with blanks, quotes, a line break and letters of other scripts in its name."""
    code, out, err = site("inventory")
    assert (code, err) == (0, ""), out
    assert out.strip().startswith("✓ PASSED: 1 host")
    assert HERE not in out, "no row where nothing differs"
    code, out, _ = site("inventory", "--all", "--json")
    told = json.loads(out)
    assert (code, told["exit_code"], told["rung"], told["status"]) == (0, 0, "inventory", "PASSED")
    assert {row["host"] for row in told["rows"]} >= {HERE}
    assert all(check["evidence"] for check in told["checks"])
    assert {path.name for path in tmp_path.iterdir()} == {HOSTILE, "c.yaml"}


@needs_ansible
@pytest.mark.slow
def test_what_differs_is_a_row_and_exits_1(site: Site) -> None:
    hosts = json.loads((site.folder / "hosts.yml").read_text())
    hosts["all"]["children"]["slurm_node"]["hosts"]["n9"] = {"ansible_connection": "local"}
    (site.folder / "hosts.yml").write_text(json.dumps(hosts))
    code, out, _ = site("inventory")
    assert code == 1
    (row,) = [line.split() for line in out.splitlines() if line.split()[:2] == ["n9", "hosts"]]
    assert row == ["n9", "hosts", "yes", "missing", "-"]
    assert f"n9: the host that answers calls itself {HERE}" in " ".join(out.split())
    assert out.rstrip().endswith("Exit 1: disproved: a check failed.")


@needs_ansible
@pytest.mark.slow
@pytest.mark.parametrize("site", [HOSTILE], indirect=True)
def test_a_drift_is_told_with_host_file_task_and_difference_and_is_not_undone(site: Site) -> None:
    site.file.write_text("as declared\nby hand\n")
    site.file.chmod(0o644)
    code, out, _ = site("drift", "--json")
    told = json.loads(out)
    assert (code, told["status"]) == (1, "FAILED"), told["checks"]
    assert [(row["host"], row["task"]) for row in told["rows"]] == [(HERE, "The file is as declared")]
    (drifted,) = [check for check in told["checks"] if check["id"].startswith(f"drift.{HERE}.")]
    assert "-by hand" in drifted["actual"]
    assert site.file.read_text() == "as declared\nby hand\n"


@needs_ansible
@pytest.mark.slow
def test_a_site_without_drift_exits_0_in_one_line(site: Site) -> None:
    site.file.write_text("as declared\n")
    site.file.chmod(0o644)
    code, out, err = site("drift")
    assert (code, err) == (0, ""), out
    assert out.strip().startswith("✓ PASSED: no drift on 1 host")
    assert len(out.strip().splitlines()) == 1


@needs_ansible
@pytest.mark.slow
@pytest.mark.parametrize(
    ("playbook", "word"),
    [
        (f'{REAL}/ansible-playbook "$@" | head -c 700', "not valid JSON|cut off|totals"),
        ("echo 'ERROR! the vault password is wrong' >&2; exit 1", "the vault password is wrong"),
        ("kill -9 $$", "died of signal 9"),
        ("exit 0", "nothing|no line|empty|missing|no run|not"),
    ],
    ids=["cut off", "exits with an error", "killed", "says nothing"],
)
def test_an_ansible_that_did_not_tell_all_is_no_pass_and_its_words_are_told(
    site: Site, playbook: str, word: str
) -> None:
    site.tools(playbook=playbook)
    code, out, _ = site("inventory", "--json")
    told = json.loads(out)
    assert (code, told["status"]) == (2, "INCONCLUSIVE")
    (unread,) = [check for check in told["checks"] if check["status"] == "INCONCLUSIVE"]
    assert re.search(word, unread["actual"]), unread["actual"]
    assert told["rows"] == []


@needs_ansible
@pytest.mark.slow
def test_an_inventory_that_ansible_refuses_is_told_in_its_words(site: Site) -> None:
    (site.folder / "hosts.yml").write_text("all: {hosts: [no, mapping]}\n")
    code, out, _ = site("drift")
    assert code == 2
    assert "hosts.yml" in out
    assert "Exit 2" in out


# --- refused before anything is started -----------------------------------------------------------


@pytest.mark.parametrize("command", ["inventory", "drift"])
def test_a_cluster_that_declares_no_ansible_is_refused_with_what_to_write(site: Site, command: str) -> None:
    site.cluster.write_text("name: bare\nroot: .surefoot\nnode_groups: [{name: all, count: 1}]\n")
    code, out, err = site(command)
    assert (code, out) == (3, "")
    assert "surefoot: cluster 'bare' declares no ansible\n" in err
    assert "declare the site under `ansible:` in the cluster file" in err
    assert "optional" not in err, "there is no ladder to write it into"


@pytest.mark.parametrize("command", ["inventory", "drift"])
def test_without_ansible_on_this_machine_it_says_what_to_install(
    site: Site, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(site.folder))
    site.declare(python=str(site.folder / "venv/bin/python"))
    code, out, err = site(command, "--json")
    assert code == 3
    said = json.loads(out)
    assert said["exit_code"] == 3
    assert f"{command}: no ansible-playbook" in said["error"]["message"]
    assert "pip install 'surefoot[ansible]'" in said["error"]["next_action"]
    assert said["error"]["message"] in err


def test_an_interpreter_that_is_not_there_is_the_machinery(site: Site) -> None:
    site.tools()
    (site.folder / "bin/python").unlink()
    code, out, err = site("inventory")
    assert (code, out) == (4, "")
    assert f"cannot start '{site.folder}/bin/python'" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--cluster"),
        (["--cluster", "c.yaml", "--limit-s", "4"], "4"),
        (["--cluster", "c.yaml", "--limit-s", "soon"], "soon"),
        (["--cluster", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["--cluster", "."], "."),
        (["--cluster", "c.yaml", "more"], "more"),
    ],
)
def test_a_wrong_request_exits_3(site: Site, arguments: list[str], word: str) -> None:
    for command in ("inventory", "drift"):
        site.capture.readouterr()
        assert run([command, *arguments]) == 3
        out, err = site.capture.readouterr()
        assert out == ""
        assert word in err


def test_an_inventory_that_went_away_since_the_file_was_read_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    import surefoot.cli.provision as command

    load: Callable[[str], Any] = command.load_cluster

    def loaded(reference: str) -> Any:
        found = load(reference)
        (site.folder / "hosts.yml").unlink()
        return found

    monkeypatch.setattr(command, "load_cluster", loaded)
    code, _, err = site("inventory")
    assert code == 3
    assert f"{site.folder}/hosts.yml" in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_at_once_with_130_and_leaves_no_process_and_no_file(
    site: Site, tmp_path: Path, number: signal.Signals
) -> None:
    pid = site.folder / "pid"
    site.tools(playbook=f"echo $PPID $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 300")
    temporary = tmp_path / "t"
    temporary.mkdir()
    started = subprocess.Popen(
        [sys.executable, "-m", "surefoot", "drift", "--cluster", str(site.cluster)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 60
        while not pid.exists() and started.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        assert pid.exists(), started.communicate(timeout=5)
        started.send_signal(number)
        out, err = started.communicate(timeout=20)
    finally:
        started.kill()  # nothing, unless it is broken
        started.wait()
        survived = _ended_anyway(pid)
    assert (started.returncode, out) == (130, ""), err
    assert "interrupted" in err
    assert not survived, "what it had started still ran"
    assert list(temporary.iterdir()) == []


def _ended_anyway(pids: Path) -> bool:
    """Whether one of the processes that are to be gone had to be ended by this test: a parent first, then its child."""
    started = pids.read_text().split() if pids.exists() else []
    for _ in range(60):
        left = [int(pid) for pid in started if Path(f"/proc/{pid}").exists()]
        if not left:
            return False
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return True
