"""RDMA devices are read from sysfs as they are, and what sysfs does not say is unknown, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fake_sysfs
from surefoot.hardware.fact import Known
from surefoot.hardware.network_facts import Hca
from surefoot.node.facts import fabric


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A Spark: two functions cabled, one not."""
    for index, (name, pci) in enumerate((("enp1s0f1np1", "0000:01:00.1"), ("enP2p1s0f1np1", "0002:01:00.1")), 2):
        fake_sysfs.interface(tmp_path, name, index, pci=pci, driver="mlx5_core", speed="200000")
    fake_sysfs.hca(tmp_path, "rocep1s0f1", "0000:01:00.1", netdev="enp1s0f1np1", ipv4="192.168.177.11")
    fake_sysfs.hca(tmp_path, "roceP2p1s0f1", "0002:01:00.1", netdev="enP2p1s0f1np1", ipv4="192.168.178.11")
    fake_sysfs.hca(
        tmp_path, "rocep1s0f0", "0000:01:00.0", netdev="enp1s0f0np0",
        state="1: DOWN", physical="3: Disabled", rate="40 Gb/sec (4X QDR)",
    )  # fmt: skip
    return tmp_path


def found(sysfs: Path) -> dict[str, Hca]:
    read = Known[tuple[Hca, ...]].model_validate(fabric.facts(sysfs)["hcas"])
    assert read.value is not None, read.unknown
    return {hca.name: hca for hca in read.value}


def port_fact(sysfs: Path, name: str, hca: str = "rocep1s0f1") -> dict[str, Any]:
    device = next(h for h in fabric.hcas(sysfs) if h["name"] == hca)
    fact: dict[str, Any] = device["ports"]["value"][0][name]
    return fact


def test_a_roce_device_is_read_whole(sysfs: Path) -> None:
    hca = found(sysfs)["rocep1s0f1"]
    assert (hca.pci.value, hca.driver.value, hca.numa_node.value) == ("0000:01:00.1", "mlx5_core", 0)
    assert (hca.type.value, hca.firmware.value) == ("MT4129", "28.45.4028")
    (port,) = hca.ports.value or ()
    assert (port.active, port.roce, port.rate_gbit_s.value, port.netdev) == (True, True, 200.0, "enp1s0f1np1")
    assert [(gid.index, gid.type) for gid in port.gids.value or ()] == [
        (0, "IB/RoCE v1"), (1, "RoCE v2"), (2, "IB/RoCE v1"), (3, "RoCE v2")
    ]  # fmt: skip
    assert [(gid.index, str(gid.ipv4)) for gid in port.routable] == [(3, "192.168.177.11")]
    assert set(port.counters.value or ()) == set(fake_sysfs.COUNTERS)
    assert set(port.hw_counters.value or ()) == set(fake_sysfs.HW_COUNTERS) - {"lifespan"}


def test_what_a_counter_says_is_what_is_reported(sysfs: Path) -> None:
    folder = sysfs / "class/infiniband/rocep1s0f1/ports/1"
    (folder / "counters/symbol_error").write_text("7\n")
    (folder / "hw_counters/out_of_sequence").write_text("9677\n")
    assert port_fact(sysfs, "counters")["value"]["symbol_error"] == 7
    assert port_fact(sysfs, "hw_counters")["value"]["out_of_sequence"] == 9677


def test_a_port_without_a_cable_is_down_and_disabled(sysfs: Path) -> None:
    (port,) = found(sysfs)["rocep1s0f0"].ports.value or ()
    assert (port.active, port.state.value, port.physical_state.value) == (False, "DOWN", "Disabled")
    assert port.rate_gbit_s.value == 40.0


def test_infiniband_has_a_lid_and_no_interface(tmp_path: Path) -> None:
    fake_sysfs.interface(tmp_path, "ib0", 2)
    fake_sysfs.hca(tmp_path, "mlx5_0", "0000:18:00.0", rate="400 Gb/sec (4X NDR)")
    (port,) = found(tmp_path)["mlx5_0"].ports.value or ()
    assert (port.roce, port.netdev, port.lid.value, port.subnet_manager_lid.value) == (False, None, 17, 1)
    assert port.rate_gbit_s.value == 400.0


def test_without_an_rdma_driver_there_is_none_and_without_sysfs_it_is_unknown(tmp_path: Path) -> None:
    assert "not there" in fabric.facts(tmp_path)["hcas"]["unknown"]
    fake_sysfs.interface(tmp_path, "eth0", 2)
    assert fabric.facts(tmp_path) == {"hcas": {"value": []}}


DAMAGES = {
    "state": ("state", "ACTIVE", "not NUMBER: STATE"),
    "physical_state": ("phys_state", "", "is empty"),
    "rate_gbit_s": ("rate", "fast", "not N Gb/sec"),
    "link_layer": ("link_layer", None, "No such file"),
    "lid": ("lid", "many", "invalid literal"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_read_is_unknown_and_says_why(name: str, sysfs: Path) -> None:
    file, text, why = DAMAGES[name]
    path = sysfs / "class/infiniband/rocep1s0f1/ports/1" / file
    assert port_fact(sysfs, name)["value"] is not None
    path.unlink() if text is None else path.write_text(text)
    fact = port_fact(sysfs, name)
    assert fact["value"] is None
    assert why in fact["unknown"]


def test_counters_without_an_agent_are_unknown_and_not_zero(sysfs: Path) -> None:
    folder = sysfs / "class/infiniband/rocep1s0f1/ports/1/counters"
    for file in folder.iterdir():
        file.write_text("N/A (no PMA)\n")
    fact = port_fact(sysfs, "counters")
    assert fact["value"] is None
    assert "N/A (no PMA)" in fact["unknown"]


def test_the_active_mtu_is_never_made_up(sysfs: Path) -> None:
    assert port_fact(sysfs, "active_mtu")["value"] is None


def test_a_device_without_ports_says_so(sysfs: Path) -> None:
    folder = sysfs / "class/infiniband/rocep1s0f1/ports"
    folder.rename(folder.with_name("elsewhere"))
    ports = found(sysfs)["rocep1s0f1"].ports
    assert ports.value is None
    assert "No such file" in (ports.unknown or "")
