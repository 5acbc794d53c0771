"""What holds a runner's ssh key to some programs: nothing else is started, and no shell ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "ansible/roles/runner/files/runner_command.py"


def asked(command: str | None, *allowed: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"]} | ({} if command is None else {"SSH_ORIGINAL_COMMAND": command})
    argv = [sys.executable, str(PROGRAM), *allowed]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=30)


def test_a_program_that_is_allowed_is_started_with_its_arguments_and_ends_as_it_ends() -> None:
    done = asked("echo 'two words' $(id) ; id | cat", "echo", "sh")
    assert (done.returncode, done.stdout) == (0, "two words $(id) ; id | cat\n")
    assert asked("sh -c 'exit 7'", "sh").returncode == 7
    assert asked("true").returncode == 0


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (None, "opens no shell"),
        ("  ", "opens no shell"),
        ("id", "'id' is not among: echo, no-such-thing"),
        ("/bin/echo a", "'/bin/echo' is not among"),
        ("echo 'open", "No closing quotation"),
        ("no-such-thing a", "no-such-thing is not on this host"),
        ("LD_PRELOAD=x echo", "is not among"),
        ("/usr/libexec/openssh/sftp-server", "is not among"),
    ],
)
def test_everything_else_is_refused_and_said(command: str | None, why: str) -> None:
    done = asked(command, "echo", "no-such-thing")
    assert (done.returncode, done.stdout) == (126, "")
    assert "refused: " in done.stderr
    assert why.replace("'", "") in done.stderr.replace("'", "")
