"""Facts of a machine read from the kernel's files, in the forms that they have on other machines than this."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.hardware.comparable import comparable
from surefoot.hardware.facts import NodeFacts
from surefoot.node.facts import clock, fact, limits, machine, mounts, software
from surefoot.node.probe import facts


def cpu(folder: Path, number: int, package: str, siblings: str) -> None:
    topology = folder / f"cpu{number}" / "topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text(f"{package}\n")
    (topology / "core_id").write_text("0\n")
    (topology / "core_cpus_list").write_text(f"{siblings}\n")


def test_two_sockets_with_two_threads_a_core(tmp_path: Path) -> None:
    for number in range(8):
        cpu(tmp_path, number, str(number % 4 // 2), f"{number % 4},{number % 4 + 4}")
    assert machine.sockets(tmp_path) == 2
    assert machine.cores(tmp_path) == 4


def test_a_kernel_that_tells_of_no_topology_gives_no_default(tmp_path: Path) -> None:
    assert fact(lambda: machine.sockets(tmp_path))["value"] is None
    assert fact(lambda: machine.numa_nodes(tmp_path))["value"] is None


def test_numa_nodes_in_their_order(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{number}-{number}\n")
    assert list(machine.numa_nodes(tmp_path)) == ["0", "1", "10"]


def test_an_arm_cpu_without_a_name_is_told_by_implementer_and_part(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd85\n\nprocessor : 1\n")
    assert machine.cpu_model(tmp_path / "cpuinfo").endswith("implementer 0x41 part 0xd85")
    assert "microcode" in fact(lambda: machine.microcode(tmp_path / "cpuinfo"))["unknown"]


def test_limits_are_the_least_on_the_way_to_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "slurm" / "job_1" / "step_0"
    folder.mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/slurm/job_1/step_0\n")
    (folder / "memory.max").write_text("max\n")
    (folder.parent / "memory.max").write_text("1024\n")
    (folder.parent.parent / "memory.max").write_text("4096\n")
    (folder / "cpu.max").write_text("max 100000\n")
    (folder.parent / "cpu.max").write_text("250000 100000\n")
    (folder.parent / "cpuset.cpus.effective").write_text("0-3\n")
    assert limits.memory_limit(tmp_path, own) == 1024
    assert limits.cpu_quota(tmp_path, own) == 2.5
    assert limits.cgroup_cpus(tmp_path, own) == "0-3"


def test_only_variables_that_change_collectives_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("GITLAB_TOKEN", "glpat-secret")
    monkeypatch.setenv("MY_NCCL_TOKEN", "secret")
    found = limits.variables()
    assert found["NCCL_SOCKET_IFNAME"] == "eth0"
    assert not {"GITLAB_TOKEN", "MY_NCCL_TOKEN"} & set(found)


MOUNTS = """\
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
40 25 0:35 / /srv/my\\040data rw,noatime - nfs4 server:/export rw,vers=4.2,rsize=1048576,clientaddr=10.0.0.7,addr=10.0.0.1
41 25 0:36 / /srv/my\\040data/deep ro - tmpfs tmpfs rw,size=10k
"""


def test_a_mount_is_told_with_its_options_and_blanks_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    nfs = mounts.mounts(tmp_path / "mountinfo")[1]
    assert (nfs["place"], nfs["kind"], nfs["source"]) == ("/srv/my data", "nfs4", "server:/export")
    assert {"noatime", "vers=4.2"} <= set(nfs["options"])


def test_a_folder_lies_on_the_deepest_mount_above_it(tmp_path: Path) -> None:
    here = tmp_path / "share"
    here.mkdir()
    text = MOUNTS.replace("/srv/my\\040data/deep", str(here)).replace("/srv/my\\040data", str(tmp_path))
    (tmp_path / "mountinfo").write_text(text)
    assert mounts.below(str(here), tmp_path / "mountinfo")["kind"] == "tmpfs"
    assert mounts.below(str(tmp_path), tmp_path / "mountinfo")["kind"] == "nfs4"


def test_the_kernel_is_asked_about_its_clock() -> None:
    found = clock.clock()
    assert isinstance(found["synchronised"], bool)
    assert found["greatest_error_s"] >= 0


@pytest.mark.parametrize(("number", "text"), [(2804, "2.8.4"), (21805, "2.18.5"), (22304, "2.23.4"), (23102, "2.31.2")])
def test_nccls_number_in_words(number: int, text: str) -> None:
    assert software.nccl_version(number) == text


def here() -> NodeFacts:
    """As the probe reports them, but for the meeting, which needs a job."""
    alone = {"value": None, "unknown": "not asked"}
    return NodeFacts.model_validate({**facts("/"), "reach": alone, **software.facts()})


@pytest.mark.slow  # imports torch
def test_what_the_probe_finds_here_fits_its_records_and_is_comparable() -> None:
    found = here()
    texts = comparable(found)
    assert texts["kernel"] == found.kernel.value
    assert texts == comparable(here())  # nothing that changes by the minute


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (b"37 35 0:9 / /data\xe2\x80\x83x rw - tmpfs none rw", "/data\u2003x"),
        (b"37 35 0:9 / /data\xe2\x80\xa8x rw - tmpfs none rw", "/data\u2028x"),
        (b"37 35 0:9 / /data\x0cx rw - tmpfs none rw", "/data\x0cx"),
        (b"37 35 0:9 / /data\xff rw - tmpfs none rw", r"/data\xff"),
        (b"37 35 0:9 / /data rw shared:1 - tmpfs  rw", "/data"),
    ],
)
def test_a_mount_of_any_name_hides_no_other_and_is_none_of_them(tmp_path: Path, row: bytes, place: str) -> None:
    (tmp_path / "mountinfo").write_bytes(b"36 35 98:0 / /home rw - ext4 /dev/root rw\n" + row + b"\n")
    assert [found["place"] for found in mounts.mounts(tmp_path / "mountinfo")] == ["/home", place]


def test_a_quota_of_no_period_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 0\n")
    (tmp_path / "cgroup").write_text("0::/\n")
    assert "ZeroDivisionError" in fact(lambda: limits.cpu_quota(tmp_path, tmp_path / "cgroup"))["unknown"]
