"""Trees in the form of /sys that tests write: network interfaces, and RDMA devices as mlx5 shows them.

The form: Documentation/ABI/stable/sysfs-class-infiniband and ABI/testing/sysfs-class-net of the kernel.
Names and values of the ConnectX-7: what ``ibstat`` prints on a GB10 (geerlingguy/sbc-reviews#92: MT4129,
28.45.4028, ``Rate: 200``; of a port without a cable ``Physical state: Disabled``, ``Rate: 40``), and
mlx5's counters as node_exporter's pull request 2827 lists them. ``N/A (no PMA)``: node_exporter#966 (i40iw).
"""

from __future__ import annotations

from pathlib import Path

COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors",
    "port_rcv_packets", "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error",
)  # fmt: skip
HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "np_cnp_sent",
    "np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error",
    "rnr_nak_retry_err", "roce_adp_retrans", "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated",
)  # fmt: skip
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def link(file: Path, target: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def pci_device(sysfs: Path, address: str, driver: str) -> Path:
    """A device on the bus, with its driver."""
    device = sysfs / "devices" / "pci0000:00" / address
    if not device.exists():
        link(device / "driver", sysfs / "bus" / "pci" / "drivers" / driver)
        link(device / "subsystem", sysfs / "bus" / "pci")
        write(device / "numa_node", "0")
    return device


def interface(sysfs: Path, name: str, index: int, *, pci: str = "", driver: str = "", speed: str = "") -> Path:
    """An interface; one without `pci` is virtual, one without `speed` refuses to tell it."""
    folder = sysfs / "class" / "net" / name
    write(folder / "ifindex", str(index))
    write(folder / "uevent", f"INTERFACE={name}\nIFINDEX={index}")
    for counter in ("rx_errors", "tx_errors", "rx_dropped", "rx_crc_errors", "rx_bytes", "tx_bytes"):
        write(folder / "statistics" / counter, "0")
    if speed:
        write(folder / "speed", speed)
    else:
        (folder / "speed").mkdir()  # reading it is an OSError, as the kernel's EINVAL is
    if pci:
        link(folder / "device", pci_device(sysfs, pci, driver))
    return folder


def hca(
    sysfs: Path,
    name: str,
    pci: str,
    *,
    netdev: str = "",
    ipv4: str = "",
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    rate: str = "200 Gb/sec (2X NDR)",
) -> Path:
    """An RDMA device of one port: RoCE on `netdev`, or InfiniBand."""
    device = pci_device(sysfs, pci, "mlx5_core")
    folder = sysfs / "class" / "infiniband" / name
    link(folder / "device", device)
    for file, text in {
        "hca_type": "MT4129", "fw_ver": "28.45.4028", "board_id": "NVD0000000087", "node_guid": "fc4c:ea03:00f9:4231",
        "node_type": "1: CA", "sys_image_guid": "fc4c:ea03:00f9:4230",
    }.items():  # fmt: skip
        write(folder / file, text)
    port = folder / "ports" / "1"
    for file, text in {
        "state": state, "phys_state": physical, "rate": rate, "lid": "0x0" if netdev else "0x11",
        "sm_lid": "0x0" if netdev else "0x1", "link_layer": "Ethernet" if netdev else "InfiniBand",
    }.items():  # fmt: skip
        write(port / file, text)
    local = "fe80:0000:0000:0000:fe4c:eaff:fef9:4231"
    table = [(local, "IB/RoCE v1"), (local, "RoCE v2")]
    if ipv4:
        mapped = "0000:0000:0000:0000:0000:ffff:" + "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, ipv4.split(".")))
        table += [(mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
    for index in range(8):
        write(port / "gids" / str(index), table[index][0] if index < len(table) else NO_GID)
        if index < len(table):
            write(port / "gid_attrs" / "types" / str(index), table[index][1])
            if netdev:
                write(port / "gid_attrs" / "ndevs" / str(index), netdev)
    for counter in COUNTERS:
        write(port / "counters" / counter, "0")
    for counter in HW_COUNTERS:
        write(port / "hw_counters" / counter, "12" if counter == "lifespan" else "0")
    return folder
