"""NVIDIA GPUs on the PCI bus, as the kernel lists them whether or not a driver works. Standard library only."""

from __future__ import annotations

from pathlib import Path

DEVICES = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAY = ("0x0300", "0x0302")
"""PCI classes of GPUs: VGA controller and 3D controller. A GPU's audio and USB functions have others."""
GIVEN_AWAY = ("vfio-pci", "pci-stub")
"""Drivers that hold a device for a virtual machine: this system cannot use it."""


def gpus_on_bus(devices: Path = DEVICES) -> list[str]:
    """PCI addresses of the NVIDIA GPUs that this system should be able to use. A system without PCI has none.

    Raises OSError where the kernel's list cannot be read.
    """
    if not devices.exists() and devices.parent.parent.is_dir():
        return []  # /sys/bus is there, and no PCI in it
    found = []
    for entry in sorted(devices.iterdir()):
        vendor, kind = ((entry / name).read_text().strip() for name in ("vendor", "class"))
        driver = entry / "driver"
        held = driver.is_symlink() and driver.readlink().name in GIVEN_AWAY
        if vendor == NVIDIA and kind.startswith(DISPLAY) and not held:
            found.append(entry.name)
    return found
