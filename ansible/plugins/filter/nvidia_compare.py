"""What roles/nvidia found on a host, against what the inventory declares: plain words, no default that passes.

Filters:

    facts | nvidia_compare(wanted)      {"problems": […], "found": […], "report": "…"}
    stdout | nvidia_driver_changes      what `apt-get --simulate` would do to the driver's packages

`facts` is what ``roles/nvidia/files/look.py`` printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_DRIVER_PACKAGE = re.compile(
    r"(lib)?nvidia-(driver|kernel|dkms|open|headless|utils|compute|firmware|modprobe|gl|cfg|decode|encode|extra|fbc|ml|ptxjitcompiler)"
    r"|libcuda1|libnvcuvid|linux-(modules|objects|signatures)-nvidia|cuda-drivers|xserver-xorg-video-nvidia"
)
"""Packages that are the driver or one of its libraries (Debian's, Ubuntu's and NVIDIA's names)."""

_SIMULATED = re.compile(r"(?P<what>Inst|Remv|Purg) (?P<name>\S+)(?: \[(?P<now>[^\]]*)\])?(?: \((?P<new>\S+))?")


class UnknownError(Exception):
    """A fact that a claim needs could not be found out."""


@dataclass
class Claims:
    """Facts of a host, what is wanted, and what came of the comparison."""

    facts: Mapping[str, Mapping[str, Any]]
    wanted: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """A fact's value. Raises UnknownError with the reason."""
        fact = self.facts.get(name)
        if fact is None:
            raise UnknownError(f"{name} was not looked at")
        if "unknown" in fact:
            raise UnknownError(f"{fact['from']} cannot be read: {fact['unknown']}")
        return fact["value"]

    def source(self, name: str) -> str:
        return str(self.facts[name]["from"])

    def version(self, what: str, found: str, variable: str, source: str, advice: str) -> None:
        """`found` against the version that the variable declares; as many parts count as are declared."""
        declared = str(self.wanted[variable])
        if not declared:
            self.found.append(f"{what} {found} ({source}); nvidia_{variable} declares none")
        elif found.split(".")[: len(declared.split("."))] == declared.split("."):
            self.found.append(f"{what} {found}, as declared ({source})")
        else:
            self.problems.append(
                f"{what}: found {found} ({source}), nvidia_{variable} declares {declared}\n  → {advice}"
            )

    def judge(self, ok: bool, found: str, problem: str, advice: str) -> None:
        if ok:
            self.found.append(found)
        else:
            self.problems.append(f"{problem}\n  → {advice}")


def nvidia_compare(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Every claim with what shows it, and every mismatch with what to do."""
    claims = Claims(facts, wanted)
    for name, check in _CLAIMS.items():
        try:
            check(claims)
        except UnknownError as error:
            claims.problems.append(f"{name}: {error}\n  → {_advice_unknown(name)}")
    return {"problems": claims.problems, "found": claims.found, "report": _report(claims)}


def _report(claims: Claims) -> str:
    """One line that counts, then each problem."""
    total = len(claims.problems) + len(claims.found)
    return "\n".join([f"of {total} claims {len(claims.problems)} do not hold:", *claims.problems])


def _advice_unknown(name: str) -> str:
    if name == "GPUs":
        return (
            "`nvidia-smi` on the host says more; a 'Driver/library version mismatch' ends with a reboot of the host "
            "(drain it first), 'No devices were found' is explained by `dmesg | grep -i nvrm`"
        )
    return "find out on the host why; what is not known is not passed"


def _driver(claims: Claims) -> None:
    found = claims.value("driver")
    manage = claims.wanted["manage_driver"]
    if found is None:
        claims.problems.append(
            f"driver: none is loaded ({claims.source('driver')} is not there)\n  → "
            + (
                "reboot the host if packages were just installed (drain it first); else `dmesg | grep -i nvidia`"
                if manage
                else "install it, or let this role do so: nvidia_manage_driver: true with nvidia_driver_packages"
            )
        )
        return
    advice = (
        "the packages are there, the old module is still loaded: drain the host and reboot it"
        if manage
        else "correct nvidia_driver_version, or let this role change the driver: nvidia_manage_driver: true"
    )
    claims.version("driver", found["version"], "driver_version", claims.source("driver"), advice)


def _gpus(claims: Claims) -> None:
    smi, bus, wanted = claims.value("smi"), claims.value("bus"), claims.wanted
    driver = claims.value("driver")
    if driver is not None:
        claims.judge(
            smi["driver"] == driver["version"],
            f"nvidia-smi speaks to the driver that is loaded, {smi['driver']}",
            f"driver: {driver['version']} is loaded, and the host's libraries are of {smi['driver']}",
            "drain the host and reboot it: packages were changed under a running driver",
        )
    listed = {_address(gpu["pci"]) for gpu in smi["gpus"]}
    missing = [address for address in bus["gpus"] if _address(address) not in listed]
    claims.judge(
        not missing,
        f"GPUs: all {len(bus['gpus'])} of the PCI bus answer to nvidia-smi",
        f"GPUs: {len(bus['gpus'])} on the PCI bus, {len(listed)} in nvidia-smi; missing: {', '.join(missing)}",
        "`dmesg | grep -i -e NVRM -e Xid` on the host says why; drain it until it is mended",
    )
    names = sorted({gpu["name"] for gpu in smi["gpus"]})
    declared = str(wanted["gpus_per_node"])
    claims.judge(
        bool(listed) and declared in ("", str(len(listed))),
        f"GPUs: {len(listed)} × {', '.join(names)} (nvidia-smi -q -x)"
        + ("" if declared else "; no number is declared"),
        f"GPUs: found {len(listed)} (nvidia-smi -q -x), nvidia_gpus_per_node declares {declared or 'at least one'}",
        "correct the number in the inventory, or mend the host",
    )
    model = wanted["gpu_model"]
    others = [name for name in names if model and model not in name]
    claims.judge(
        not others,
        f"GPU model: {', '.join(names)}" + (f", as declared ({model})" if model else "; none is declared"),
        f"GPU model: found {', '.join(others)}, nvidia_gpu_model declares a name with {model} in it",
        "put the host into the group of its own kind, or correct nvidia_gpu_model",
    )


def _address(text: str) -> str:
    """PCI address as it is compared: nvidia-smi writes the domain with eight digits and in capitals."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _persistence(claims: Claims) -> None:
    if not claims.wanted["persistence_mode"]:
        claims.found.append("persistence mode: nvidia_persistence_mode does not ask for it")
        return
    off = [gpu["pci"] for gpu in claims.value("smi")["gpus"] if gpu["persistence"] != "Enabled"]
    claims.judge(
        not off,
        "persistence mode is on for every GPU (nvidia-smi -q -x)",
        f"persistence mode: off on {', '.join(off)}; the first rank of every job then waits for the GPU to wake up",
        "nvidia-persistenced is missing or not running: add it to nvidia_packages, or see its journal",
    )


def _fabric(claims: Claims) -> None:
    bus = claims.value("bus")
    asked = str(claims.wanted["fabric_manager"]).lower()
    needed = bool(bus["switches"]) if asked == "auto" else asked == "true"
    states = {(gpu["fabric_state"], gpu["fabric_status"]) for gpu in claims.value("smi")["gpus"]}
    if needed:
        unit = claims.value("units").get("nvidia-fabricmanager")
        claims.judge(
            unit is not None and unit["active"] == "active",
            f"fabric manager is active, for {len(bus['switches'])} NVSwitches",
            f"fabric manager: {'is not installed' if unit is None else 'is ' + unit['active']}, and this host has "
            f"{len(bus['switches'])} NVSwitches: CUDA does not start without it",
            "add nvidia-fabricmanager of exactly the driver's version to nvidia_packages, "
            "or see `journalctl -u nvidia-fabricmanager`",
        )
    elif asked == "auto":
        claims.found.append(f"fabric manager: not needed, there is no NVSwitch ({claims.source('bus')})")
    bad = sorted(f"{state}, {status}" for state, status in states if (state, status) not in _FABRIC_GOOD)
    claims.judge(
        not bad,
        f"NVLink fabric: {', '.join(sorted(state for state, _ in states)) or 'no GPU'} (nvidia-smi -q -x)",
        f"NVLink fabric: state {'; '.join(bad)}; expected Completed with Success, or N/A where there is none",
        "see `nvidia-smi -q | grep -A3 Fabric` and the journal of nvidia-fabricmanager",
    )


_FABRIC_GOOD = {("Completed", "Success"), ("N/A", "N/A"), ("Not Supported", "N/A")}


def _cuda(claims: Claims) -> None:
    declared, found = str(claims.wanted["cuda_version"]), claims.value("runtimes")
    listed = ", ".join(f"{one['version']} ({one['path']})" for one in found) or "none"
    if not declared:
        claims.found.append(f"CUDA runtime: {listed}; nvidia_cuda_version declares none")
        return
    parts = declared.split(".")
    claims.judge(
        any(one["version"].split(".")[: len(parts)] == parts for one in found),
        f"CUDA runtime {declared} is there: {listed}",
        f"CUDA runtime: found {listed}, nvidia_cuda_version declares {declared}; looked for {claims.source('runtimes')}",
        "add cuda-cudart of that version to nvidia_packages, or correct nvidia_cuda_version",
    )
    newest = claims.value("smi")["cuda"]
    if newest:
        claims.judge(
            int(newest.split(".")[0]) >= int(parts[0]),
            f"the driver supports CUDA up to {newest}",
            f"CUDA: the driver supports CUDA up to {newest}, nvidia_cuda_version declares {declared}",
            "a newer driver, or an older CUDA",
        )


def _dcgm(claims: Claims) -> None:
    found = claims.value("dcgm")
    if found is not None:
        claims.version(
            "DCGM",
            found,
            "dcgm_version",
            claims.source("dcgm"),
            "pin datacenter-gpu-manager in nvidia_packages, or correct nvidia_dcgm_version",
        )
    elif claims.wanted["dcgm_version"]:
        claims.problems.append(
            f"DCGM: there is no dcgmi on the host, nvidia_dcgm_version declares {claims.wanted['dcgm_version']}"
            "\n  → add datacenter-gpu-manager to nvidia_packages, or leave nvidia_dcgm_version empty"
        )
    else:
        claims.found.append("DCGM: not there, and none is declared")
    if claims.wanted["dcgm_version"]:
        known = claims.value("units")
        active = [name for name in ("nvidia-dcgm", "dcgm") if known.get(name, {}).get("active") == "active"]
        claims.judge(
            bool(active),
            f"DCGM's service {' '.join(active)} is active",
            "DCGM: its service is not active (nvidia-dcgm, dcgm)",
            "`systemctl status nvidia-dcgm` on the host says why",
        )


def _gpudirect(claims: Claims) -> None:
    asked = claims.wanted["gpudirect"]
    if asked in ("", "none"):
        claims.found.append("GPUDirect RDMA: nvidia_gpudirect " + ("says none" if asked else "declares nothing"))
        return
    ways, why = [], []
    for way, look in (("peermem", _peermem), ("dma_buf", _dma_buf)):
        if asked in (way, "any"):
            try:
                ways.append(look(claims))
            except UnknownError as error:
                why.append(str(error))
    claims.judge(
        bool(ways),
        f"GPUDirect RDMA: {'; '.join(ways)}",
        f"GPUDirect RDMA: nvidia_gpudirect declares {asked}; {'; '.join(why)}",
        "peermem: load nvidia_peermem (nvidia_manage_driver: true does, after the RDMA driver); dma_buf: open kernel "
        "modules and Linux 5.12; a GPU that shares the CPU's memory (GB10) has neither: nvidia_gpudirect: none",
    )


def _peermem(claims: Claims) -> str:
    found, driver = claims.value("modules"), claims.value("driver")
    if "nvidia_peermem" not in found:
        raise UnknownError("nvidia_peermem is not loaded (/sys/module)")
    version = found["nvidia_peermem"]
    if driver is not None and version and version != driver["version"]:
        raise UnknownError(f"nvidia_peermem is of {version}, the driver of {driver['version']}")
    return f"nvidia_peermem {version} is loaded (/sys/module)"


def _dma_buf(claims: Claims) -> str:
    devices, release = claims.value("cuda")["devices"], claims.value("kernel")
    without = [device["name"] for device in devices if not device["dma_buf"]]
    if without or not devices:
        raise UnknownError(f"the CUDA driver says that it has no dma-buf for {', '.join(without) or 'no GPU at all'}")
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None or (int(match[1]), int(match[2])) < (5, 12):
        raise UnknownError(f"Linux {release} is older than 5.12, which dma-buf with RDMA needs")
    return f"dma-buf for all {len(devices)} GPUs (CUDA's own word), Linux {release}"


_CLAIMS: dict[str, Callable[[Claims], None]] = {
    "driver": _driver,
    "GPUs": _gpus,
    "persistence mode": _persistence,
    "fabric": _fabric,
    "CUDA runtime": _cuda,
    "DCGM": _dcgm,
    "GPUDirect RDMA": _gpudirect,
}


def nvidia_driver_changes(simulated: str) -> list[str]:
    """Packages of the driver that apt would install, change or remove, from what ``apt-get --simulate`` printed.

    ``Inst nvidia-driver-580-open [575.57.08-1] (580.159.04-1 NVIDIA:…)``, ``Remv libcuda1 [575.57.08-1]``
    """
    changes: list[str] = []
    for line in simulated.splitlines():
        match = _SIMULATED.match(line)
        if match and _DRIVER_PACKAGE.match(match["name"]):
            what = "remove" if match["what"] in ("Remv", "Purg") else "install"
            new = f" {match['new']}" if match["new"] else ""
            now = f" (now {match['now']})" if match["now"] else ""
            changes.append(f"{what} {match['name']}{new}{now}")
    return changes


class FilterModule:
    """As Ansible finds filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"nvidia_compare": nvidia_compare, "nvidia_driver_changes": nvidia_driver_changes}
