"""A cluster that is written as a file is loaded as the same cluster, whatever its texts and comments hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.config.load import load_cluster
from surefoot.config.written import END, cluster_text
from surefoot.model.cluster import Cluster, NodeGroup, Rail, SlurmScheduler, SshConnection

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)
KEYS = st.one_of(
    TEXTS, st.sampled_from(["yes", "1.10", "1e3", ".5", "~", "# a", "a: b", "gpu*.vbios", "mount /data", "- x", "<<"])
)


def read(text: str) -> Cluster:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(text, encoding="utf-8")
        return load_cluster(path).record


def cluster(expect: dict[str, str], **group: object) -> Cluster:
    return Cluster(name="here", root="/r", node_groups=(NodeGroup(name="n", count=1, expect=expect, **group),))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, KEYS, max_size=4), st.lists(TEXTS, max_size=3))
def test_any_fact_and_any_comment_is_read_back_as_the_same_cluster(expect: dict[str, str], said: list[str]) -> None:
    record = cluster(expect)
    at = ("node_groups", 0)
    places = [(), at, (*at, "count"), (*at, "expect"), (*at, "expect", END), (*at, END)]
    comments = dict.fromkeys([*places, *((*at, "expect", key) for key in expect)], said)
    assert read(cluster_text(record, comments)) == record


@pytest.mark.parametrize("name", ["mount /a\nb: c", "a\n\nb: c", "x" * 1500, "\xe9" * 1100, "y" * 1020 + ": z\n"])
def test_a_name_of_more_lines_or_of_any_length_is_a_key(name: str) -> None:
    for record in (cluster({name: "v", "k": name}), cluster({"k": "v", name: name, "l": "v"})):
        comments = {("node_groups", 0, "expect", key): ["said"] for key in ("k", "l", name)}
        assert read(cluster_text(record, comments)) == record


def test_what_is_declared_of_slurm_ssh_rails_and_software_is_kept() -> None:
    rails = (Rail(name="r0", rate_gbit_s=400, hca="mlx5_0"), Rail(name="r1", rate_gbit_s=200.5, subnet="10.0.0.0/24"))
    record = cluster({"kernel": "6.8"}, rails=rails, gpus_per_node=8, gpudirect="expected").model_copy(
        update={
            "scheduler": SlurmScheduler(kind="slurm", partition="gpu", account="1e3"),
            "connection": SshConnection(kind="ssh", host="login"),
            "env": {"NCCL_DEBUG": "INFO", "YES": "no"},
        }
    )
    assert read(cluster_text(record, {})) == record


def test_a_comment_stands_beside_its_value_and_no_gpu_is_said_too() -> None:
    text = cluster_text(cluster({"kernel": "6.8"}), {("node_groups", 0, "expect", "kernel"): ("2 of 3 nodes",)})
    assert 'kernel: "6.8"  # 2 of 3 nodes' in text
    assert "gpus_per_node: 0" in text
