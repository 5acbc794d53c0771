"""Reads of a host that are held to a rate: which disk, by which cgroup, and what is said where nothing can be held."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from surefoot.errors import RequestError
from surefoot.lab import disk
from surefoot.lab.disk import RATES, disk_of, groups, is_held


def test_a_folder_is_on_the_whole_disk_of_its_partition_and_one_on_no_disk_says_so(tmp_path: Path) -> None:
    blocks, whole = tmp_path / "dev/block", tmp_path / "devices/vda"
    blocks.mkdir(parents=True)
    (whole / "vda1").mkdir(parents=True)
    (whole / "dev").write_text("254:0\n")
    (whole / "vda1/dev").write_text("254:1\n")
    (whole / "vda1/partition").write_text("1\n")
    device = tmp_path.stat().st_dev
    entry = blocks / f"{os.major(device)}:{os.minor(device)}"
    for target in (whole / "vda1", whole):
        entry.symlink_to(target)
        assert disk_of(tmp_path, blocks) == "254:0"
        entry.unlink()
    with pytest.raises(RequestError, match="lies on no disk that") as refused:
        disk_of(tmp_path, blocks)
    assert "--home" in refused.value.next_action


def test_only_a_rate_with_its_unit_is_taken() -> None:
    assert [text for text in ("2MB", "500kB", "0MB", "2", "2mb", "-2MB", "2MB;") if re.fullmatch(RATES, text)] == [
        "2MB", "500kB",
    ]  # fmt: skip


def version_1(top: Path) -> Path:
    """The cgroups that a hybrid machine has; the folder of host n2's reads."""
    for name in ("unified", "systemd", "blkio"):
        (top / name).mkdir(parents=True)
        (top / name / "cgroup.procs").touch()
    (top / "blkio/blkio.throttle.read_bps_device").touch()
    return top / "blkio/surefoot-lab/x/n2"


def test_of_version_1_a_rule_of_the_hosts_own_group_holds_it_and_no_rule_does_not(tmp_path: Path) -> None:
    group = version_1(tmp_path)
    assert groups("x", "n2", tmp_path) == [group]
    assert not is_held("x", "n2", tmp_path)
    group.mkdir(parents=True)
    (group / "blkio.throttle.read_bps_device").write_text("")
    assert not is_held("x", "n2", tmp_path)
    (group / "blkio.throttle.read_bps_device").write_text("254:0 2000000\n")
    assert is_held("x", "n2", tmp_path)
    assert not is_held("x", "n1", tmp_path)


def test_of_version_2_a_rate_of_reads_holds_it_and_a_rate_of_writes_does_not(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io\n")
    group = tmp_path / "surefoot-lab/x/n2"
    group.mkdir(parents=True)
    assert groups("x", "n2", tmp_path) == []
    for rule, held in (("", False), ("254:0 rbps=max wbps=5", False), ("254:0 rbps=2000000 wbps=max", True)):
        (group / "io.max").write_text(rule)
        assert is_held("x", "n2", tmp_path) is held, rule


def test_a_kernel_that_can_hold_nothing_is_told_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(disk, "disk_of", lambda _: "254:0")
    with pytest.raises(RequestError, match="cgroups cannot hold reads"):
        disk.hold("x", "n2", tmp_path, "2MB", tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "cgroup.controllers"]
