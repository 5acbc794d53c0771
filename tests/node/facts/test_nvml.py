"""NVML by ctypes against a library with its interface: what is asked, and what a refusal becomes.

The library here is a stand-in, compiled from a few lines of C: no driver runs where these tests do.
The same code asked real ones (docs/log.md).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.node.facts import fact, gpus, nvml

pytestmark = pytest.mark.slow  # a compiler runs

SOURCE = r"""
#include <string.h>
typedef void *dev;
static const char *words[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported"};
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code < 4 ? words[code] : "Unknown Error"; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { strncpy(b, "580.159.04", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13010; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev *d) { *d = (dev)(long)(i + 1); return 0; }
int nvmlDeviceGetName(dev d, char *b, unsigned n) { strncpy(b, "NVIDIA H200", n); return 0; }
int nvmlDeviceGetUUID(dev d, char *b, unsigned n) { strncpy(b, d == (dev)1 ? "GPU-a" : "GPU-b", n); return 0; }
struct pci { char old[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(dev d, struct pci *p) { p->domain = 0; p->bus = 0x1b + (long)d; p->device = 0; return 0; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(dev d, struct memory *m) { m->total = 1ull << 37; return d == (dev)1 ? 0 : 3; }
int nvmlDeviceGetRemappedRows(dev d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) { *c = 1; *u = 2; *p = 1; *f = 0; return 0; }
int nvmlDeviceGetTotalEccErrors(dev d, int kind, int counter, unsigned long long *n) { *n = kind * 10 + counter; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(dev d, unsigned long long *r) { *r = 0x1 | 0x40 | 0x4000; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(dev d, unsigned *w) { *w = 16; return d == (dev)1 ? 0 : 15; }
int nvmlDeviceGetNvLinkState(dev d, unsigned link, unsigned *s) { *s = link != 2; return link < 4 ? 0 : 2; }
int nvmlDeviceGetEnforcedPowerLimit(dev d, unsigned *w) { *w = 700000; return 0; }
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(dev d, unsigned *n, struct process *p) {
    if (d != (dev)1) { *n = 0; return 0; }
    if (*n < 2) { *n = 2; return 7; }
    p[0].pid = 42; p[1].pid = 7; *n = 2; return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: apt-get install gcc"
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, folder / "nvml.c"], check=True)
    return target


@pytest.fixture
def listed(library: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, dict[str, object]]]:
    monkeypatch.setattr(nvml, "LIBRARY", str(library))
    return gpus.gpus()


def test_every_gpu_is_told_with_its_facts(listed: list[dict[str, dict[str, object]]]) -> None:
    first = listed[0]
    assert [gpu["uuid"]["value"] for gpu in listed] == ["GPU-a", "GPU-b"]
    assert first["pci_bus_id"] == {"value": "0000:1c:00.0"}
    assert first["memory_bytes"] == {"value": 1 << 37}
    assert first["remapped_rows"] == {"value": {"correctable": 1, "uncorrectable": 2, "pending": 1, "failed": 0}}
    assert first["ecc_uncorrected_volatile"] == {"value": 10}
    assert first["ecc_corrected_aggregate"] == {"value": 1}
    assert first["clock_reasons"] == {"value": ["idle", "hardware thermal slowdown", "0x4000"]}
    assert first["nvlinks"] == {"value": [True, True, False, True]}
    assert first["power_limit_w"] == {"value": 700.0}
    assert first["processes"] == {"value": [7, 42]}
    assert listed[1]["processes"] == {"value": []}


def test_what_a_driver_refuses_is_unknown_in_its_own_words(listed: list[dict[str, dict[str, object]]]) -> None:
    second = listed[1]
    assert second["memory_bytes"] == {"value": None, "unknown": "NvmlError: nvmlDeviceGetMemoryInfo: Not Supported"}
    assert "GPU is lost" in str(second["pcie_width"]["unknown"])


def test_a_function_that_an_old_driver_lacks_is_unknown_too(listed: list[dict[str, dict[str, object]]]) -> None:
    assert listed[0]["fabric"]["value"] is None
    assert "nvmlDeviceGetGpuFabricInfo" in str(listed[0]["fabric"]["unknown"])


def test_versions_of_driver_and_cuda(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", str(library))
    assert gpus.driver_versions() == {"driver": "580.159.04", "cuda": "13.1"}


def test_a_node_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-nvml.so.1")
    answer = fact(gpus.gpus)
    assert answer["value"] is None
    assert "libno-such-nvml.so.1" in answer["unknown"]


class Silent:
    """A GPU of which the driver tells nothing; of its third link, that the GPU is lost."""

    def number(self, name: str, *which: int) -> int:
        if name == "NvLinkState" and which[0] < 2:
            return 1
        raise nvml.NvmlError(f"nvmlDeviceGet{name}: GPU is lost", 15)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object) -> None:
            raise nvml.NvmlError(f"{name}: GPU is lost", 15)

        return refuse


def test_a_gpu_that_does_not_tell_where_it_is_leaves_every_fact_unknown() -> None:
    told = gpus.gpu_facts(Silent())  # type: ignore[arg-type]
    assert {name for name, one in told.items() if "unknown" not in one} == set()
    assert "PCI address is not known: NvmlError: pci_bus_id: GPU is lost" in told["numa_node"]["unknown"]


def test_links_of_a_gpu_that_was_lost_among_them_are_not_fewer_links() -> None:
    with pytest.raises(nvml.NvmlError, match="GPU is lost"):
        nvml.Gpu.nvlinks(Silent())  # type: ignore[arg-type]
