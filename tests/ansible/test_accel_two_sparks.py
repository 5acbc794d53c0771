"""inventory/two-sparks says the same as the cluster file that ships under that name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from surefoot.config.load import load_cluster

ANSIBLE = Path(__file__).parents[2] / "ansible"
INVENTORY = ANSIBLE / "inventory/two-sparks"
NODES = ["spark-1", "spark-2"]


def read(inventory: Path) -> dict[str, Any]:
    """What ``ansible-inventory --list`` makes of it, over inventory/common."""
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "--list"]
    command += ["-i", str(ANSIBLE / "inventory/common"), "-i", str(inventory)]
    env = {**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@cache
def site() -> dict[str, Any]:
    return read(INVENTORY)


def hosts(said: dict[str, Any], group: str) -> list[str]:
    """Hosts of a group and of the groups in it."""
    row = said.get(group, {})
    found = set(row.get("hosts", []))
    for child in row.get("children", []):
        found |= set(hosts(said, child))
    return sorted(found)


def variables(host: str) -> dict[str, Any]:
    found: dict[str, Any] = site()["_meta"]["hostvars"][host]
    return found


def test_its_nodes_are_those_of_the_cluster_file() -> None:
    group = load_cluster("two-sparks").record.node_groups[0]
    assert hosts(site(), "slurm_node") == NODES
    assert group.count == len(NODES)


@pytest.mark.parametrize("host", NODES)
def test_each_node_is_declared_as_the_cluster_file_declares_it(host: str) -> None:
    cluster = load_cluster("two-sparks").record
    group, said = cluster.node_groups[0], variables(host)
    rails = [{"name": r.name, "hca": r.hca, "subnet": r.subnet, "rate_gbit_s": r.rate_gbit_s} for r in group.rails]
    assert said["rdma_rails"] == rails
    assert said["gres_gpus_per_node"] == group.gpus_per_node
    assert said["nvidia_gpu_model"] == group.gpu_model
    assert said["slurm_node_cpus"] >= group.min_cpus
    assert said["slurm_node_memory_mib"] >= group.min_memory_gib * 1024
    assert said["storage_root"] == cluster.root
    assert said["python_runtime_version"] == cluster.software.python
    assert cluster.software.nccl.startswith(said["nccl_tests_nccl_version"] + ".")
    assert cluster.software.cuda.split(".")[0] == said["nvidia_cuda_version"]
    assert ",".join(rail["hca"] for rail in said["rdma_rails"]) == cluster.env["NCCL_IB_HCA"]


def test_the_partition_of_the_cluster_file_is_one_of_its_partitions() -> None:
    cluster = load_cluster("two-sparks").record
    names = [row["name"] for row in variables("spark-1")["slurm_partitions"]]
    assert cluster.scheduler.kind == "slurm"
    assert cluster.scheduler.partition in names
    preemptible = [row for row in variables("spark-1")["slurm_partitions"] if row["options"]["PreemptMode"] != "off"]
    assert [row["name"] for row in preemptible] == ["backfill"]


def test_a_host_that_holds_the_share_does_not_mount_it_and_every_other_does() -> None:
    assert hosts(site(), "storage_server") == ["spark-1"]
    assert variables("spark-1")["storage_mounts"] == []
    address = variables("spark-1")["ansible_host"]
    for host in sorted(set(hosts(site(), "storage_client")) - {"spark-1"}):
        assert [mount["src"] for mount in variables(host)["storage_mounts"]] == [f"{address}:/srv/surefoot"]


def test_its_storage_is_in_the_forms_of_the_role_and_whoever_writes_there_may() -> None:
    said = variables("spark-2")
    allowed = {"path", "clients", "options", "owner", "group", "mode"}
    assert all(set(row) <= allowed and isinstance(row.get("options", ""), str) for row in said["storage_exports"])
    assert all(isinstance(row.get("options", ""), str) for row in said["storage_mounts"])
    users = {user["name"] for user in said["common_users"]}
    owner = said["storage_exports"][0]["owner"]
    assert {owner, said["storage_check_user"], said["python_runtime_create_as"], said["python_runtime_owner"]} == {
        owner
    }
    assert owner in users
    assert {user for account in said["slurm_accounts"] for user in account["users"]} <= users


def test_adding_a_node_is_one_line_and_everything_else_follows(tmp_path: Path) -> None:
    shutil.copytree(INVENTORY, tmp_path / "site")
    path = tmp_path / "site/hosts.yml"
    line = "        spark-2: {ansible_host: 192.168.1.12}\n"
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, line + line.replace("spark-2", "spark-3").replace(".12", ".13")))
    more = read(tmp_path / "site")
    for group in ("common", "munge", "slurm", "slurm_node", "gres", "storage", "nvidia", "rdma", "python_runtime"):
        assert set(hosts(more, group)) - set(hosts(site(), group)) == {"spark-3"}, group
    ours = {key: value for key, value in more["_meta"]["hostvars"]["spark-3"].items() if key != "ansible_host"}
    assert ours == {key: value for key, value in variables("spark-2").items() if key != "ansible_host"}


def test_every_variable_belongs_to_a_role_and_no_secret_stands_in_it() -> None:
    roles = {path.name for path in (ANSIBLE / "roles").iterdir()} | {"storage", "gres", "ansible"}
    for path in sorted(INVENTORY.rglob("*_vars/**/*.yml")):
        for name in yaml.safe_load(path.read_text()):
            assert any(name.startswith(f"{role}_") for role in roles), f"{path.name}: {name}"
            assert not any(word in name for word in ("password", "token", "_key_base64")), name
