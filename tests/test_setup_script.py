"""scripts/setup.sh, with an interpreter that only pretends to install: what it decides, and in which order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import ready_for_lab
import slurm_here
import sshd
from surefoot.lab import machine

PROJECT = Path(__file__).resolve().parents[1]

INTERPRETER = """\
#!/usr/bin/env bash
venv=$(dirname "$(dirname "$0")")
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip "*)
    echo "$*" >>"$FAKE/pip.log"
    if [ -e "$FAKE/pip-dies" ]; then echo "No space left on device"; exit 1; fi
    case "$*" in *torch==*) case "$*" in *"${FAKE_NO_WHEEL:-nothing}"*) exit 1 ;; *) touch "$venv/has-torch" ;; esac ;; esac
    case "$*" in *"-e ."*) printf '#!/bin/sh\\n' >"$venv/bin/surefoot" && chmod +x "$venv/bin/surefoot" ;; esac ;;
"-c import torch"*) echo "torch" ;;
*"version('torch')"*) [ -e "$venv/has-torch" ] ;;
*'version("torch")'*) echo "torch 2" ;;
"- http"*) [ -e "$FAKE/index-answers" ] ;;
*) exec REAL "$@" ;;
esac
"""


@dataclass
class Sandbox:
    """A project with nothing in it but what the script reads."""

    root: Path
    fake: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.root / "scripts" / "setup.sh"), *arguments],
            env={**self.env, **env}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def pip_calls(self) -> list[str]:
        log = self.fake / "pip.log"
        return log.read_text().splitlines() if log.exists() else []

    def stamp(self) -> dict[str, str]:
        rows = (self.root / ".venv" / "surefoot-setup").read_text().splitlines()
        return dict(row.split("=", 1) for row in rows)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    root, fake = tmp_path / "project", tmp_path / "fake"
    (root / "scripts").mkdir(parents=True)
    fake.mkdir()
    shutil.copy(PROJECT / "scripts" / "setup.sh", root / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, root)
    python = fake / "python3"
    python.write_text(INTERPRETER.replace("REAL", sys.executable))
    python.chmod(0o755)
    for name in ("apt-get", "nvidia-smi", "chromium"):
        (fake / name).write_text("#!/bin/sh\nexit 1\n")
        (fake / name).chmod(0o755)
    env = {
        "PATH": f"{fake}:{os.environ['PATH']}", "FAKE": str(fake), "SUREFOOT_PYTHON": str(python),
        "HOME": str(tmp_path), "SUREFOOT_TORCH_CPU_INDEX": "http://torch.invalid/cpu",
    }  # fmt: skip
    return Sandbox(root=root, fake=fake, env=env)


needs_no_gpu = pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has a GPU")


@needs_no_gpu
def test_without_a_gpu_the_cpu_build_comes_from_its_own_index_where_that_answers(sandbox: Sandbox) -> None:
    (sandbox.fake / "index-answers").touch()
    done = sandbox.run("climb")
    assert done.returncode == 0, done.stderr
    torch, rest = sandbox.pip_calls()
    assert "--no-deps --index-url http://torch.invalid/cpu torch==" in torch
    assert rest.endswith("-c constraints.txt -e .[train,report,ansible]")
    assert "set-up: 4/4" in done.stdout


@needs_no_gpu
@pytest.mark.parametrize("answers", [True, False])
def test_without_that_index_or_its_wheel_pips_own_index_is_taken(sandbox: Sandbox, answers: bool) -> None:
    if answers:
        (sandbox.fake / "index-answers").touch()
    done = sandbox.run("climb", FAKE_NO_WHEEL="--index-url" if answers else "nothing")
    assert done.returncode == 0, done.stderr
    *_, torch, _rest = sandbox.pip_calls()
    assert "-c constraints.txt torch==" in torch
    assert "--index-url" not in torch
    assert ("has no wheel" if answers else "does not answer") in done.stdout


def test_with_a_gpu_the_default_build_is_taken(sandbox: Sandbox) -> None:
    (sandbox.fake / "index-answers").touch()
    (sandbox.fake / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n")
    done = sandbox.run("climb")
    assert done.returncode == 0, done.stderr
    assert not any("--index-url" in call for call in sandbox.pip_calls())
    assert "CUDA build" in done.stdout


def test_the_second_time_nothing_is_done_and_it_is_quick(sandbox: Sandbox) -> None:
    assert sandbox.run("climb").returncode == 0
    calls = sandbox.pip_calls()
    start = time.monotonic()
    again = sandbox.run("climb")
    assert time.monotonic() - start < 1
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert sandbox.pip_calls() == calls


def test_a_changed_pin_is_installed_on_top(sandbox: Sandbox) -> None:
    assert sandbox.run("climb").returncode == 0
    kept = sandbox.root / ".venv" / "kept"
    kept.touch()
    with (sandbox.root / "constraints.txt").open("a") as stream:
        stream.write("# renewed\n")
    assert "there already" in sandbox.run("climb").stdout
    assert kept.exists()
    assert sandbox.stamp()["state"] == "complete"


def test_what_pip_said_is_shown_when_it_fails_and_the_next_time_starts_over(sandbox: Sandbox) -> None:
    assert sandbox.run("climb").returncode == 0
    leftover = sandbox.root / ".venv" / "half-installed"
    leftover.touch()
    (sandbox.fake / "pip-dies").touch()
    failed = sandbox.run("test")
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr
    assert "pip could not install surefoot" in failed.stderr
    assert "→" in failed.stderr
    assert sandbox.stamp()["state"] == "busy"
    (sandbox.fake / "pip-dies").unlink()
    repaired = sandbox.run("test")
    assert repaired.returncode == 0
    assert "incomplete: making it anew" in repaired.stdout
    assert not leftover.exists()
    assert sandbox.stamp()["state"] == "complete"


def test_an_environment_without_a_working_python_is_made_anew(sandbox: Sandbox) -> None:
    (sandbox.root / ".venv" / "bin").mkdir(parents=True)
    done = sandbox.run("climb")
    assert done.returncode == 0
    assert "incomplete: making it anew" in done.stdout


def test_a_project_that_was_moved_gets_a_new_environment(sandbox: Sandbox) -> None:
    assert sandbox.run("climb").returncode == 0
    sandbox.root = sandbox.root.rename(sandbox.root.with_name("moved"))
    assert "incomplete: making it anew" in sandbox.run("climb").stdout
    assert sandbox.stamp()["root"] == str(sandbox.root)


def test_the_test_profile_adds_the_tools_and_a_climb_does_not_take_them_away(sandbox: Sandbox) -> None:
    assert sandbox.run("test").returncode == 0
    assert sandbox.pip_calls()[-1].endswith("-e .[train,report,ansible,dev]")
    assert sandbox.run("climb").stdout == ""
    with (sandbox.root / "constraints.txt").open("a") as stream:
        stream.write("# renewed\n")
    assert sandbox.run("climb").returncode == 0
    assert sandbox.pip_calls()[-1].endswith("-e .[train,report,ansible,dev]")


def test_without_a_usable_python_it_says_what_to_install(sandbox: Sandbox) -> None:
    (sandbox.fake / "python3").write_text("#!/bin/sh\nexit 1\n")
    done = sandbox.run("climb")
    assert done.returncode == 1
    assert "sudo apt-get install python3 python3-venv" in done.stderr
    assert not (sandbox.root / ".venv").exists()


def test_an_unknown_profile_names_those_there_are(sandbox: Sandbox) -> None:
    done = sandbox.run("tset")
    assert done.returncode == 1
    assert "there are climb, test and lab" in done.stderr


# --- the lab's system packages ----------------------------------------------------------------------

APT = """\
#!/bin/sh
echo "$*" >>"$FAKE/apt.log"
case "$*" in *install*)
    cp "$FAKE/policy-rc.d" "$FAKE/policy-while-installing"
    if [ -e "$FAKE/apt-dies" ]; then echo "Temporary failure resolving 'deb.debian.org'"; exit 100; fi
    if [ -e "$FAKE/apt-hangs" ]; then touch "$FAKE/hanging"; exec sleep 60; fi
    printf '#!/bin/sh\\n' >"$FAKE/never-heard-of" && chmod +x "$FAKE/never-heard-of"
    touch "$FAKE/enabled-munge.service" ;;
esac
"""
SYSTEMCTL = """\
#!/bin/sh
case $1 in is-enabled) [ -e "$FAKE/enabled-$3" ] ;; *) rm "$FAKE/enabled-$3" ;; esac
"""


@pytest.fixture
def lacking(sandbox: Sandbox) -> Sandbox:
    """A machine of root's that lacks one program of two, whose package apt-get brings; sshd is on at boot."""
    script = sandbox.root / "scripts" / "setup.sh"
    text, found = re.subn(r"LAB_NEEDS=\([^)]*\)", "LAB_NEEDS=(never-heard-of:some-package sh:dash)", script.read_text())
    assert found == 1
    script.write_text(text.replace("/usr/sbin/policy-rc.d", f"{sandbox.fake}/policy-rc.d"))
    for name, content in (("apt-get", APT), ("systemctl", SYSTEMCTL), ("id", "#!/bin/sh\necho 0\n")):
        (sandbox.fake / name).write_text(content)
        (sandbox.fake / name).chmod(0o755)
    (sandbox.fake / "enabled-ssh.service").touch()
    return sandbox


def apt_calls(sandbox: Sandbox) -> list[str]:
    log = sandbox.fake / "apt.log"
    return log.read_text().splitlines() if log.exists() else []


def test_everything_that_the_lab_and_the_tests_slurm_sshd_and_sites_run_is_in_the_table_of_needs() -> None:
    table = re.search(r"LAB_NEEDS=\(([^)]*)\)", (PROJECT / "scripts" / "setup.sh").read_text())
    assert table is not None
    needs = dict(need.rsplit(":", 1) for need in table[1].split())
    for program, package in {**machine.PROGRAMS, **dict([machine.NSPAWN])}.items():
        assert needs[program] == package
    assert needs[str(machine.KEYRING[0])] == machine.KEYRING[1]
    assert {*slurm_here.PROGRAMS, *sshd.PROGRAMS, *ready_for_lab.SITES} <= needs.keys()


def test_the_lab_profile_installs_what_is_missing_and_nothing_else(lacking: Sandbox) -> None:
    done = lacking.run("lab")
    assert done.returncode == 0, done.stderr
    installs = [call for call in apt_calls(lacking) if "install" in call.split()]
    assert len(installs) == 1
    assert installs[0].endswith("install -qy --no-install-recommends some-package")
    assert lacking.pip_calls()[-1].endswith("-e .[train,report,ansible,dev]")
    assert "set-up: 6/6" in done.stdout
    assert lacking.stamp()["profile"] == "lab"


def test_the_lab_profile_does_nothing_the_second_time_until_a_program_is_gone(lacking: Sandbox) -> None:
    assert lacking.run("lab").returncode == 0
    calls, start = apt_calls(lacking), time.monotonic()
    for profile in ("lab", "test", "climb"):
        again = lacking.run(profile)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert time.monotonic() - start < 3
    assert apt_calls(lacking) == calls
    (lacking.fake / "never-heard-of").unlink()
    assert lacking.run("test").stdout == ""
    assert lacking.run("lab").returncode == 0
    assert len(apt_calls(lacking)) == 2 * len(calls)


def test_no_service_may_start_while_packages_are_installed_and_none_at_the_next_boot(lacking: Sandbox) -> None:
    assert lacking.run("lab").returncode == 0
    assert "exit 101" in (lacking.fake / "policy-while-installing").read_text()
    assert not (lacking.fake / "policy-rc.d").exists()
    assert not (lacking.fake / "enabled-munge.service").exists()
    assert (lacking.fake / "enabled-ssh.service").exists()  # it was on before


@pytest.mark.parametrize("end", ["good", "apt-dies", "TERM", "KILL and again"])
def test_a_policy_of_the_machines_own_is_put_back_however_it_ends(lacking: Sandbox, end: str) -> None:
    policy = lacking.fake / "policy-rc.d"
    policy.write_text("#!/bin/sh\n# of this machine\nexit 0\n")
    before = policy.read_text()
    if end in ("good", "apt-dies"):
        (lacking.fake / end).touch()
        lacking.run("lab")
    else:
        (lacking.fake / "apt-hangs").touch()
        process = subprocess.Popen(
            ["bash", str(lacking.root / "scripts" / "setup.sh"), "lab"], env=lacking.env, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while not (lacking.fake / "hanging").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM if end == "TERM" else signal.SIGKILL)
        process.wait(20)
        (lacking.fake / "apt-hangs").unlink()
        if end != "TERM":
            assert policy.read_text() != before
            assert lacking.run("lab").returncode == 0
    assert "exit 101" in (lacking.fake / "policy-while-installing").read_text()
    deadline = time.monotonic() + 10
    while policy.read_text() != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(lacking.fake.glob("*kept*"))


def test_without_the_right_to_install_it_names_what_is_missing_and_makes_nothing(lacking: Sandbox) -> None:
    (lacking.fake / "id").write_text('#!/bin/sh\n[ "$1" = -un ] && echo jo || echo 1000\n')
    (lacking.fake / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (lacking.fake / "sudo").chmod(0o755)
    done = lacking.run("lab")
    assert done.returncode == 1
    assert "not installed: some-package; and user jo may not install packages" in done.stderr
    assert "apt-get install --no-install-recommends some-package" in done.stderr
    assert apt_calls(lacking) == []
    assert not (lacking.root / ".venv").exists()


def test_without_a_network_it_shows_what_apt_said_and_names_what_is_missing(lacking: Sandbox) -> None:
    (lacking.fake / "apt-dies").touch()
    done = lacking.run("lab")
    assert done.returncode == 1
    assert "Temporary failure resolving" in done.stderr
    assert "apt-get could not install some-package" in done.stderr
    assert "network" in done.stderr


def test_a_package_that_does_not_bring_its_program_is_an_error(lacking: Sandbox) -> None:
    script = lacking.root / "scripts" / "setup.sh"
    script.write_text(script.read_text().replace("never-heard-of:", "never-brought:"))
    done = lacking.run("lab")
    assert done.returncode == 1
    assert "still missing after apt-get: some-package" in done.stderr
