"""Tests that share a fixture stay together where several workers share the tests: `TOGETHER` and ``--dist loadgroup``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def workers(folder: Path) -> dict[str, set[str]]:
    """File → the workers that ran its tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-vv",
        "-n",
        "3",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
        "tests",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\] .*PASSED (tests/[\w/]+\.py)::", done.stdout, re.MULTILINE):
        found[file].add(worker)
    return found


@pytest.mark.slow
def test_a_file_and_a_group_of_files_are_run_by_one_worker_each(tmp_path: Path) -> None:
    shared = ["tests/cluster/test_climb_on_lab.py", "tests/cluster/test_site_on_lab.py"]
    files = [*shared, *(f"tests/test_{number}.py" for number in range(5))]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        cases = "[1, 2, 3, 4]"
        body = f"import pytest\n\n@pytest.mark.parametrize('n', {cases})\ndef test_it(n):\n    pass\n"
        (tmp_path / file).write_text(body)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests/conftest.py").write_text((TESTS / "conftest.py").read_text())
    found = workers(tmp_path)
    assert found.keys() == set(files)
    assert {file: len(by) for file, by in found.items()} == dict.fromkeys(files, 1)
    assert found[shared[0]] == found[shared[1]]
    assert len(set.union(*found.values())) > 1


def test_every_file_that_climbs_on_the_shared_lab_is_in_its_group(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    assert conftest is not None
    users = {
        f"tests/cluster/{path.name}"
        for path in (TESTS / "cluster").glob("test_*.py")
        if re.search(r"\bclimbing_lab: ", path.read_text())
    }
    assert users == {file for file in conftest.TOGETHER if file.startswith("tests/cluster/")}
