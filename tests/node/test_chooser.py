"""The script that starts a node's environment: run by real shells, with programs in place of interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.node.chooser import WRONG_NODE, node_key, script

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
ECHO = '#!/bin/sh\nfor word in "$@"; do printf \'%s\\0\' "$word"; done\nprintf "%s" "$0" >&2\n'
"""An "interpreter" that shows its arguments, and its own name."""
KEY, _ = node_key(sys.executable)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def a_home(folder: Path, *keys: str, base: str = sys.executable) -> Path:
    """A folder of environments of these kinds, with its script."""
    folder.mkdir(parents=True, exist_ok=True)
    program(folder / "python", script(base, folder))
    for key in keys:
        program(folder / key / "bin" / "python", ECHO)
        (folder / key / "ready.json").write_text("{}")
    return folder


def start(home: Path, *words: str, shell: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(home / "python"), *words]
    if shell:
        command = [shell, *(["sh"] if shell == "busybox" else []), *command]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


def pretend(folder: Path, machine: str) -> dict[str, str]:
    """A PATH on which `uname -m` says something else; as everywhere for the rest."""
    program(folder / "uname", f'#!/bin/sh\n[ "$1" = -m ] && echo "{machine}" || exec /usr/bin/uname "$@"\n')
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_kind_of_node_is_architecture_system_and_python() -> None:
    machine, system, python = KEY.split("-")
    assert machine == os.uname().machine
    assert python == f"py3.{sys.version_info[1]}"
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    assert system == (release["ID"] + release.get("VERSION_ID", "")).replace('"', "")


@pytest.mark.parametrize("shell", SHELLS)
def test_it_starts_this_nodes_environment_with_all_arguments(tmp_path: Path, shell: str) -> None:
    home = a_home(tmp_path / "a b'c\"$(d)`e`\\", KEY, "other-kind1-py3.1")
    words = ["-m", "x", "", " ", "a  b", "'", '"', "$HOME", "`id`", "\\", "*", "é", "\n", "-"]
    answer = start(home, *words, shell=shell)
    assert answer.returncode == 0
    assert answer.stdout.split("\0")[:-1] == words
    assert answer.stderr == str(home / KEY / "bin" / "python")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=4),
    st.text("ab '\"$`\\;&|<>()*?[]~#\n\té%@", min_size=1, max_size=12),
)
def test_any_path_and_any_arguments_arrive_as_they_are(tmp_path: Path, words: list[str], name: str) -> None:
    home = a_home(tmp_path / f"x{name}", KEY)
    answer = subprocess.run([home / "python", *words], capture_output=True, check=False)
    assert answer.stdout.decode().split("\0")[:-1] == words
    assert answer.stderr.decode() == str(home / KEY / "bin" / "python")


def test_a_path_that_holds_the_scripts_own_marks_is_a_path(tmp_path: Path) -> None:
    home = a_home(tmp_path / "@KEY@ @BASE@ @CODE@ @HOME@", KEY)
    assert start(home, "x").stdout == "x\0"


def test_the_ending_of_the_program_is_the_scripts_own(tmp_path: Path) -> None:
    home = a_home(tmp_path, KEY)
    program(home / KEY / "bin" / "python", '#!/bin/sh\n[ "$1" = die ] && kill -9 $$\nexit 7\n')
    assert start(home).returncode == 7
    assert start(home, "die").returncode == -9


def test_the_jobs_variables_reach_the_program_unchanged(tmp_path: Path) -> None:
    home = a_home(tmp_path, KEY)
    program(home / KEY / "bin" / "python", "#!/bin/sh\nexec env\n")
    names = ["key", "machine", "system", "version", "minor", "code", "ID", "VERSION_ID", "base", "home"]
    asked = {**{name: f"mine {name}" for name in names}, "LC_ALL": "C.UTF-8"}
    said = subprocess.run(
        [home / "python"], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [f"{name}={value}" for name, value in asked.items() if f"{name}={value}" not in said] == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_of_another_architecture_gets_its_own(tmp_path: Path, shell: str) -> None:
    other = KEY.replace(os.uname().machine, "aarch64x")
    home = a_home(tmp_path / "envs", KEY, other)
    env = pretend(tmp_path / "bin", "aarch64x")
    assert start(home, shell=shell, **env).stderr == str(home / other / "bin" / "python")
    assert start(home, shell=shell).stderr == str(home / KEY / "bin" / "python")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_node_without_an_environment_is_named_and_so_are_those_that_are_there(tmp_path: Path, shell: str) -> None:
    home = a_home(tmp_path / "envs", KEY, "ppc64le-rhel9.4-py3.12")
    (home / ".building-x").mkdir()
    (home / "half").mkdir()  # without ready.json it is not there
    answer = start(home, "x", shell=shell, **pretend(tmp_path / "bin", "riscv64"))
    assert answer.returncode == WRONG_NODE == 78
    assert answer.stdout == ""
    kind = KEY.replace(os.uname().machine, "riscv64")
    first, second = answer.stderr.splitlines()
    there = " ".join(sorted([KEY, "ppc64le-rhel9.4-py3.12"]))
    assert first == (
        f"surefoot: host {os.uname().nodename} is {kind}, and has no environment in {home}; there are: {there}"
    )
    assert second.startswith("  → run the rung sync again")


def test_where_no_environment_is_there_at_all_it_says_none(tmp_path: Path) -> None:
    answer = start(a_home(tmp_path))
    assert answer.returncode == WRONG_NODE
    assert answer.stderr.splitlines()[0].endswith("there are: none")


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("/nowhere/python3", "/nowhere/python3 is not here (exit code 127)"),
        ("python3-of-nowhere", "python3-of-nowhere is not here (exit code 127)"),
        ("/etc/os-release", "/etc/os-release cannot be run here (exit code 126"),
        ("{foreign}", "cannot be run here (exit code 126: for another machine, or no permission)"),
        ("/bin/true", "/bin/true -V ends with 0 and says:"),
        ("{old}", "-V ends with 0 and says: Python 2.7.18"),
    ],
)
def test_an_interpreter_that_does_not_start_is_named_with_its_host(tmp_path: Path, base: str, words: str) -> None:
    (tmp_path / "foreign").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xb7\0" + bytes(44))  # for aarch64
    (tmp_path / "foreign").chmod(0o755)
    program(tmp_path / "old", "#!/bin/sh\necho Python 2.7.18\n")
    base = base.format(foreign=tmp_path / "foreign", old=tmp_path / "old")
    answer = start(a_home(tmp_path / "envs", KEY, base=base))
    assert answer.returncode == WRONG_NODE
    assert answer.stderr.startswith(f"surefoot: host {os.uname().nodename}: ")
    assert words in answer.stderr
    assert "python: in the cluster file" in answer.stderr
    assert node_key(base)[0] == ""
    assert words in node_key(base)[1]


def test_an_environment_whose_interpreter_this_host_lacks_is_named(tmp_path: Path) -> None:
    home = a_home(tmp_path, KEY)
    (home / KEY / "bin" / "python").unlink()
    (home / KEY / "bin" / "python").symlink_to("/opt/elsewhere/python3")
    answer = start(home)
    assert answer.returncode == WRONG_NODE
    assert f"{home / KEY}/bin/python leads to no interpreter on this host" in answer.stderr


def test_a_kind_that_no_folder_could_be_called_is_refused(tmp_path: Path) -> None:
    answer = start(a_home(tmp_path / "envs", KEY), **pretend(tmp_path / "bin", "../../x y"))
    assert answer.returncode == WRONG_NODE
    assert "has no name that a folder could have: ../../x y-" in answer.stderr
