"""Counters of every RDMA port of a node, as sysfs has them; what cannot be read says why."""

from __future__ import annotations

from pathlib import Path

from surefoot.node.port_counters import read


def port(sysfs: Path, device: str, number: int, **counters: str) -> None:
    folder = sysfs / "class" / "infiniband" / device / "ports" / str(number) / "counters"
    folder.mkdir(parents=True)
    for name, text in counters.items():
        (folder / name).write_text(f"{text}\n")


def test_each_port_tells_its_counters_and_one_that_cannot_says_why(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, port_xmit_data="1000", symbol_error="3", lifespan="10")
    port(tmp_path, "mlx5_0", 2, port_xmit_data="7")
    port(tmp_path, "siw0", 1, port_xmit_data="N/A (no PMA)")
    found = read(tmp_path)["value"]
    assert found["mlx5_0:1"] == {"value": {"port_xmit_data": 1000, "symbol_error": 3}}
    assert found["mlx5_0:2"] == {"value": {"port_xmit_data": 7}}
    assert "no PMA" in found["siw0:1"]["unknown"]


def test_a_node_without_rdma_devices_says_so(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found["value"] is None
    assert "shows no port" in found["unknown"]
