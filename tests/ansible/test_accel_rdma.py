"""What roles/rdma sees and says, on pretended hosts (tests/pretended_host.py): no RDMA card is needed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loaded import loaded
from pretended_host import SPARK_RAILS, Damage, interfaces, port, put, rdma_host

ANSIBLE = Path(__file__).parents[2] / "ansible"
LOOK = ANSIBLE / "roles/rdma/files/look.py"
COMPARE = loaded("plugins/filter/rdma_compare.py")

RAILS = [
    {"name": "rail0", "hca": "rocep1s0f1", "subnet": "192.168.177.0/24", "rate_gbit_s": 200},
    {"name": "rail1", "hca": "roceP2p1s0f1", "subnet": "192.168.178.0/24", "rate_gbit_s": 200},
]
WANTED: dict[str, Any] = {"rails": RAILS, "mtu": "9000", "gid_index": "3", "pfc_priorities": [3], "other_devices": []}
PORT = "sys/class/infiniband/roceP2p1s0f1/ports/1"


def look(root: Path) -> dict[str, Any]:
    """What the look script prints, run as the role runs it."""
    done = subprocess.run([sys.executable, str(LOOK), str(root)], capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def compare(facts: dict[str, Any], **wanted: Any) -> tuple[list[str], list[str]]:
    """(problems, found)."""
    said = COMPARE.rdma_compare(facts, {**WANTED, **wanted})
    return said["problems"], said["found"]


def test_rails_that_are_as_declared_have_no_problem_and_each_claim_names_device_and_port(tmp_path: Path) -> None:
    problems, found = compare(look(rdma_host(tmp_path)))
    assert problems == []
    text = "\n".join(found)
    assert "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1) is ACTIVE, LinkUp, Ethernet" in text
    assert "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1) runs at 200 Gb/s, as declared" in text
    assert "is in 192.168.178.0/24 with 192.168.178.1/24" in text
    assert "GID index 3 is RoCE v2 of 192.168.178.1" in text
    assert "flow control on priorities 3 (dcb or mlnx_qos, enP2p1s0f1np1)" in text


def swapped(root: Path) -> None:
    """The cables of the two rails are crossed: each interface has the other rail's address."""
    shutil.rmtree(root / "sys/class/infiniband")
    for (device, netdev, _), (_, _, address) in zip(SPARK_RAILS, reversed(SPARK_RAILS), strict=True):
        port(root, device, netdev, address)
    interfaces(
        root,
        [("enp1s0f1np1", "192.168.178.1/24", 9000, True), ("enP2p1s0f1np1", "192.168.177.1/24", 9000, True)],
    )


def unset_gids(root: Path) -> None:
    for index in (2, 3):
        put(root, f"{PORT}/gids/{index}", "0000:0000:0000:0000:0000:0000:0000:0000\n")


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a port is down": (
        lambda root: put(root, f"{PORT}/state", "1: DOWN\n"),
        "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1): expected ACTIVE and LinkUp, found DOWN and LinkUp",
    ),
    "a cable is out": (
        lambda root: put(root, f"{PORT}/phys_state", "2: Polling\n"),
        "expected ACTIVE and LinkUp, found ACTIVE and Polling\n  → no light on the cable",
    ),
    "a link trained at half its rate": (
        lambda root: put(root, f"{PORT}/rate", "100 Gb/sec (2X HDR)\n"),
        "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1): expected 200 Gb/s, found 100 Gb/s",
    ),
    "a rate in an unknown form": (
        lambda root: put(root, f"{PORT}/rate", "fast\n"),
        "/sys/class/infiniband/roceP2p1s0f1/ports/1/rate: 'fast' is no rate in Gb/sec",
    ),
    "a small MTU": (
        lambda root: put(root, "sys/class/net/enP2p1s0f1np1/mtu", "1500\n"),
        "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1): expected MTU 9000, found 1500",
    ),
    "a device is gone": (
        lambda root: shutil.rmtree(root / "sys/class/infiniband/roceP2p1s0f1"),
        "rail1: expected roceP2p1s0f1 port 1, found roceP2p1s0f0 port 1 (enP2p1s0f0np0) DOWN, rocep1s0f0 port 1",
    ),
    "no RDMA device at all": (
        lambda root: shutil.rmtree(root / "sys/class/infiniband"),
        "rail0: expected rocep1s0f1 port 1, found no RDMA device at all",
    ),
    "crossed rails": (
        swapped,
        ("rail0: rocep1s0f1 port 1 (enp1s0f1np1): expected an address in 192.168.177.0/24, found 192.168.178.1/24; "
        "enP2p1s0f1np1 has 192.168.177.1/24"),
    ),
    "a GID is missing": (
        unset_gids,
        "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1): expected GID index 3 of RoCE v2 over IPv4 in 192.168.178.0/24, found 0: IB/RoCE v1",
    ),
    "a GID is only of RoCE v1": (
        lambda root: put(root, f"{PORT}/gid_attrs/types/3", "IB/RoCE v1\n"),
        "expected GID index 3 of RoCE v2 over IPv4",
    ),
    "no flow control": (
        lambda root: rdma_host(root, pfc=()),
        "rail0: rocep1s0f1 port 1 (enp1s0f1np1): expected flow control on priorities 3, found none",
    ),
    "no tool for flow control": (
        lambda root: (root / "usr/sbin/dcb").unlink(),
        "expected flow control on priorities 3, found nothing: neither dcb nor mlnx_qos is there",
    ),
    "a port that nobody declared": (
        lambda root: port(root, "mlx5_7", "ens7", "10.0.0.1"),
        "mlx5_7 port 1 (ens7) is ACTIVE at 200 Gb/s and no rail is declared for it",
    ),
    "ip does not answer": (lambda root: (root / "usr/sbin/ip").unlink(), "ip -j -4 address show cannot be read: ip is not there"),
    "a state cannot be read": (lambda root: (root / PORT / "state").unlink(), "/sys/class/infiniband cannot be read: /sys/class/infiniband/roceP2p1s0f1/ports/1/state: No such file"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named_with_device_port_expected_and_found(tmp_path: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(rdma_host(tmp_path))
    problems, _ = compare(look(tmp_path))
    assert any(words in problem for problem in problems), problems
    assert all("→" in problem for problem in problems)


def test_a_host_without_declared_rails_proves_nothing(tmp_path: Path) -> None:
    problems, found = compare(look(rdma_host(tmp_path)), rails=[])
    assert "rdma_rails declares no rail, so that nothing can be proved" in problems[0]
    assert found == []


def test_a_rail_without_a_device_is_found_by_its_subnet(tmp_path: Path) -> None:
    facts = look(rdma_host(tmp_path))
    rails = [{key: value for key, value in rail.items() if key != "hca"} for rail in RAILS]
    problems, found = compare(facts, rails=rails)
    assert problems == []
    assert "rail1: roceP2p1s0f1 port 1 (enP2p1s0f1np1) is the port in 192.168.178.0/24" in found
    problems, _ = compare(facts, rails=[{**rails[0], "subnet": "192.168.179.0/24"}, rails[1]])
    assert "rail0: expected a port in 192.168.179.0/24, found" in problems[0]


def test_a_rail_that_names_nothing_and_two_rails_on_one_port_are_refused(tmp_path: Path) -> None:
    facts = look(rdma_host(tmp_path))
    problems, _ = compare(facts, rails=[{"name": "rail0"}, RAILS[1]])
    assert "rail0: neither hca nor subnet is declared" in problems[0]
    problems, _ = compare(facts, rails=[*RAILS, {**RAILS[1], "name": "rail2"}])
    assert "rail2: roceP2p1s0f1 port 1 (enP2p1s0f1np1) is rail1 already" in problems[0]


def test_storage_devices_may_be_in_service_without_being_rails(tmp_path: Path) -> None:
    port(rdma_host(tmp_path), "mlx5_7", "ens7", "10.0.0.1")
    problems, found = compare(look(tmp_path), other_devices=["mlx5_7"])
    assert problems == []
    assert "mlx5_7 port 1 (ens7) is ACTIVE and no rail (rdma_other_devices)" in found


def test_infiniband_has_no_gid_of_roce(tmp_path: Path) -> None:
    rdma_host(tmp_path)
    shutil.rmtree(tmp_path / "sys/class/infiniband")
    port(tmp_path, "mlx5_0", "ib0", "10.1.0.1", rate="400 Gb/sec (4X NDR)", link_layer="InfiniBand", mtu=4092)
    rail = {"name": "rail0", "hca": "mlx5_0", "rate_gbit_s": 400, "mtu": 4092}
    problems, found = compare(look(tmp_path), rails=[rail], pfc_priorities=[])
    assert problems == []
    assert not any("GID" in line for line in found)


@pytest.mark.parametrize(
    ("said", "priorities"),
    [
        ('{"pfc_cap":8,"prio_pfc":["off","off","off","on","off","off","off","off"]}', [3]),
        ('[{"pfc_cap":8,"prio_pfc":[false,false,false,true,true,false,false,false]}]', [3, 4]),
    ],
)
def test_dcb_is_read_in_the_forms_of_its_releases(tmp_path: Path, said: str, priorities: list[int]) -> None:
    put(rdma_host(tmp_path), "usr/sbin/dcb", f"#!/bin/sh\necho '{said}'\n", executable=True)
    assert look(tmp_path)["ports"]["value"][0]["pfc"]["value"] == priorities


def test_mlnx_qos_is_read_where_dcb_is_missing(tmp_path: Path) -> None:
    rdma_host(tmp_path, pfc=None)
    said = "PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0   \n"
    put(tmp_path, "usr/bin/mlnx_qos", f"#!/bin/sh\ncat <<'X'\n{said}X\n", executable=True)
    assert look(tmp_path)["ports"]["value"][0]["pfc"]["value"] == [3]
    put(tmp_path, "usr/bin/mlnx_qos", "#!/bin/sh\necho DCBX mode: OS controlled\n", executable=True)
    assert "has no row 'enabled'" in look(tmp_path)["ports"]["value"][0]["pfc"]["unknown"]
