"""What a lab is told of the playbook that makes it a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from surefoot.lab.places import LabPaths
from surefoot.lab.provisioning import _follow, inventory
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
