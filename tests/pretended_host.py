"""Root folders that look like GPU hosts to the look scripts of roles/nvidia and roles/rdma: pretended, not measured.

The forms are those of the kernel's files and of the tools (nvidia-smi's XML, ``ip -j``, ``dcb -j``); the values are
those of a DGX Spark as docs name them, and of an HGX machine with eight GPUs and four NVSwitches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

DRIVER = "580.159.04"


def put(root: Path, name: str, text: str, *, executable: bool = False) -> Path:
    """A file below the root."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if executable:
        path.chmod(0o755)
    return path


def nvidia_host(
    root: Path, *, gpus: int = 8, model: str = "NVIDIA H200", switches: int = 4, driver: str = DRIVER
) -> Path:
    """A host with GPUs, its driver, nvidia-smi, DCGM, CUDA 13.0 and services of systemd."""
    put(
        root,
        "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder@U22-I3)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
    )
    put(root, "proc/sys/kernel/osrelease", "6.8.0-85-generic\n")
    for module in ("nvidia", "nvidia_uvm", "nvidia_peermem"):
        put(root, f"sys/module/{module}/version", f"{driver}\n")
    for index in range(gpus):
        put(root, f"sys/bus/pci/devices/0000:{16 + index:02x}:00.0/vendor", "0x10de\n")
        put(root, f"sys/bus/pci/devices/0000:{16 + index:02x}:00.0/class", "0x030200\n")
    for index in range(switches):
        put(root, f"sys/bus/pci/devices/0000:{64 + index:02x}:00.0/vendor", "0x10de\n")
        put(root, f"sys/bus/pci/devices/0000:{64 + index:02x}:00.0/class", "0x068000\n")
    put(root, "sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n")
    put(root, "sys/bus/pci/devices/0000:00:00.0/class", "0x060000\n")
    fabric = ("Completed", "Success") if switches else ("N/A", "N/A")
    put(root, "smi.xml", smi(gpus=gpus, model=model, driver=driver, fabric=fabric))
    put(root, "usr/bin/nvidia-smi", '#!/bin/sh\ncat "${0%/usr/bin/*}/smi.xml"\n', executable=True)
    put(root, "usr/bin/dcgmi", "#!/bin/sh\necho\necho 'dcgmi  version: 4.2.3'\n", executable=True)
    put(root, "usr/local/cuda-13.0/lib64/libcudart.so.13.0.88", "")
    units(root, {"nvidia-persistenced": "active", "nvidia-fabricmanager": "active", "nvidia-dcgm": "active"})
    return root


def smi(
    *,
    gpus: int,
    model: str = "NVIDIA H200",
    driver: str = DRIVER,
    persistence: str = "Enabled",
    fabric: tuple[str, str] = ("Completed", "Success"),
    processes: Sequence[int] = (),
) -> str:
    """What ``nvidia-smi -q -x`` prints, as far as it is read."""
    pids = "".join(f"<process_info><pid>{pid}</pid></process_info>" for pid in processes)
    rows = "".join(
        f'\t<gpu id="00000000:{16 + index:02X}:00.0">\n\t\t<product_name>{model}</product_name>\n'
        f"\t\t<persistence_mode>{persistence}</persistence_mode>\n\t\t<uuid>GPU-{index:08d}</uuid>\n"
        f"\t\t<fabric>\n\t\t\t<state>{fabric[0]}</state>\n\t\t\t<status>{fabric[1]}</status>\n\t\t</fabric>\n"
        f"\t\t<processes>{pids}</processes>\n\t</gpu>\n"
        for index in range(gpus)
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>{driver}</driver_version>\n\t<cuda_version>13.0</cuda_version>\n"
        f"\t<attached_gpus>{gpus}</attached_gpus>\n{rows}</nvidia_smi_log>\n"
    )


def units(root: Path, active: dict[str, str]) -> None:
    """What ``systemctl show`` says of services: those that are named, and no other."""
    cases = "".join(
        f"  *{name}.service) echo LoadState=loaded; echo ActiveState={state}; echo UnitFileState=enabled ;;\n"
        for name, state in sorted(active.items(), key=lambda item: -len(item[0]))
    )
    missing = "  *) echo LoadState=not-found; echo ActiveState=inactive; echo UnitFileState= ;;\n"
    put(root, "usr/bin/systemctl", f'#!/bin/sh\ncase "$*" in\n{cases}{missing}esac\n', executable=True)


SPARK_RAILS = (
    ("rocep1s0f1", "enp1s0f1np1", "192.168.177.1"),
    ("roceP2p1s0f1", "enP2p1s0f1np1", "192.168.178.1"),
)
"""RDMA device, network interface and address of each rail of a Spark."""
SPARK_IDLE = (("rocep1s0f0", "enp1s0f0np0"), ("roceP2p1s0f0", "enP2p1s0f0np0"))
"""The adapter's other ports, which have no cable."""


def rdma_host(root: Path, *, mtu: int = 9000, pfc: Sequence[int] | None = (3,)) -> Path:
    """The network of a Spark: two rails in service, two ports without a cable, a management interface."""
    faces = [("lo", "127.0.0.1/8", 65536, True), ("enP7s7", "192.168.1.11/24", 1500, True)]
    for device, netdev, address in SPARK_RAILS:
        port(root, device, netdev, address, mtu=mtu)
        faces.append((netdev, f"{address}/24", mtu, True))
    for device, netdev in SPARK_IDLE:
        port(root, device, netdev, "", state="1: DOWN", phys="3: Disabled", rate="40 Gb/sec (4X QDR)", mtu=1500)
        faces.append((netdev, "", 1500, False))
    interfaces(root, faces)
    if pfc is not None:
        states = json.dumps([number in pfc for number in range(8)])
        said = f'[{{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":{states}}}]'
        put(root, "usr/sbin/dcb", f"#!/bin/sh\necho '{said}'\n", executable=True)
    return root


def interfaces(root: Path, faces: Sequence[tuple[str, str, int, bool]]) -> None:
    """What ``ip -j -4 address show`` says: (name, address/prefix, mtu, up); older releases print {} without an address."""
    rows: list[dict[str, object]] = []
    for name, address, mtu, up in faces:
        if not address:
            rows.append({})
            continue
        local, prefix = address.split("/")
        flags = ["BROADCAST", *(["UP", "LOWER_UP"] if up else [])]
        info = [{"family": "inet", "local": local, "prefixlen": int(prefix), "scope": "global"}]
        rows.append({"ifname": name, "flags": flags, "mtu": mtu, "addr_info": info})
    put(root, "ip.json", json.dumps(rows))
    put(root, "usr/sbin/ip", '#!/bin/sh\ncat "${0%/usr/sbin/*}/ip.json"\n', executable=True)


def port(
    root: Path,
    device: str,
    netdev: str,
    address: str,
    *,
    state: str = "4: ACTIVE",
    phys: str = "5: LinkUp",
    rate: str = "200 Gb/sec (4X HDR)",
    mtu: int = 9000,
    link_layer: str = "Ethernet",
) -> None:
    """One RDMA device with one port, and its table of GIDs as RoCE fills it: v1 and v2, link-local and IPv4."""
    folder = f"sys/class/infiniband/{device}/ports/1"
    for name, text in (("state", state), ("phys_state", phys), ("rate", rate), ("link_layer", link_layer)):
        put(root, f"{folder}/{name}", text + "\n")
    put(root, f"sys/class/infiniband/{device}/fw_ver", "28.45.4028\n")
    put(root, f"sys/class/infiniband/{device}/device/net/{netdev}/dev_port", "0\n")
    put(root, f"sys/class/net/{netdev}/mtu", f"{mtu}\n")
    local = "fe80:0000:0000:0000:4ebb:47ff:fe2a:0001"
    entries = [(local, "IB/RoCE v1"), (local, "RoCE v2")]
    if address:
        octets = [int(part) for part in address.split(".")]
        mapped = f"0000:0000:0000:0000:0000:ffff:{octets[0]:02x}{octets[1]:02x}:{octets[2]:02x}{octets[3]:02x}"
        entries += [(mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
    for index in range(6):
        gid, kind = entries[index] if index < len(entries) else ("0000:0000:0000:0000:0000:0000:0000:0000", "")
        put(root, f"{folder}/gids/{index}", gid + "\n")
        if kind:  # of an empty entry the kernel says EINVAL
            put(root, f"{folder}/gid_attrs/types/{index}", kind + "\n")
            put(root, f"{folder}/gid_attrs/ndevs/{index}", netdev + "\n")


Damage = Callable[[Path], object]
"""Breaks something in a pretended host."""
