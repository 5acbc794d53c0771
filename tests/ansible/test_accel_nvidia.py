"""What roles/nvidia sees and says, on pretended hosts (tests/pretended_host.py): no GPU is needed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loaded import loaded
from pretended_host import DRIVER, Damage, nvidia_host, put, smi, units
from surefoot.node.pci import gpus_on_bus

ANSIBLE = Path(__file__).parents[2] / "ansible"
LOOK = ANSIBLE / "roles/nvidia/files/look.py"


COMPARE = loaded("plugins/filter/nvidia_compare.py")
WANTED: dict[str, Any] = {
    "manage_driver": False,
    "driver_version": DRIVER,
    "gpus_per_node": "8",
    "gpu_model": "H200",
    "persistence_mode": True,
    "fabric_manager": "auto",
    "cuda_version": "13.0",
    "dcgm_version": "4.2",
    "gpudirect": "peermem",
}


def look(root: Path) -> dict[str, Any]:
    """What the look script prints, run as the role runs it."""
    done = subprocess.run([sys.executable, str(LOOK), str(root)], capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def compare(facts: dict[str, Any], **wanted: Any) -> tuple[list[str], list[str]]:
    """(problems, found)."""
    said = COMPARE.nvidia_compare(facts, {**WANTED, **wanted})
    return said["problems"], said["found"]


def test_a_host_that_is_as_declared_has_no_problem_and_each_claim_names_its_evidence(tmp_path: Path) -> None:
    problems, found = compare(look(nvidia_host(tmp_path)))
    assert problems == []
    text = "\n".join(found)
    assert f"driver {DRIVER}, as declared (/proc/driver/nvidia/version)" in text
    assert "GPUs: all 8 of the PCI bus answer to nvidia-smi" in text
    assert "fabric manager is active, for 4 NVSwitches" in text
    assert "CUDA runtime 13.0 is there: 13.0.88 (/usr/local/cuda-13.0/lib64/libcudart.so.13.0.88)" in text
    assert f"nvidia_peermem {DRIVER} is loaded" in text


def test_gpus_on_the_bus_are_counted_as_the_precheck_counts_them(tmp_path: Path) -> None:
    nvidia_host(tmp_path, gpus=3)
    given_away = tmp_path / "sys/bus/pci/devices/0000:11:00.0/driver"
    given_away.symlink_to("../../../../bus/pci/drivers/vfio-pci")
    assert look(tmp_path)["bus"]["value"]["gpus"] == gpus_on_bus(tmp_path / "sys/bus/pci/devices")
    assert len(look(tmp_path)["bus"]["value"]["gpus"]) == 2


def remove(name: str) -> Damage:
    def damage(root: Path) -> None:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "another driver is loaded": (
        lambda root: put(root, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Sun\n"),
        f"driver: found 575.57.08 (/proc/driver/nvidia/version), nvidia_driver_version declares {DRIVER}",
    ),
    "packages were changed under a running driver": (
        lambda root: put(root, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Sun\n"),
        f"driver: 575.57.08 is loaded, and the host's libraries are of {DRIVER}",
    ),
    "no driver is loaded": (remove("proc/driver/nvidia"), "driver: none is loaded"),
    "the driver's file is in an unknown form": (
        lambda root: put(root, "proc/driver/nvidia/version", "NVRM version: none\n"),
        "driver: /proc/driver/nvidia/version cannot be read: no version in its first line: NVRM version: none",
    ),
    "nvidia-smi is missing": (remove("usr/bin/nvidia-smi"), "GPUs: nvidia-smi -q -x cannot be read: nvidia-smi is not there"),
    "nvidia-smi fails": (
        lambda root: put(root, "usr/bin/nvidia-smi", "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n", executable=True),
        "nvidia-smi ends with 18: Failed to initialize NVML: Driver/library version mismatch",
    ),
    "nvidia-smi's answer is cut off": (lambda root: put(root, "smi.xml", smi(gpus=8)[:900]), "GPUs: nvidia-smi -q -x cannot be read: ParseError"),
    "nvidia-smi describes fewer GPUs than it counts": (
        lambda root: put(root, "smi.xml", smi(gpus=7).replace("<attached_gpus>7", "<attached_gpus>8")),
        "nvidia-smi says 8 GPUs and describes 7",
    ),
    "a GPU fell off": (
        lambda root: put(root, "smi.xml", smi(gpus=7)),
        "GPUs: 8 on the PCI bus, 7 in nvidia-smi; missing: 0000:17:00.0",
    ),
    "GPUs of another model": (lambda root: put(root, "smi.xml", smi(gpus=8, model="NVIDIA H100 80GB HBM3")), "GPU model: found NVIDIA H100 80GB HBM3, nvidia_gpu_model declares a name with H200 in it"),
    "persistence mode is off": (lambda root: put(root, "smi.xml", smi(gpus=8, persistence="Disabled")), "persistence mode: off on 00000000:10:00.0"),
    "the fabric manager stopped": (
        lambda root: units(root, {"nvidia-dcgm": "active", "nvidia-fabricmanager": "failed"}),
        "fabric manager: is failed, and this host has 4 NVSwitches",
    ),
    "the fabric manager is not installed": (lambda root: units(root, {"nvidia-dcgm": "active"}), "fabric manager: is not installed"),
    "the fabric is not set up": (
        lambda root: put(root, "smi.xml", smi(gpus=8, fabric=("In Progress", "N/A"))),
        "NVLink fabric: state In Progress, N/A; expected Completed with Success",
    ),
    "systemd does not answer": (remove("usr/bin/systemctl"), "fabric: systemctl show cannot be read: systemctl is not there"),
    "no CUDA runtime": (remove("usr/local/cuda-13.0"), "CUDA runtime: found none, nvidia_cuda_version declares 13.0"),
    "another CUDA runtime": (
        lambda root: (root / "usr/local/cuda-13.0/lib64/libcudart.so.13.0.88").rename(root / "usr/local/cuda-13.0/lib64/libcudart.so.12.8.90"),
        "CUDA runtime: found 12.8.90",
    ),
    "no DCGM": (remove("usr/bin/dcgmi"), "DCGM: there is no dcgmi on the host, nvidia_dcgm_version declares 4.2"),
    "an older DCGM": (lambda root: put(root, "usr/bin/dcgmi", "#!/bin/sh\necho 'dcgmi  version: 3.3.9'\n", executable=True), "DCGM: found 3.3.9 (dcgmi --version), nvidia_dcgm_version declares 4.2"),
    "DCGM's service stopped": (
        lambda root: units(root, {"nvidia-fabricmanager": "active", "nvidia-dcgm": "inactive"}),
        "DCGM: its service is not active",
    ),
    "peermem is not loaded": (remove("sys/module/nvidia_peermem"), "GPUDirect RDMA: nvidia_gpudirect declares peermem; nvidia_peermem is not loaded"),
    "peermem is of another driver": (
        lambda root: put(root, "sys/module/nvidia_peermem/version", "575.57.08\n"),
        f"nvidia_peermem is of 575.57.08, the driver of {DRIVER}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named(tmp_path: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(nvidia_host(tmp_path))
    problems, _ = compare(look(tmp_path))
    assert any(words in problem for problem in problems), problems
    assert all("→" in problem for problem in problems)


@pytest.mark.parametrize("fact", ["driver", "bus", "smi", "runtimes", "dcgm", "modules", "units"])
def test_a_fact_that_is_missing_or_unknown_is_never_passed(tmp_path: Path, fact: str) -> None:
    facts = look(nvidia_host(tmp_path))
    assert compare({name: value for name, value in facts.items() if name != fact})[0]
    assert compare({**facts, fact: {"value": None, "unknown": "because", "from": "here"}})[0]


def test_nothing_on_a_host_is_a_problem_also_where_nothing_is_declared(tmp_path: Path) -> None:
    (tmp_path / "sys/bus").mkdir(parents=True)
    empty = dict.fromkeys(WANTED, "") | {"manage_driver": False, "persistence_mode": False, "fabric_manager": "auto"}
    problems, _ = compare(look(tmp_path), **empty)
    assert any("driver: none is loaded" in problem for problem in problems)
    assert any("nvidia-smi is not there" in problem for problem in problems)


def test_what_is_not_declared_is_said_to_be_so(tmp_path: Path) -> None:
    open_ended = {
        "driver_version": "",
        "gpus_per_node": "",
        "gpu_model": "",
        "cuda_version": "",
        "dcgm_version": "",
        "gpudirect": "",
    }
    problems, found = compare(look(nvidia_host(tmp_path)), **open_ended)
    assert problems == []
    assert f"driver {DRIVER} (/proc/driver/nvidia/version); nvidia_driver_version declares none" in found
    assert any("GPUDirect RDMA: nvidia_gpudirect declares nothing" in line for line in found)


def test_a_branch_of_the_driver_can_be_declared_and_no_half_of_a_number(tmp_path: Path) -> None:
    facts = look(nvidia_host(tmp_path))
    assert compare(facts, driver_version="580")[0] == []
    assert compare(facts, driver_version="58")[0]


def test_a_spark_needs_no_fabric_manager_and_has_no_gpudirect(tmp_path: Path) -> None:
    facts = look(nvidia_host(tmp_path, gpus=1, model="NVIDIA GB10", switches=0))
    wanted = {"gpus_per_node": "1", "gpu_model": "GB10", "gpudirect": "none"}
    problems, found = compare(facts, **wanted)
    assert problems == []
    assert any("fabric manager: not needed, there is no NVSwitch" in line for line in found)


def test_nvswitches_of_blackwell_are_seen_by_their_management_function(tmp_path: Path) -> None:
    nvidia_host(tmp_path, switches=0)
    put(tmp_path, "sys/class/infiniband/mlx5_9/device/vpd", "\x82 ConnectX-7 SMDL=SW_MNG")
    put(tmp_path, "sys/class/infiniband/mlx5_0/device/vpd", "\x82 ConnectX-7 SMDL=MCX75310AAS")
    assert look(tmp_path)["bus"]["value"]["switches"] == ["mlx5_9"]


@pytest.mark.parametrize(
    ("devices", "release", "words"),
    [
        ([{"name": "NVIDIA H200", "dma_buf": True}], "6.8.0-85-generic", ""),
        ([{"name": "NVIDIA GB10", "dma_buf": False}], "6.14.0", "no dma-buf for NVIDIA GB10"),
        ([{"name": "NVIDIA H200", "dma_buf": True}], "5.4.0-200-generic", "Linux 5.4.0-200-generic is older than 5.12"),
        ([], "6.8.0", "no dma-buf for no GPU at all"),
    ],
)
def test_dma_buf_is_cudas_own_word_and_wants_a_newer_kernel(
    tmp_path: Path, devices: list[dict[str, Any]], release: str, words: str
) -> None:
    facts = look(nvidia_host(tmp_path))
    facts["cuda"] = {"value": {"version": "13.0", "devices": devices}, "from": "libcuda.so.1"}
    facts["kernel"]["value"] = release
    problems, _ = compare(facts, gpudirect="dma_buf")
    assert (words in problems[0]) if words else problems == []


def test_packages_that_would_change_the_driver_are_recognised() -> None:
    simulated = (
        "Reading package lists...\n"
        "Inst libnvidia-compute-580 [575.57.08-0ubuntu1] (580.159.04-0ubuntu1 NVIDIA:580 [amd64])\n"
        "Inst cuda-cudart-13-0 (13.0.88-1 NVIDIA:13 [amd64])\n"
        "Inst nvidia-fabricmanager-580 (580.159.04-1 NVIDIA:580 [amd64])\n"
        "Remv nvidia-driver-575-open [575.57.08-0ubuntu1]\n"
        "Conf cuda-cudart-13-0 (13.0.88-1 NVIDIA:13 [amd64])\n"
    )
    changes = COMPARE.nvidia_driver_changes(simulated)
    assert changes == [
        "install libnvidia-compute-580 580.159.04-0ubuntu1 (now 575.57.08-0ubuntu1)",
        "remove nvidia-driver-575-open (now 575.57.08-0ubuntu1)",
    ]


def test_an_older_python_of_a_host_can_read_the_script() -> None:
    import ast

    for role in ("nvidia", "rdma"):
        text = (ANSIBLE / f"roles/{role}/files/look.py").read_text()
        ast.parse(text, feature_version=(3, 9))
        assert "from __future__ import annotations" in text


def test_the_report_counts_and_holds_each_problem_on_lines_of_its_own(tmp_path: Path) -> None:
    nvidia_host(tmp_path)
    put(tmp_path, "smi.xml", smi(gpus=7, persistence="Disabled"))
    lines = COMPARE.nvidia_compare(look(tmp_path), WANTED)["report"].split("\n")
    assert lines[0] == "of 13 claims 3 do not hold:"
    assert [line.split(":")[0] for line in lines[1:] if not line.startswith("  → ")] == [
        "GPUs",
        "GPUs",
        "persistence mode",
    ]
