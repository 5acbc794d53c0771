"""What roles/nccl_tests builds with, and what came of it: plain words.

    facts | nccl_tests_toolchain(wanted)    {"problems": […], "found": […], "report": "…"}
    facts | nccl_tests_compare(sm)          the same, of what was built for ``sm_90``

`facts` is what ``roles/nccl_tests/files/look.py`` printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_ADVICE = {
    "nvcc": "install the CUDA compiler (cuda-nvcc), or correct nccl_tests_cuda_home",
    "nccl": "install libnccl-dev, or name the folder that has include/nccl.h: nccl_tests_nccl_home",
    "mpi": "install libopenmpi-dev, or name the folder that has include/mpi.h: nccl_tests_mpi_home",
    "make": "add make to nccl_tests_packages",
    "compiler": "add g++ to nccl_tests_packages",
    "compute_capability": "mend the driver (role nvidia), or declare nccl_tests_compute_capability",
}


def _said(problems: list[str], found: list[str]) -> dict[str, Any]:
    report = [f"of {len(problems) + len(found)} claims {len(problems)} do not hold:", *problems]
    return {"problems": problems, "found": found, "report": "\n".join(report)}


def nccl_tests_toolchain(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a build needs is there, and NCCL is of the version that is declared."""
    problems: list[str] = []
    found: list[str] = []
    for name, advice in _ADVICE.items():
        fact = facts.get(name) or {"unknown": "not looked at", "from": name}
        if "unknown" in fact:
            problems.append(f"{name}: {fact['unknown']} ({fact['from']})\n  → {advice}")
        elif name == "compute_capability" and len(fact["value"]) != 1:
            problems.append(
                f"{name}: this host has GPUs of {', '.join(fact['value'])} ({fact['from']})"
                "\n  → declare the one to build for: nccl_tests_compute_capability"
            )
        else:
            found.append(
                f"{name} {fact['value'] if isinstance(fact['value'], str) else fact['value'][0]} ({fact['from']})"
            )
    declared = str(wanted["nccl_version"])
    nccl = facts.get("nccl", {}).get("value") or ""
    if declared and nccl and nccl.split(".")[: len(declared.split("."))] != declared.split("."):
        problems.append(
            f"nccl: found {nccl} (nccl.h), nccl_tests_nccl_version declares {declared}"
            "\n  → the tests should measure the NCCL that training uses: install it, or correct the declaration"
        )
    return _said(problems, found)


def nccl_tests_compare(facts: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """The programs start, are linked with NCCL and MPI of this host, and hold code for its GPUs."""
    problems: list[str] = []
    found: list[str] = []
    again = "remove the folder and run the role again: it is built anew"
    if "unknown" in facts["record"]:
        problems.append(f"{facts['record']['from']}: {facts['record']['unknown']}\n  → {again}")
    for name, fact in facts["usage"].items():
        if "unknown" in fact:
            problems.append(f"{name} does not start: {fact['unknown']}\n  → {again}")
        else:
            found.append(f"{name} starts: {fact['value']}")
    if not facts["usage"]:
        problems.append(f"no program was looked at\n  → {again}")
    _libraries(facts["libraries"], problems, found)
    fact = facts["architectures"]
    if "unknown" in fact:
        found.append(f"architectures not known: {fact['unknown']}; built with -gencode for {architecture}")
    elif architecture in fact["value"]:
        found.append(f"holds code for {architecture} ({fact['from']})")
    else:
        problems.append(
            f"holds code for {', '.join(fact['value']) or 'no GPU'}, and this host's GPU is {architecture} "
            f"({fact['from']})\n  → {again}"
        )
    return _said(problems, found)


def _libraries(fact: Mapping[str, Any], problems: list[str], found: list[str]) -> None:
    if "unknown" in fact:
        problems.append(f"libraries: {fact['unknown']} ({fact['from']})\n  → what is not known is not passed")
        return
    for wanted, why in (
        ("libnccl.so", "NCCL is part of the program, and cannot be the host's"),
        ("libmpi.so", "it was built without MPI, and would run as many single tests side by side"),
    ):
        rows = {name: place for name, place in fact["value"].items() if name.startswith(wanted)}
        if not rows:
            problems.append(f"{wanted} is not linked: {why} ({fact['from']})\n  → build it again, with MPI=1")
        for name, place in rows.items():
            if place.startswith("not found"):
                problems.append(
                    f"{name} is not found on this host ({fact['from']})\n  → install it where it was at the build, or build again"
                )
            else:
                found.append(f"{name} is {place}")


class FilterModule:
    """As Ansible finds filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"nccl_tests_toolchain": nccl_tests_toolchain, "nccl_tests_compare": nccl_tests_compare}
