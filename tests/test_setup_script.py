"""scripts/setup.sh, with an interpreter that only pretends to install: what it decides, and in which order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
    assert rest.endswith("-c constraints.txt -e .[train,report]")
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
    assert sandbox.pip_calls()[-1].endswith("-e .[train,report,dev]")
    assert sandbox.run("climb").stdout == ""
    with (sandbox.root / "constraints.txt").open("a") as stream:
        stream.write("# renewed\n")
    assert sandbox.run("climb").returncode == 0
    assert sandbox.pip_calls()[-1].endswith("-e .[train,report,dev]")


def test_without_a_usable_python_it_says_what_to_install(sandbox: Sandbox) -> None:
    (sandbox.fake / "python3").write_text("#!/bin/sh\nexit 1\n")
    done = sandbox.run("climb")
    assert done.returncode == 1
    assert "sudo apt-get install python3 python3-venv" in done.stderr
    assert not (sandbox.root / ".venv").exists()


def test_an_unknown_profile_names_those_there_are(sandbox: Sandbox) -> None:
    done = sandbox.run("tset")
    assert done.returncode == 1
    assert "there are climb and test" in done.stderr
