"""Prometheus, its exporter and its tools on this machine, out of Debian's packages; nothing is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from apt_repository import repository
from surefoot.lab.base_root import ensure_base
from surefoot.lab.places import LabHome
from surefoot.lab.spec import DEFAULT_SUITE

PACKAGES = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
ANSIBLE = Path(__file__).parents[1] / "ansible"
ROLE = ANSIBLE / "roles/monitoring"


def unpacked(home: LabHome, folder: Path) -> Path:
    """The folder with the programs of the packages, unpacked below `folder`."""
    base = ensure_base(home, DEFAULT_SUITE, "", lambda _: None, bare=True)
    place = repository(home, base, PACKAGES)
    for package in place.glob("prometheus*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, timeout=60)
    return folder / "usr/bin"


def rendered(
    folder: Path, programs: Path, names: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], **variables: Any
) -> subprocess.CompletedProcess[str]:
    """Templates of the role, written into `folder` by Ansible with the role's own tasks' settings; how it ended."""
    children = {"monitoring_server": {"hosts": {"head": None}}, "slurm_controller": {"hosts": {"head": None}}}
    children["monitoring_exporter"] = {"hosts": {name: dict(facts) for name, facts in hosts.items()}}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    python = {"ansible_python_interpreter": sys.executable}
    inventory = {
        "all": {"vars": {**defaults, "ansible_connection": "local", **variables, **python}, "children": children}
    }
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
    tasks = [task for task in yaml.safe_load((ROLE / "tasks/server.yml").read_text()) if _template(task) in names]
    assert len(tasks) == len(names)
    for task in tasks:
        task.pop("notify", None)
        options = task["ansible.builtin.template"]
        options |= {"src": str(ROLE / "templates" / options["src"]), "dest": str(folder / Path(options["dest"]).name)}
        options |= {"owner": "root", "group": "root"}
    play = {"hosts": "head", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(folder / "inventory.yml")]
    return subprocess.run(
        [*command, str(folder / "play.yml")],
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ANSIBLE_LOCAL_TEMP": str(folder / "t"),
            "ANSIBLE_REMOTE_TEMP": str(folder / "t"),
            "ANSIBLE_FILTER_PLUGINS": str(ANSIBLE / "plugins/filter"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _template(task: Mapping[str, Any]) -> str:
    return str(task.get("ansible.builtin.template", {}).get("dest", "")).rpartition("/")[2]


def ask(port: int, expression: str) -> list[dict[str, Any]]:
    """What Prometheus answers to an expression. Raises HTTPError where it does not understand it."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=10) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def without_an_answer(port: int, expressions: Sequence[str], timeout_s: float) -> list[str]:
    """Expressions that a live Prometheus has nothing for, after it was given so long."""
    deadline = time.monotonic() + timeout_s
    left = list(expressions)
    while left and time.monotonic() < deadline:
        try:
            left = [expression for expression in left if not ask(port, expression)]
        except OSError as error:  # not up yet, or an expression that it refuses: told in the end
            if time.monotonic() > deadline - 1:
                raise AssertionError(str(error)) from error
        time.sleep(0.3)
    return left
