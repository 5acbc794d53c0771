"""roles/python_runtime: the interpreter is compared in words, and environments are built as a climb builds them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loaded import loaded
from surefoot.config.load import load_cluster
from surefoot.node.chooser import node_key
from surefoot.paths import RootPaths
from wheels import wheel

ANSIBLE = Path(__file__).parents[2] / "ansible"
ROLE = ANSIBLE / "roles/python_runtime"
BASE = "/usr/bin/python3"


COMPARE = loaded("plugins/filter/python_compare.py")


def look(python: str) -> dict[str, Any]:
    """What the look script prints, run as the role runs it."""
    script = str(ROLE / "files/look.py")
    done = subprocess.run([sys.executable, script, python], capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def compare(facts: dict[str, Any], version: str = "", minimum: str = "3.11") -> tuple[list[str], list[str]]:
    said = COMPARE.python_compare(facts, {"python": "/opt/py", "version": version, "minimum": minimum})
    return said["problems"], said["found"]


def test_an_interpreter_that_will_do_has_no_problem() -> None:
    problems, found = compare(look(sys.executable), version=f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert problems == []
    assert len(found) == 3


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "version: {python}: No such file or directory"),
        ("#!/bin/sh\necho 3.9.2\n", "found 3.9.2"),
        ("#!/bin/sh\necho cannot execute binary file: Exec format error >&2; exit 126\n", "Exec format error"),
        ("#!/bin/sh\ncase \"$*\" in *platform*) echo 3.12.3;; *venv*) echo venv;; *) echo 'No module named pip' >&2; exit 1;; esac\n", "pip: No module named pip"),
        ("#!/bin/sh\ncase \"$*\" in *platform*) echo 3.12.3;; *) echo 'No module named venv' >&2; exit 1;; esac\n", "venv: No module named venv"),
    ],
)  # fmt: skip
def test_an_interpreter_that_will_not_do_is_named_with_what_it_says(
    tmp_path: Path, script: str | None, words: str
) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    problems, _ = compare(look(str(python)))
    assert any(words.format(python=python) in problem for problem in problems), problems
    assert all("→" in problem for problem in problems)


def test_another_version_than_declared_is_named_and_no_half_of_a_number_counts() -> None:
    facts = look(sys.executable)
    facts["version"]["value"] = "3.12.3"
    assert compare(facts, version="3.12")[0] == []
    assert "python_runtime_version declares 3.1\n" in compare(facts, version="3.1")[0][0]
    facts["version"]["value"] = "3.9.18"
    assert "jobs need 3.11 or newer" in compare(facts)[0][0]


@pytest.mark.parametrize("fact", ["version", "venv", "pip"])
def test_what_was_not_looked_at_is_not_passed(fact: str) -> None:
    facts = look(sys.executable)
    del facts[fact]
    assert compare(facts)[0]


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    """A cluster file with a lock of two small wheels, and what a playbook is told of it."""
    wheels, root = tmp_path / "wheels", tmp_path / "shared"
    wheel(wheels, "small-one", "1.0")
    wheel(wheels, "small-two", "2.0", needs=("small-one",))
    (tmp_path / "train.lock").write_text("small-one==1.0\nsmall-two==2.0\n")
    root.mkdir()
    cluster = {
        "name": "here",
        "root": str(root),
        "python": BASE,
        "environment": {"lock": "train.lock", "wheels": str(wheels)},
        "node_groups": [{"name": "all", "count": 1}],
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return {
        "python_runtime_packages": [],
        "python_runtime_root": str(root),
        "python_runtime_owner": "root",
        "python_runtime_minimum": "3.9",
        "python_runtime_cluster": str(tmp_path / "cluster.yaml"),
        "python_runtime_surefoot": sys.executable,
    }


def play(folder: Path, told: dict[str, Any], *options: str, hosts: str = "a,b") -> tuple[int, str]:
    """(exit code, output) of the role on hosts that are all this machine."""
    playbook = folder / "play.yml"
    playbook.write_text("- {name: Python, hosts: all, gather_facts: true, roles: [python_runtime]}\n")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{hosts},", "-c", "local", *options]
    command += ["-e", json.dumps({"ansible_python_interpreter": sys.executable, **told}), str(playbook)]
    env = {**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200, check=False)
    return done.returncode, done.stdout + done.stderr


def changes(output: str) -> dict[str, int]:
    return {host: int(count) for host, count in re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", output, re.MULTILINE)}


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_an_environment_is_built_once_for_two_hosts_of_one_kind_and_is_the_one_that_a_climb_asks_for(
    tmp_path: Path, site: dict[str, Any]
) -> None:
    cluster = load_cluster(site["python_runtime_cluster"]).record
    place = RootPaths(Path(cluster.root)).environment(cluster.environment_digest)
    kind, problem = node_key(BASE)
    assert not problem

    code, output = play(tmp_path, site, "--check", "--diff")
    assert code == 0, output
    assert changes(output) == {"a": 2, "b": 2}  # the folder, and the environment
    assert list(Path(cluster.root).iterdir()) == []

    code, output = play(tmp_path, site)
    assert code == 0, output
    assert sum(changes(output).values()) == 2, output  # one made the folder, one the environment
    ready = json.loads((place.of(kind) / "ready.json").read_text())
    assert (ready["digest"], ready["key"]) == (cluster.environment_digest, kind)
    said = subprocess.run(
        [str(place.python), "-c", "import small_two; print(small_two.VERSION)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "2.0\n"
    assert [path.name for path in place.folder.iterdir() if path.name.startswith(".building")] == []

    code, output = play(tmp_path, site)
    assert (code, changes(output)) == (0, {"a": 0, "b": 0}), output


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_a_lock_that_cannot_be_built_fails_with_the_line_of_pip_and_leaves_no_environment(
    tmp_path: Path, site: dict[str, Any]
) -> None:
    (tmp_path / "train.lock").write_text("small-one==1.0\nsmall-three==3.0\n")
    code, output = play(tmp_path, site, hosts="a")
    assert code != 0
    assert "No matching distribution found for small-three==3.0" in output
    assert list((tmp_path / "shared/envs").glob("*/*/ready.json")) == []


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_a_cluster_file_about_another_root_is_refused(tmp_path: Path, site: dict[str, Any]) -> None:
    code, output = play(tmp_path, {**site, "python_runtime_root": "/elsewhere"}, "--check", hosts="a")
    assert code != 0
    assert "the inventory says /usr/bin/python3" in " ".join(output.split())


@pytest.mark.slow
def test_without_an_owner_the_place_of_environments_is_left_to_the_first_climb(
    tmp_path: Path, site: dict[str, Any]
) -> None:
    code, output = play(tmp_path, {**site, "python_runtime_owner": "", "python_runtime_cluster": ""}, hosts="a")
    assert (code, changes(output)) == (0, {"a": 0}), output
    assert list((tmp_path / "shared").iterdir()) == []
    code, output = play(tmp_path, {**site, "python_runtime_owner": ""}, "--check", hosts="a")
    assert code != 0
    assert "python_runtime_cluster is set and python_runtime_owner is not" in output


def test_a_cluster_file_without_an_environment_is_told_so() -> None:
    done = subprocess.run(
        [sys.executable, str(ROLE / "files/order.py"), "two-sparks"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "two-sparks has no environment" in done.stderr
