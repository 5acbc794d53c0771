"""Detection of GPUs: a number that two witnesses agree on, or a refusal; never 0 because something failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.engine import resolve
from surefoot.errors import MachineryError
from surefoot.model.cluster import Cluster, NodeGroup


class Machine:
    """A machine's witnesses, as files."""

    def __init__(self, folder: Path) -> None:
        self.devices = folder / "bus" / "pci" / "devices"
        self.driver = folder / "proc" / "gpus"
        self.smi = str(folder / "nvidia-smi")
        self.devices.mkdir(parents=True)

    def on_bus(self, count: int, kind: str = "0x030200", vendor: str = "0x10de", driver: str = "nvidia") -> Machine:
        for _ in range(count):
            entry = self.devices / f"0000:{len(list(self.devices.iterdir())):02x}:00.0"
            entry.mkdir()
            (entry / "vendor").write_text(f"{vendor}\n")
            (entry / "class").write_text(f"{kind}\n")
            (entry / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return self

    def with_driver(self, count: int) -> Machine:
        for number in range(count):
            (self.driver / f"0000:{number:02x}:00.0").mkdir(parents=True)
        self.driver.mkdir(parents=True, exist_ok=True)
        return self

    def with_smi(self, script: str) -> Machine:
        Path(self.smi).write_text(f"#!/bin/sh\n{script}\n")
        Path(self.smi).chmod(0o755)
        return self

    def gpus(self, declared_on_bus: int | None = None) -> int:
        return resolve.detect_gpus(declared_on_bus, devices=self.devices, driver=self.driver, smi=self.smi)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_gpus_has_none(machine: Machine) -> None:
    assert machine.gpus() == 0
    assert machine.on_bus(2, kind="0x040300").on_bus(1, vendor="0x1234").gpus() == 0  # audio; another vendor's display


def test_what_driver_and_bus_agree_on_is_the_number(machine: Machine) -> None:
    assert machine.on_bus(2).with_driver(2).gpus() == 2


def test_nvidia_smi_is_asked_where_the_driver_has_no_folder(machine: Machine) -> None:
    assert machine.on_bus(1, kind="0x030000").with_smi("echo 'GPU 0: NVIDIA GB10 (UUID: GPU-1)'").gpus() == 1


def test_a_system_without_pci_has_no_gpu_on_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.devices.rmdir()
    machine.devices.parent.rmdir()
    assert machine.gpus() == 0


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo NVIDIA-SMI has failed because it could not communicate with the driver; exit 9", "ends with 9: NVIDIA-SMI has"),
        ("exit 1", "ends with 1: no output"),
        ("exit 0", "2 NVIDIA GPUs on the PCI bus, 0 with the driver"),
        ("echo 'GPU 0: NVIDIA H200'", "2 NVIDIA GPUs on the PCI bus, 1 with the driver"),
    ],
)  # fmt: skip
def test_an_nvidia_smi_that_fails_or_contradicts_is_refused(machine: Machine, script: str, word: str) -> None:
    with pytest.raises(MachineryError, match=word) as refused:
        machine.on_bus(2).with_smi(script).gpus()
    assert "gpus_on_bus" in refused.value.next_action


def test_gpus_without_a_driver_are_refused(machine: Machine) -> None:
    with pytest.raises(MachineryError, match="1 NVIDIA GPU on the PCI bus, and no NVIDIA driver is loaded"):
        machine.on_bus(1).gpus()


def test_a_gpu_that_fell_out_of_the_driver_is_refused(machine: Machine) -> None:
    with pytest.raises(MachineryError, match="8 NVIDIA GPUs on the PCI bus, 7 with the driver"):
        machine.on_bus(8).with_driver(7).gpus()


def test_a_part_is_detected_where_the_cluster_file_declares_the_bus(machine: Machine) -> None:
    assert machine.on_bus(8).with_driver(2).gpus(declared_on_bus=8) == 2


def test_a_gpu_that_a_virtual_machine_holds_does_not_count(machine: Machine) -> None:
    assert machine.on_bus(1, driver="vfio-pci").on_bus(1).with_driver(1).gpus() == 1


def test_a_bus_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineryError, match="cannot be read"):
        resolve.detect_gpus(devices=tmp_path / "a" / "b" / "c", driver=tmp_path / "none", smi="no-such-program")


def test_a_declared_number_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> int:
        raise AssertionError("asked")

    monkeypatch.setattr(resolve, "detect_gpus", fails)
    cluster = Cluster(name="c", root="/r", node_groups=(NodeGroup(name="n", count=1, gpus_per_node=3),))
    assert resolve.resolve_cluster(cluster, root=None).gpus_per_node == 3
