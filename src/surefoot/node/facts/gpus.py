"""Facts of each GPU, by NVML and sysfs. Standard library only."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

from surefoot.node.facts import Fact, fact, nvml

PCI_DEVICES = Path("/sys/bus/pci/devices")
KERNEL_LOG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


def gpus() -> list[dict[str, Fact]]:
    """Every GPU that this process may see. Raises OSError, NvmlError where the driver can't be asked."""
    with nvml.driver() as driver:
        return [gpu_facts(gpu) for gpu in driver.gpus()]


def driver_versions() -> dict[str, str]:
    """``{"driver": "580.95.05", "cuda": "13.0"}``. Raises as `gpus`."""
    with nvml.driver() as driver:
        return {"driver": driver.version(), "cuda": driver.cuda_version()}


def gpu_facts(gpu: nvml.Gpu) -> dict[str, Fact]:
    """Clocks in MHz, power in W, temperature in °C, memory in bytes; counts as NVML counts them."""
    now_pending = ("current", "pending")
    address = fact(gpu.pci_bus_id)
    return {
        "name": fact(lambda: gpu.text("Name")),
        "uuid": fact(lambda: gpu.text("UUID")),
        "serial": fact(lambda: gpu.text("Serial")),
        "pci_bus_id": address,
        "numa_node": fact(lambda: numa_node(_known(address))),
        "cpus": fact(lambda: local_cpus(_known(address))),
        "memory_bytes": fact(gpu.memory_bytes),
        "vbios": fact(lambda: gpu.text("VbiosVersion")),
        "ecc": fact(lambda: _named(gpu.numbers("EccMode", 2), now_pending, bool)),
        "ecc_corrected_volatile": fact(lambda: gpu.ecc_errors(nvml.CORRECTED, nvml.VOLATILE)),
        "ecc_corrected_aggregate": fact(lambda: gpu.ecc_errors(nvml.CORRECTED, nvml.AGGREGATE)),
        "ecc_uncorrected_volatile": fact(lambda: gpu.ecc_errors(nvml.UNCORRECTED, nvml.VOLATILE)),
        "ecc_uncorrected_aggregate": fact(lambda: gpu.ecc_errors(nvml.UNCORRECTED, nvml.AGGREGATE)),
        "remapped_rows": fact(
            lambda: _named(gpu.numbers("RemappedRows", 4), ("correctable", "uncorrectable", "pending", "failed"), int)
        ),
        "sm_clock_mhz": fact(lambda: gpu.number("ClockInfo", nvml.SM)),
        "sm_clock_max_mhz": fact(lambda: gpu.number("MaxClockInfo", nvml.SM)),
        "memory_clock_mhz": fact(lambda: gpu.number("ClockInfo", nvml.MEMORY)),
        "memory_clock_max_mhz": fact(lambda: gpu.number("MaxClockInfo", nvml.MEMORY)),
        "clock_reasons": fact(gpu.reasons),
        "temperature_c": fact(lambda: gpu.number("Temperature", 0)),
        "power_limit_w": fact(lambda: gpu.number("EnforcedPowerLimit") / 1000),
        "power_limit_default_w": fact(lambda: gpu.number("PowerManagementDefaultLimit") / 1000),
        "pcie_generation": fact(lambda: gpu.number("CurrPcieLinkGeneration")),
        "pcie_generation_max": fact(lambda: gpu.number("MaxPcieLinkGeneration")),
        "pcie_width": fact(lambda: gpu.number("CurrPcieLinkWidth")),
        "pcie_width_max": fact(lambda: gpu.number("MaxPcieLinkWidth")),
        "pcie_replays": fact(lambda: gpu.number("PcieReplayCounter")),
        "nvlinks": fact(gpu.nvlinks),
        "fabric": fact(gpu.fabric),
        "mig": fact(lambda: _named(gpu.numbers("MigMode", 2), now_pending, bool)),
        "persistence": fact(lambda: bool(gpu.number("PersistenceMode"))),
        "compute_mode": fact(lambda: nvml.COMPUTE_MODES[gpu.number("ComputeMode")]),
        "processes": fact(gpu.processes),
    }


def _known(address: Fact) -> str:
    """Raises LookupError where the driver did not tell it."""
    if address["value"] is None:
        raise LookupError(f"its PCI address is not known: {address['unknown']}")
    return str(address["value"])


def _named(values: tuple[int, ...], names: tuple[str, ...], kind: type) -> dict[str, Any]:
    # not zip(strict=True): the prolog runs this under Python 3.9, too
    return {name: kind(values[index]) for index, name in enumerate(names)}


def numa_node(address: str, devices: Path = PCI_DEVICES) -> int:
    """NUMA node next to a PCI device. Raises LookupError where the firmware does not say."""
    node = int((devices / address / "numa_node").read_text())
    if node < 0:
        raise LookupError(f"numa_node of {address} is {node}: the firmware does not say which is near")
    return node


def local_cpus(address: str, devices: Path = PCI_DEVICES) -> str:
    """CPUs next to a PCI device, as the kernel lists them: ``0-47,96-143``."""
    return (devices / address / "local_cpulist").read_text().strip()


def xids() -> dict[str, list[int]]:
    """PCI address → the driver's Xid errors since boot, oldest first, from the kernel's log.

    Raises PermissionError where users may not read it (``kernel.dmesg_restrict``), which is common.
    The log is a ring: errors that it has lost since boot are not known to be lost.
    """
    found: dict[str, list[int]] = {}
    log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(log, 8192).decode(errors="replace")
            except OSError as e:
                if e.errno == errno.EPIPE:
                    continue  # overwritten while it was read; the next record follows
                if e.errno == errno.EAGAIN:
                    return found
                raise
            if not record:
                return found
            if match := _XID.search(record):
                found.setdefault(match[1].lower(), []).append(int(match[2]))
    finally:
        os.close(log)
