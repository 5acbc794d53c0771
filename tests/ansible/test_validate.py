"""validate.yml names what is wrong in an inventory, and what to change, before any host is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ANSIBLE = Path(__file__).parents[2] / "ansible"
SECRETS = {
    "SUREFOOT_MUNGE_KEY_BASE64": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
    "SUREFOOT_SLURM_JWT_KEY_BASE64": "QUFB",
    "SUREFOOT_SLURM_DATABASE_PASSWORD": "example",
}


def site() -> dict[str, Any]:
    """An inventory that can be applied."""
    nodes: dict[str, Any] = {"n1": {"common_address": "10.0.0.1"}, "n2": {"common_address": "10.0.0.2"}}
    return {
        "vars": {
            "gres_gpus_per_node": 8,
            "gres_gpu_type": "h100",
            "common_users": [{"name": "alice", "uid": 2001}],
        },
        "children": {
            "slurm_controller": {"hosts": {"head": {"common_address": "10.0.0.9"}}},
            "slurm_database": {"hosts": {"head": None}},
            "slurm_node": {"hosts": nodes},
        },
    }


def validated(tmp_path: Path, tree: dict[str, Any], **environment: str) -> tuple[int, str]:
    """Exit code and output of validate.yml."""
    file = tmp_path / "site.yml"
    file.write_text(yaml.safe_dump({"all": tree}))
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(ANSIBLE / "inventory/common")]
    done = subprocess.run(
        [*argv, "-i", str(file), "validate.yml"], cwd=ANSIBLE, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path), **SECRETS, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_sound_inventory_passes(tmp_path: Path) -> None:
    code, said = validated(tmp_path, site())
    assert code == 0, said


def two_controllers(tree: dict[str, Any]) -> None:
    tree["children"]["slurm_controller"]["hosts"]["h2"] = {"common_address": "10.0.0.8"}


def no_controller(tree: dict[str, Any]) -> None:
    del tree["children"]["slurm_controller"]


def same_address(tree: dict[str, Any]) -> None:
    tree["children"]["slurm_node"]["hosts"]["n2"]["common_address"] = "10.0.0.1"


def odd_name(tree: dict[str, Any]) -> None:
    tree["children"]["slurm_node"]["hosts"]["n_3"] = {"common_address": "10.0.0.3"}


def dotted_name(tree: dict[str, Any]) -> None:
    tree["children"]["slurm_node"]["hosts"]["n3.example.org"] = None


def no_type(tree: dict[str, Any]) -> None:
    del tree["vars"]["gres_gpu_type"]


def same_uid(tree: dict[str, Any]) -> None:
    tree["vars"]["common_users"].append({"name": "bob", "uid": 2001})


def typo(tree: dict[str, Any]) -> None:
    tree["vars"]["slurm_partition"] = []


def wrong_group(tree: dict[str, Any]) -> None:
    tree["children"]["slurm_nodes"] = {"hosts": {"n3": {"common_address": "10.0.0.3"}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (two_controllers, "slurm_controller has 2 hosts (h2, head): leave one"),
        (no_controller, "slurm_controller is empty: put the one host there"),
        (same_address, "n1 and n2 have the same address 10.0.0.1"),
        (odd_name, "'n_3' is no host name that DNS takes: rename it"),
        (dotted_name, "Slurm cannot call a node 'n3.example.org'"),
        (no_type, "gres_gpu_type is not: name the GPU"),
        (same_uid, "uid 2001 to alice and to bob: give one of them another"),
        (typo, "is slurm_partitions meant?"),
        (wrong_group, "is slurm_nodes meant to be slurm_node?"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_damaged_inventory_is_refused_in_words(tmp_path: Path, damage: Any, words: str) -> None:
    tree = site()
    damage(tree)
    code, said = validated(tmp_path, tree)
    assert code == 2, said
    assert words in said


def test_missing_secrets_are_named_with_what_to_set(tmp_path: Path) -> None:
    code, said = validated(tmp_path, site(), SUREFOOT_MUNGE_KEY_BASE64="", SUREFOOT_SLURM_DATABASE_PASSWORD="")
    assert code == 2, said
    assert "munge_key_base64 is empty for head, n1, n2: set SUREFOOT_MUNGE_KEY_BASE64" in said
    assert "slurm_database_password is empty for head: set SUREFOOT_SLURM_DATABASE_PASSWORD" in said


def test_no_hosts_at_all_is_no_success(tmp_path: Path) -> None:
    code, said = validated(tmp_path, {"hosts": {}})
    assert code == 2, said
    assert "has no hosts" in said
