"""ansible-lint finds nothing in the site, by its strictest profile and without anything skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ANSIBLE = Path(__file__).parents[2] / "ansible"


def linted(folder: Path, *what: str) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name("ansible-lint")), "--offline", "--nocolor", "--profile", "production"]
    return subprocess.run(
        [*argv, *what], cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_roles_and_playbooks_hold_to_the_production_profile() -> None:
    done = linted(ANSIBLE)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = re.search(r"0 failure\(s\), 0 warning\(s\) in (\d+) files", done.stderr + done.stdout)
    assert seen, done.stderr
    assert int(seen[1]) > 100, "the roles were not looked at"
    assert not [name for name in (".ansible-lint", ".ansible-lint-ignore") if (ANSIBLE / name).exists()], (
        "what is skipped there, and why?"
    )


@pytest.mark.slow
def test_a_finding_is_found(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(
        "---\n- name: Look\n  hosts: all\n  tasks:\n    - name: Look\n      command: ls\n"
    )
    done = linted(tmp_path, "play.yml")
    assert done.returncode == 2, done.stderr
    assert "fqcn" in done.stdout + done.stderr
