"""NVML by ctypes: what the driver says of its GPUs, without torch, nvidia-smi or a package from PyPI.

Names, structures and enumerations are those of ``nvml.h`` (NVML API reference, version 11 and later).
A call that the driver refuses raises `NvmlError` with the driver's own words ("Not Supported").
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
INSUFFICIENT_SIZE = 7
NO_SUCH_LINK = (2, 3)
"""``NVML_ERROR_INVALID_ARGUMENT``, ``NVML_ERROR_NOT_SUPPORTED``: how the driver says that a GPU has no further link."""
VOLATILE, AGGREGATE = 0, 1
CORRECTED, UNCORRECTED = 0, 1
GRAPHICS, SM, MEMORY = 0, 1, 2
MOST_NVLINKS = 18
COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")

REASONS = {
    0x1: "idle",
    0x2: "clocks set by applications",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
"""``nvmlClocksEventReason*``: why clocks are below what they could be."""


class NvmlError(RuntimeError):
    """The driver, or its library, refused; the text is NVML's own. `code`: nvmlReturn_t, 0 where there is none."""

    def __init__(self, text: str, code: int = SUCCESS) -> None:
        super().__init__(text)
        self.code = code


class _Pci(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Fabric(ctypes.Structure):
    _fields_ = (
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class Gpu:
    """One GPU. Every method raises NvmlError where the driver refuses, AttributeError where it is too old."""

    def __init__(self, library: ctypes.CDLL, index: int) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        _call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._handle))

    def text(self, name: str) -> str:
        """What ``nvmlDeviceGet<name>`` writes into a buffer."""
        buffer = ctypes.create_string_buffer(128)
        self._get(name, buffer, len(buffer))
        return buffer.value.decode()

    def number(self, name: str, *which: int) -> int:
        """What ``nvmlDeviceGet<name>(device, *which, &number)`` gives; units as in its documentation."""
        value = ctypes.c_uint()
        self._get(name, *which, ctypes.byref(value))
        return value.value

    def numbers(self, name: str, count: int) -> tuple[int, ...]:
        """What ``nvmlDeviceGet<name>(device, &a, &b, …)`` gives: mode now and pending, rows remapped."""
        values = [ctypes.c_uint() for _ in range(count)]
        self._get(name, *(ctypes.byref(value) for value in values))
        return tuple(value.value for value in values)

    def ecc_errors(self, kind: int, counter: int) -> int:
        """Memory errors: CORRECTED or UNCORRECTED; VOLATILE (since the driver was loaded) or AGGREGATE (ever)."""
        value = ctypes.c_ulonglong()
        self._get("TotalEccErrors", kind, counter, ctypes.byref(value))
        return value.value

    def reasons(self) -> list[str]:
        """Why clocks are held down now; empty: they are not."""
        value = ctypes.c_ulonglong()
        self._get("CurrentClocksThrottleReasons", ctypes.byref(value))
        unknown = value.value & ~sum(REASONS)
        return [text for bit, text in REASONS.items() if value.value & bit] + ([hex(unknown)] if unknown else [])

    def pci_bus_id(self) -> str:
        """As sysfs writes it: ``0000:1b:00.0``."""
        pci = _Pci()
        self._get("PciInfo_v3", ctypes.byref(pci))
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

    def memory_bytes(self) -> int:
        """Memory of the GPU's own; GPUs that share the host's have none (Not Supported)."""
        memory = _Memory()
        self._get("MemoryInfo", ctypes.byref(memory))
        return int(memory.total)

    def processes(self) -> list[int]:
        """Process ids that compute on it now, as far as this namespace may see them."""
        count = ctypes.c_uint(0)
        call: Callable[..., int] = self._library.nvmlDeviceGetComputeRunningProcesses_v3
        code = call(self._handle, ctypes.byref(count), None)
        while code == INSUFFICIENT_SIZE:
            found = (_Process * (count.value + 4))()  # some may start in between
            count = ctypes.c_uint(len(found))
            code = call(self._handle, ctypes.byref(count), found)
            if code == SUCCESS:
                return sorted(process.pid for process in found[: count.value])
        _check(self._library, code, "nvmlDeviceGetComputeRunningProcesses_v3")
        return []

    def nvlinks(self) -> list[bool]:
        """State of each link, in order: True where it is up. Empty: this GPU has none. Raises NvmlError for one that is not told."""
        states = []
        for link in range(MOST_NVLINKS):
            try:
                states.append(bool(self.number("NvLinkState", link)))
            except NvmlError as error:
                if error.code not in NO_SUCH_LINK:
                    raise  # the GPU is lost, say
                break
        return states

    def fabric(self) -> str:
        """Whether the GPU is registered with the fabric of NVSwitches: one of `FABRIC_STATES`."""
        info = _Fabric()
        self._get("GpuFabricInfo", ctypes.byref(info))
        state = FABRIC_STATES[info.state]
        return state if not info.status else f"{state}, status {info.status}"

    def _get(self, name: str, *arguments: Any) -> None:
        _call(self._library, f"nvmlDeviceGet{name}", self._handle, *arguments)


class Driver:
    """The driver of this node."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def version(self) -> str:
        """Of the kernel's driver."""
        buffer = ctypes.create_string_buffer(96)
        _call(self._library, "nvmlSystemGetDriverVersion", buffer, len(buffer))
        return buffer.value.decode()

    def cuda_version(self) -> str:
        """Newest CUDA that the driver supports: ``13.0``."""
        value = ctypes.c_int()
        _call(self._library, "nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(value))
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def gpus(self) -> list[Gpu]:
        """Every GPU that this process may see, in NVML's order (by PCI address)."""
        count = ctypes.c_uint()
        _call(self._library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [Gpu(self._library, index) for index in range(count.value)]


@contextmanager
def driver() -> Iterator[Driver]:
    """NVML, loaded and started. Raises OSError where the library is not there, NvmlError where it cannot reach a driver."""
    library = ctypes.CDLL(LIBRARY)
    library.nvmlErrorString.restype = ctypes.c_char_p
    _call(library, "nvmlInit_v2")
    try:
        yield Driver(library)
    finally:
        library.nvmlShutdown()


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    _check(library, getattr(library, function)(*arguments), function)


def _check(library: ctypes.CDLL, code: int, function: str) -> None:
    if code != SUCCESS:
        raise NvmlError(f"{function}: {library.nvmlErrorString(code).decode()}", code)
