"""Facts of nodes as the probe reports them, for tests that need another node than this one."""

from __future__ import annotations

from typing import Any


def known(value: Any) -> dict[str, Any]:
    """A fact that could be read."""
    return {"value": value}


def unknown(reason: str) -> dict[str, Any]:
    """A fact that could not."""
    return {"value": None, "unknown": reason}


H200: dict[str, Any] = {
    "name": "NVIDIA H200", "serial": "1653824017311", "numa_node": 0, "cpus": "0-31", "memory_bytes": 150754820096,
    "vbios": "96.00.A5.00.1A", "ecc": {"current": True, "pending": True}, "ecc_corrected_volatile": 0,
    "ecc_corrected_aggregate": 0, "ecc_uncorrected_volatile": 0, "ecc_uncorrected_aggregate": 0,
    "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": 0, "failed": 0}, "sm_clock_mhz": 345,
    "sm_clock_max_mhz": 1980, "memory_clock_mhz": 3201, "memory_clock_max_mhz": 3201, "clock_reasons": ["idle"],
    "temperature_c": 32, "power_limit_w": 700.0, "power_limit_default_w": 700.0, "pcie_generation": 5,
    "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16, "pcie_replays": 0, "nvlinks": [True] * 18,
    "fabric": "completed", "mig": {"current": False, "pending": False}, "persistence": True, "compute_mode": "default",
    "processes": [],
}  # fmt: skip
"""What NVML 580.159.04 said of an idle H200 (recorded; only NUMA, which that virtual machine hid, is made up)."""


def gpu(number: int, /, **other: Any) -> dict[str, Any]:
    """An H200 in the form in which the probe reports it. `other`: facts with another value, or as `unknown` makes them."""
    facts = {name: known(value) for name, value in H200.items()}
    facts |= {"uuid": known(f"GPU-{number}"), "pci_bus_id": known(f"0000:{0x10 + number:02x}:00.0")}
    for name, value in other.items():
        if name not in facts:
            raise KeyError(name)
        facts[name] = value if isinstance(value, dict) and "unknown" in value else known(value)
    return facts
