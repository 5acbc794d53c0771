"""What a lab is told of the playbook that makes it a cluster."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

import pytest
import yaml

from surefoot.errors import MachineryError
from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import _follow, inventory, provision
from surefoot.lab.spec import LabSpec


def line(**event: object) -> str:
    return json.dumps(event) + "\n"


def result(status: str, **more: object) -> str:
    told = {"host": "n1", "task": "Slurm answers", "role": "slurm", "module": "ansible.builtin.shell", **more}
    return line(event="result", status=status, **told)


def test_each_role_is_told_once_and_what_failed_is_named_with_host_role_and_words() -> None:
    said: list[str] = []
    kept: list[str] = []
    lines = [
        "a warning that is no event\n",
        line(event="task", task="Names", role="common"),
        line(event="task", task="Limits", role="common"),
        result("ok"),
        line(event="task", task="Slurm answers", role="slurm"),
        result("failed", item="a", message="of a loop"),
        result("failed", message="the controller is silent"),
        result("failed", ignored=True, message="expected"),
        result("unreachable", host="n2"),
    ]
    problems = _follow(lines, kept.append, said.append, 0.0)
    assert [words.split("  ")[-1] for words in said] == ["role common", "role slurm"]
    assert problems == [
        "n1: slurm: Slurm answers: the controller is silent",
        "n2: slurm: Slurm answers: unreachable",
    ]
    assert kept == lines, "all of it is kept, also what is no event"


def test_hosts_bear_a_name_that_no_other_lab_has_and_secrets_stay_in_their_files(tmp_path: Path) -> None:
    text = inventory(LabSpec(name="mine", nodes=2), 3, LabPaths(tmp_path))
    everything = yaml.safe_load(text)["all"]
    nodes = everything["children"]["slurm_node"]["hosts"]
    assert nodes["n2"] == {"ansible_host": "mine-n2", "common_address": "10.77.3.12"}
    secrets = {name: value for name, value in everything["vars"].items() if name.endswith(("_base64", "_password"))}
    assert len(secrets) == 3
    assert all(str(tmp_path / "secrets") in value and "lookup" in value for value in secrets.values())


def test_the_role_is_told_which_release_of_slurm_the_hosts_have(tmp_path: Path) -> None:
    text = inventory(LabSpec(name="mine"), 3, LabPaths(tmp_path), (20, 2))
    assert yaml.safe_load(text)["all"]["vars"]["slurm_release"] == "20.02"


def test_a_site_that_does_not_end_is_ended_at_its_limit_with_what_it_started_and_the_role_it_was_in(
    tmp_path: Path,
) -> None:
    """By an ``ansible-playbook`` that says what role it is in, and then nothing more."""
    tool, sleeper = tmp_path / "ansible-playbook", tmp_path / "sleeper"
    shutil.copy("/bin/sleep", sleeper)
    told = line(event="task", task="Names", role="common").strip()
    tool.write_text(f"#!/bin/sh\necho '{told}'\n{sleeper} 60 &\n{sleeper} 60\n")
    tool.chmod(0o755)
    said: list[str] = []
    started = time.monotonic()
    with pytest.raises(MachineryError, match="not done after 2 s: ended"):
        provision(str(tool), LabPaths(tmp_path), say=said.append, limit_s=2.0)
    took = time.monotonic() - started
    assert 2.0 <= took < 30, took
    assert [words.split("  ")[-1] for words in said] == ["role common"]
    assert _running(tmp_path) == [], "what it had started still ran"


def _running(folder: Path) -> list[str]:
    """Command lines that name this folder, once those that end have had a second."""
    found: list[str] = []
    for _ in range(20):
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [words] if str(folder) in words else []
        if not found:
            break
        time.sleep(0.05)
    return found
