"""NICs and networks in NCCL's log: ports, devices made of several, what was chosen."""

from __future__ import annotations

import pytest

from nccl_written import golden, info
from surefoot.benchmarks.nccl_log import read_log
from surefoot.benchmarks.nccl_log_lines import Process, read_lines
from surefoot.benchmarks.nccl_log_net import Networks, networks
from surefoot.errors import EvidenceError


def found(*messages: str) -> Networks:
    return networks(read_lines({"log": "".join(map(info, messages))}).lines)[Process("n1", 7)]


@pytest.mark.parametrize(
    ("using", "ports", "oob"),
    [
        # ROCm/rccl#419; NVIDIA/nccl-tests#185; h100 logs with IBext_v6; NVIDIA/nccl#302
        (" [0]mlx5_3:1/IB [1]mlx5_2:1/IB ; OOB ib0:11.5.5.50<0>", ["mlx5_3:1", "mlx5_2:1"], "ib0"),
        (" [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB enp220s0np0:11.1.128.136<0>", ["mlx5_10:1", "mlx5_11:1"], "enp220s0np0"),
        (" [0]mlx5_1:1/IB/SHARP [1]mlx5_2:1/IB/SHARP [RO]; OOB ens7:172.27.32.104<0>", ["mlx5_1:1", "mlx5_2:1"], "ens7"),
        (" [0]mlx4_0:1/IB [1]mlx4_0:2/IB [RO]", ["mlx4_0:1", "mlx4_0:2"], None),
        (" [0]mlx5_bond_0:1/RoCE [RO]; ", ["mlx5_bond_0:1"], None),
        (" [0]bnxt_re0:1/RoCE [RO]; OOB ib0:fe80::ba59:9f03:fc:765c%ib0<0>", ["bnxt_re0:1"], "ib0"),
        (" [RO]; OOB eth0:192.0.2.2<0>", [], "eth0"),  # ours: no device
        # 2.30, from reading: rail, rail and plane, plane alone
        (" [0]mlx5_0:1:3/IB [1]mlx5_1:1:4:1/IB [2]mlx5_2:1::2/IB [RO]; OOB ib0:10.0.0.1<0>", ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"], "ib0"),
    ],
)  # fmt: skip
def test_every_form_of_the_list_of_nics_is_read(using: str, ports: list[str], oob: str | None) -> None:
    row = found(f"NET/IB : Using{using}")
    assert [nic.name for nic in row.adapters[0].nics] == ports
    assert [interface.name for interface in row.oob] == ([] if oob is None else [oob])
    assert row.ports("IB") == {number: (port,) for number, port in enumerate(ports)}


def test_rail_plane_link_and_sharp_are_kept() -> None:
    row = found("NET/IB : Using [0]a:1:3/IB/SHARP [1]b:1:4:1/RoCE [2]c:1::2/IB ; OOB ib0:10.0.0.1<0>")
    nics = row.adapters[0].nics
    assert [(nic.link, nic.sharp, nic.rail, nic.plane) for nic in nics] == [
        ("IB", True, 3, None),
        ("RoCE", False, 4, 1),
        ("IB", False, None, 2),
    ]


def test_ports_made_one_in_the_list_itself_are_one_device() -> None:
    # public log with IBext_v8; after a merged one a plain one is counted by its place, not by its own number
    row = found(
        "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [2]mlx5_0:1/RoCE [RO]; OOB bond0.526:169.136.106.9<0>"
    )
    assert row.ports("IBext_v8") == {0: ("mlx5_2:1", "mlx5_3:1"), 1: ("mlx5_0:1",)}
    assert row.available("IBext_v8") == ("mlx5_2:1", "mlx5_3:1", "mlx5_0:1")


PORTS = "NET/IB : Using [0]mlx5_1:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"


@pytest.mark.parametrize(
    "virtual",
    [
        "NET/IB : Made virtual device [2] name=mlx5_1+mlx5_3 speed=200000 ndevs=2 rail=-1 plane=16385",  # 2.30.7, public
        "NET/IB : Made virtual device [2] name=mlx5_1+mlx5_3 speed=200000 ndevs=2",  # 2.26 to 2.29
    ],
)
def test_ports_made_one_later_are_a_device_after_the_ports(virtual: str) -> None:
    single = "NET/IB : Made virtual device [0] name=mlx5_1 speed=100000 ndevs=1"
    row = found(single, PORTS, virtual)
    assert row.ports("IB") == {0: ("mlx5_1:1",), 1: ("mlx5_3:1",), 2: ("mlx5_1:1", "mlx5_3:1")}
    assert [made.index for made in row.virtual] == [0, 2]


def test_two_ports_of_one_name_are_told_apart_and_a_device_whose_names_do_not_fit_is_unknown() -> None:
    two = "NET/IB : Using [0]mlx4_0:1/IB [1]mlx4_0:2/IB [RO]"
    assert found(two, "NET/IB : Made virtual device [2] name=mlx4_0+mlx4_0 speed=80000 ndevs=2").ports("IB")[2] == (
        "mlx4_0:1",
        "mlx4_0:2",
    )
    for names, count in (("mlx4_0", 2), ("mlx4_0+mlx9_0", 2), ("mlx4_0", 1)):
        made = f"NET/IB : Made virtual device [2] name={names} speed=80000 ndevs={count}"
        assert 2 not in found(two, made).ports("IB")


def test_lists_that_contradict_leave_every_device_unknown() -> None:
    assert found(PORTS, PORTS).ports("IB") != {}
    assert found(PORTS, "NET/IB : Using [0]mlx5_9:1/RoCE [RO]").ports("IB") == {}


@pytest.mark.parametrize(
    ("message", "name", "address"),
    [
        ("Bootstrap : Using eth0:10.0.0.7<0>", "eth0", "10.0.0.7"),  # NVIDIA/nccl#952
        ("Bootstrap: Using enm0:172.16.249.128<0>", "enm0", "172.16.249.128"),  # NVIDIA/nccl#1804
        ("Bootstrap : Using [0]ib8:192.168.1.8<0> [1]ib9:192.168.1.9<0>", "ib8", "192.168.1.8"),  # NVIDIA/nccl#707
        ("Bootstrap : Using ib0:fe80::ba59:9f03:fc:765c%ib0<0>", "ib0", "fe80::ba59:9f03:fc:765c%ib0"),
    ],
)
def test_the_bootstraps_interface_is_read(message: str, name: str, address: str) -> None:
    (interface,) = found(message).bootstrap
    assert (interface.name, interface.address) == (name, address)


@pytest.mark.parametrize("name", ["IB", "Socket", "IBext_v8", "AWS Libfabric", "NCCL RDMA Plugin v10"])
def test_the_network_chosen_may_have_blanks(name: str) -> None:
    assert [chosen.name for chosen in found(f"Using network {name}").chosen] == [name]


@pytest.mark.parametrize(
    ("message", "provider", "nics"),
    [
        ("NET/OFI Selected Provider is efa (found 4 nics)", "efa", 4),
        ("NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)", "efa", 32),
        ("NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "tcp;ofi_rxm", 1),
    ],
)
def test_libfabrics_provider_and_its_nics_are_read(message: str, provider: str, nics: int) -> None:
    row = found(message)
    assert [(chosen.name, chosen.nics) for chosen in row.providers] == [(provider, nics)]
    assert len(row.ports("AWS Libfabric")) == nics
    assert row.available("Libfabric")[0] == "nic 0"


def test_a_real_machine_without_infiniband_says_so() -> None:
    for name, interface in (("p2p.out", "eth0"), ("stamps.out", "eth0")):
        for row in read_log(golden(name)).networks.values():
            assert [chosen.name for chosen in row.chosen] == ["Socket"]
            assert [found.name for found in row.bootstrap] == [interface]
            assert row.ports("Socket") == {0: ("eth0",)}
            assert row.available("IB") == ()
            assert row.missing
    assert not read_log(golden("stamps.out")).networks[Process("vm", 642)].oob


def test_words_on_direct_access_are_kept() -> None:
    row = found(
        "GPU Direct RDMA Disabled for GPU 2 / HCA 0 (distance 5 > 4)",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'rocep1s0f0'",
    )
    assert [note.enabled for note in row.direct] == [False, True, True]


@pytest.mark.parametrize(
    "message",
    [
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:",
        "NET/IB : Using [0]mlx5_0:1/IB [0]mlx5_1:1/IB [RO]",
        "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3 [RO]; OOB eth0:10.0.0.1<0>",
        "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3} [RO]; OOB eth0:10.0.0.1<0>",
        "NET/IB : Made virtual device [2] name=mlx5_1+ml",
        "NET/Socket : Using [0]eth0:10.",
        "Bootstrap : Using eth",
        "Using network ",
        "NET/OFI Selected Provider is efa (fou",
    ],
)
def test_a_torn_line_about_nics_is_an_error(message: str) -> None:
    with pytest.raises(EvidenceError, match="log:1: "):
        found(message)


def test_a_list_of_nics_at_a_cut_is_an_error_even_where_it_looks_whole() -> None:
    with pytest.raises(EvidenceError, match="not whole"):
        networks(read_lines({"log": info("Using network IB").rstrip("\n")}).lines)
