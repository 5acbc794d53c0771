"""validate.yml names what is wrong in an inventory, and what to change, before any host is touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loaded import loaded
from surefoot.engine.prolog_written import write_prolog
from surefoot.model.cluster import Cluster

ANSIBLE = Path(__file__).parents[2] / "ansible"
SECRETS = {
    "SUREFOOT_MUNGE_KEY_BASE64": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
    "SUREFOOT_SLURM_JWT_KEY_BASE64": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
    "SUREFOOT_SLURM_DATABASE_PASSWORD": "example",
    "SUREFOOT_RUNNER_TOKEN": "glrt-example",
}


def site() -> dict[str, Any]:
    """An inventory that can be applied."""
    nodes: dict[str, Any] = {"n1": {"common_address": "10.0.0.1"}, "n2": {"common_address": "10.0.0.2"}}
    return {
        "vars": {
            "gres_gpus_per_node": 8,
            "gres_gpu_type": "h100",
            "common_users": [{"name": "alice", "uid": 2001}],
            "slurm_node_cpus": 96,
            "slurm_node_memory_mib": 1_000_000,
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
    return run(tmp_path, file, **environment)


def run(tmp_path: Path, inventory: Path, **environment: str) -> tuple[int, str]:
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(ANSIBLE / "inventory/common")]
    done = subprocess.run(
        [*argv, "-i", str(inventory), "validate.yml"], cwd=ANSIBLE, capture_output=True, text=True, timeout=60, check=False,
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


def prefix(tree: dict[str, Any]) -> None:
    tree["vars"]["slrum_partitions"] = []


def no_group(tree: dict[str, Any]) -> None:
    tree["hosts"] = {"n3": {"common_address": "10.0.0.3"}}


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
        (prefix, "/site.yml:LINE) is read by no role: is slurm_partitions meant?"),
        (no_group, "n3 is in no group that a role runs on (in none at all); groups of roles are common, gres"),
        (wrong_group, "is slurm_nodes meant to be slurm_node?"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_damaged_inventory_is_refused_in_words(tmp_path: Path, damage: Any, words: str) -> None:
    tree = site()
    damage(tree)
    code, said = validated(tmp_path, tree)
    assert code == 2, said
    assert words in re.sub(r"site[.]yml:\d+", "site.yml:LINE", said)


def test_missing_secrets_are_named_with_what_to_set(tmp_path: Path) -> None:
    code, said = validated(tmp_path, site(), SUREFOOT_MUNGE_KEY_BASE64="", SUREFOOT_SLURM_DATABASE_PASSWORD="")
    assert code == 2, said
    assert "munge_key_base64 is empty for head, n1, n2: set SUREFOOT_MUNGE_KEY_BASE64" in said
    assert "slurm_database_password is empty for head: set SUREFOOT_SLURM_DATABASE_PASSWORD" in said


def large_site() -> dict[str, Any]:
    """A site with a host in every group, which can be applied."""
    tree = site()
    tree["vars"] |= {
        "slurm_state_folder": "/srv/cluster/slurmctld",
        "slurm_partitions": [{"name": "gpu", "nodes": "n[1-2]", "options": {"QOS": "short"}}],
        "runner_gitlab_url": "https://gitlab.example.org",
        "storage_root": "/srv/cluster",
        "storage_exports": [{"path": "/srv/cluster"}],
        "rdma_rails": [{"name": "rail0"}],
        "nccl_tests_archive": "/srv/nccl-tests.tar.gz",
        "nccl_tests_sha256": "0" * 64,
    }
    nodes = {"children": {"slurm_node": None}}
    tree["children"] |= {
        "slurm_backup_controller": {"hosts": {"head2": {"common_address": "10.0.0.8"}}},
        "slurm_login": {"hosts": {"head": None}},
        "slurm_rest": {"hosts": {"head": None}},
        "storage_server": {"hosts": {"head": None}},
        "runner": {"hosts": {"control": {"common_address": "10.0.0.7"}}},
        "monitoring_server": {"hosts": {"control": None}},
        "monitoring_exporter": nodes,
        "nvidia": nodes,
        "rdma": nodes,
        "nccl_tests": nodes,
    }
    return tree


LARGE_DAMAGE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    # what it is called, variables of all hosts, hosts of groups, what must be said
    ("no cpus", {"slurm_node_cpus": None}, {}, "slurm_node_cpus is not set for n1, n2: set it for the host or its group"),
    ("no memory", {"slurm_node_memory_mib": None}, {}, "slurm_node_memory_mib is not set for n1, n2"),
    ("cpus in words", {"slurm_node_cpus": "many"}, {}, "slurm_node_cpus of n1, n2 is 'many': write a number"),
    ("unknown node", {"slurm_partitions": [{"name": "gpu", "nodes": "n[1-3]"}]}, {},
     "gpu names n3, and the group slurm_node has no such host: correct nodes, or put the host there"),
    ("open bracket", {"slurm_partitions": [{"name": "gpu", "nodes": "n[1-2"}]}, {}, "'n[1-2': a bracket is not closed"),
    ("no partition", {"slurm_partitions": []}, {}, "slurm_partitions is empty: no job could be submitted"),
    ("nameless", {"slurm_partitions": [{"nodes": "n1"}]}, {}, "slurm_partitions, entry 1 has no name: write it"),
    ("no list", {"slurm_partitions": {"gpu": {}}}, {}, "slurm_partitions is a mapping, and a list is wanted"),
    ("misspelt key", {"slurm_partitions": [{"name": "gpu", "option": {"QOS": "x"}}]}, {},
     "slurm_partitions, entry 1 (gpu) has the key option: is options meant? (seen for "),
    ("unknown key", {"rdma_rails": [{"name": "rail0", "gateway": "10.0.0.1"}]}, {},
     "rdma_rails, entry 1 (rail0) has the key gateway: allowed are name, hca, port"),
    ("no source", {"storage_external_mounts": [{"fstype": "lustre"}]}, {}, "storage_external_mounts, entry 1 has no path: write it"),
    ("text for entries", {"common_extra_hosts": ["10.0.0.9"]}, {},
     "common_extra_hosts, entry 1 is a text, and a mapping is wanted: address, names"),
    ("no choice", {"nvidia_gpudirect": "peer"}, {}, "nvidia_gpudirect is 'peer', and allowed are nothing, none, peermem, dma_buf, any"),
    ("nested choice", {"common_limits": [{"domain": "*", "type": "both", "item": "nofile", "value": "1"}]}, {},
     "type of common_limits, entry 1 is 'both', and allowed are -, soft, hard"),
    ("no boolean", {"slurm_resume_nodes": "maybe"}, {}, "slurm_resume_nodes is 'maybe', and true or false is wanted"),
    ("no settings", {"slurm_config": "KillWait=30"}, {}, "slurm_config is a text, and a mapping is wanted"),
    ("twice", {"slurm_partitions": [{"name": "gpu"}, {"name": "gpu"}]}, {}, "slurm_partitions has gpu 2 times: leave one"),
    ("defaults", {"slurm_partitions": [{"name": "a", "default": True}, {"name": "b", "default": True}]}, {},
     "slurm_partitions has 2 defaults (a, b)"),
    ("unknown QOS", {"slurm_partitions": [{"name": "gpu", "options": {"AllowQos": "Shrot,normal"}}]}, {},
     "partition gpu (AllowQos) names the QOS shrot, which slurm_qos does not define: is short meant?"),
    ("account's QOS", {"slurm_accounts": [{"name": "lab", "options": {"DefaultQOS": "urgent"}}]}, {},
     "account lab (DefaultQOS) names the QOS urgent, which slurm_qos does not define: add it to slurm_qos"),
    ("no accounting", {}, {"slurm_database": None, "slurm_rest": None},
     "partition gpu (QOS) names the QOS short, and slurm_database is empty"),
    ("own state", {"slurm_state_folder": "/var/lib/slurm/slurmctld"}, {},
     "slurm_backup_controller has head2, and slurm_state_folder is /var/lib/slurm/slurmctld, which is not known to be"),
    ("state elsewhere", {"slurm_state_folder": "/srv/other/slurmctld"}, {}, "shared storage on head, head2: name a folder below storage_root"),
    ("two texts", {}, {"slurm_node": {"hosts": {"n1": {"common_address": "10.0.0.1", "slurm_config": {"KillWait": 1}},
                                                "n2": {"common_address": "10.0.0.2"}}}},
     "slurm_config is another for n1 than for head"),
    ("no prolog", {"slurm_prolog_folder": "/no/such"}, {},
     "slurm_prolog_folder is /no/such, and no prolog lies in /no/such ([Errno 2]"),
    ("no URL", {"runner_gitlab_url": ""}, {}, "runner_gitlab_url of control is '': write the GitLab server's address"),
    ("no login", {}, {"slurm_login": None}, "the runner control has no login host (''): put one into the group slurm_login"),
    ("root", {"runner_login_user": "root"}, {}, "runner_login_user of control is 'root': name an ordinary user"),
    ("token", {"runner_token": ""}, {}, "runner_token is empty for control: set SUREFOOT_RUNNER_TOKEN in the environment"),
    ("key", {"munge_key_base64": "QUFB"}, {}, "munge_key_base64 of head, head2, n1, n2 has 3 bytes, and 32 are the fewest"),
    ("no base64", {"slurm_jwt_key_base64": "!"}, {}, "slurm_jwt_key_base64 of head, head2 is no base64"),
    ("password", {"slurm_database_password": "a b#c"}, {}, "slurm_database_password of head has characters that slurmdbd.conf"),
    ("two keys", {}, {"slurm_database": {"hosts": {"head": {"munge_key_base64": "Qg" * 24}}}},
     "munge_key_base64 is another for head2, n1, n2 than for head"),
    ("nobody watched", {}, {"monitoring_exporter": None}, "monitoring_server has control, and monitoring_exporter is empty"),
    ("no export", {"storage_exports": []}, {}, "storage_exports is empty for head, in the group storage_server"),
    ("no rails", {"rdma_rails": []}, {}, "rdma_rails is empty for n1, n2, in the group rdma"),
    ("no archive", {"nccl_tests_archive": ""}, {}, "nccl_tests_archive is empty for n1, n2"),
    ("no digest", {"nccl_tests_sha256": "0123"}, {}, "nccl_tests_sha256 of n1, n2 is not 64 hex digits"),
    ("no driver", {"nvidia_manage_driver": True}, {}, "nvidia_manage_driver is true and nvidia_driver_packages is empty for n1, n2"),
    ("nobody's", {"python_runtime_cluster": "cluster.yaml"}, {},
     "python_runtime_cluster is set and python_runtime_owner is empty for n1, n2"),
    ("no root", {"python_runtime_cluster": "cluster.yaml", "python_runtime_owner": "alice", "storage_root": "",
                 "storage_external_mounts": [{"path": "/srv/cluster"}]}, {},
     "python_runtime_cluster is set and there is no shared root for n1, n2"),
]  # fmt: skip


def problems(tree: dict[str, Any]) -> list[str]:
    """What the filters behind validate.yml say of an inventory, without Ansible."""
    groups: dict[str, list[str]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    for name, group in tree["children"].items():
        for host, variables in ((group or {}).get("hosts") or {}).items():
            groups.setdefault(name, []).append(host)
            hosts.setdefault(host, {**tree["vars"]}).update(variables or {})
    for name, group in tree["children"].items():
        for below in (group or {}).get("children") or {}:
            groups[name] = groups.get(below, [])
    groups["slurm"] = sorted({host for name in groups if name.startswith("slurm_") for host in groups[name]})
    groups |= {"munge": groups["slurm"], "python_runtime": groups["slurm_node"], "all": sorted(hosts)}
    return [
        *loaded("plugins/filter/spec_problems.py").spec_problems(hosts, groups, str(ANSIBLE)),
        *loaded("plugins/filter/slurm_problems.py").slurm_problems(hosts, groups, str(ANSIBLE)),
        *loaded("plugins/filter/slurm_policy.py").slurm_policy_problems(hosts, groups, str(ANSIBLE)),
        *loaded("plugins/filter/needed_problems.py").needed_problems(hosts, groups, SECRETS),
    ]


def test_a_site_with_a_host_in_every_group_has_no_problems() -> None:
    assert problems(large_site()) == []


@pytest.mark.parametrize(
    ("variables", "groups", "words"), [each[1:] for each in LARGE_DAMAGE], ids=[each[0] for each in LARGE_DAMAGE]
)
def test_what_a_role_could_not_do_is_said_and_nothing_else(
    variables: dict[str, Any], groups: dict[str, Any], words: str
) -> None:
    tree = large_site()
    tree["vars"] |= variables
    tree["children"] |= groups
    said = problems(tree)
    assert len(said) == 1, said
    assert words in said[0]


def prolog(folder: Path, hosts: str = "n[1-2]") -> str:
    """A folder such as `surefoot preflight --write-prolog` writes."""
    group = {"name": "g", "count": 2, "hosts": hosts, "expect": {"clock.synchronised": "yes"}}
    cluster = Cluster.model_validate({"name": "c", "root": "/srv/c", "node_groups": [group]})
    write_prolog(cluster, folder / "prolog", markers=None, enforce=False, share=None)
    return str(folder / "prolog")


def test_a_prolog_that_cannot_be_installed_or_proves_nothing_is_refused_in_words(tmp_path: Path) -> None:
    tree = large_site()
    tree["vars"]["slurm_prolog_folder"] = prolog(tmp_path)
    assert problems(tree) == []
    tree["vars"] |= {"slurm_config": {"prolog": "/site/prolog"}, "slurm_prolog_place": "here"}
    (tmp_path / "prolog/prolog.pyz").unlink()
    assert [text.split(", and ")[-1] for text in problems(tree)] == [
        "prolog.pyz is gone from it: surefoot preflight --cluster FILE --write-prolog DIR writes it again",
        "slurm_config has prolog as well: leave one; a prolog of your own may call the other",
        "slurm_prolog_place is 'here': write an absolute path without blanks",
    ]
    (tmp_path / "prolog/written.json").write_text("{}")
    assert "no prolog lies in" in problems(tree)[0]


def test_a_prolog_that_does_not_know_a_node_is_refused_by_that_nodes_name(tmp_path: Path) -> None:
    tree = large_site()
    tree["vars"]["slurm_prolog_folder"] = prolog(tmp_path, "n2,n7")
    (said,) = problems(tree)
    assert "no group there has n1: its prolog would prove nothing on them" in said


@pytest.mark.parametrize(
    "variables",
    [
        {"slurm_partitions": [{"name": "gpu", "nodes": "fast"}], "slurm_conf_lines": ["NodeSet=fast Feature=h100"]},
        {"slurm_partitions": [{"name": "gpu", "nodes": "rack7"}], "slurm_conf_lines": ["Include /etc/slurm/more.conf"]},
        {"slurm_partitions": [{"name": "gpu", "nodes": "ALL", "options": {"AllowQos": "ALL", "QOS": "normal"}}]},
        {"slurm_partitions": [{"name": "gpu", "nodes": ["n1", "n[2]"]}]},
        {"slurm_partitions": [], "slurm_conf_lines": ["PartitionName=gpu Nodes=ALL"]},
        {
            "slurm_qos": [{"name": "a", "options": {"Preempt": ["short", "normal"]}}, {"name": "short"}],
            "slurm_config": {"PreemptType": "preempt/qos"},
        },
    ],
    ids=["set of nodes", "include", "all", "list", "own line", "preempt"],
)
def test_what_slurm_would_take_is_not_refused(variables: dict[str, Any]) -> None:
    tree = large_site()
    tree["vars"] |= variables
    assert problems(tree) == []


@pytest.mark.slow
def test_validate_yml_says_all_that_is_missing_at_once_and_no_secret(tmp_path: Path) -> None:
    code, said = validated(tmp_path, large_site())
    assert code == 0, said
    tree = large_site()
    del tree["vars"]["slurm_node_cpus"]
    tree["vars"] |= {
        "slurm_partitions": [{"name": "gpu", "nodes": "n[1-3]", "options": {"QOS": "shrot"}}],
        "slurm_database_password": "to be kept#",
        "rdma_rails": [],
        "slurm_accounts": [{"name": "lab", "member": ["alice"]}],
    }
    code, said = validated(tmp_path, tree, SUREFOOT_RUNNER_TOKEN="")
    assert code == 2, said
    for words in (
        "slurm_node_cpus is not set for n1, n2",
        "gpu names n3, and the group slurm_node has no such host",
        "names the QOS shrot, which slurm_qos does not define: is short meant?",
        "slurm_database_password of head has characters that slurmdbd.conf does not take",
        "runner_token is empty for control: set SUREFOOT_RUNNER_TOKEN",
        "rdma_rails is empty for n1, n2",
        "slurm_accounts, entry 1 (lab) has the key member",
    ):
        assert words in said
    assert "to be kept#" not in said


@pytest.mark.slow
def test_the_inventory_that_ships_can_be_applied(tmp_path: Path) -> None:
    code, said = run(tmp_path, ANSIBLE / "inventory/two-sparks")
    assert code == 0, said
    code, said = run(tmp_path, ANSIBLE / "inventory/two-sparks", SUREFOOT_RUNNER_TOKEN="")
    assert code == 2, said
    assert "1 to change in the inventory" in said
    assert "runner_token is empty for control" in said


def test_no_hosts_at_all_is_no_success(tmp_path: Path) -> None:
    code, said = validated(tmp_path, {"hosts": {}})
    assert code == 2, said
    assert "has no hosts" in said
