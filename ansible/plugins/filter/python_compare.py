"""The interpreter that roles/python_runtime found on a host, against the one that is declared.

    facts | python_compare(wanted)      {"problems": […], "found": […], "report": "…"}

`facts` is what ``roles/python_runtime/files/look.py`` printed; `wanted`: ``python``, ``version``, ``minimum``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_ADVICE = {
    "version": "install that interpreter there, or name one that every node has: python_runtime_python, and python: in the cluster file",
    "venv": "install it: python3-venv in python_runtime_packages (Debian, Ubuntu)",
    "pip": "install ensurepip or a pip from 22.3 on: python3-venv in python_runtime_packages (Debian, Ubuntu)",
}


def python_compare(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Every claim with what shows it, and every mismatch with what to do."""
    problems: list[str] = []
    found: list[str] = []
    for name, advice in _ADVICE.items():
        fact = facts.get(name) or {"unknown": "not looked at", "from": name}
        if "unknown" in fact:
            problems.append(f"{wanted['python']}: {name}: {fact['unknown']} ({fact['from']})\n  → {advice}")
        elif name == "version":
            _version(fact, wanted, problems, found)
        else:
            found.append(f"{wanted['python']} has {fact['value']}")
    report = [f"of {len(problems) + len(found)} claims {len(problems)} do not hold:", *problems]
    return {"problems": problems, "found": found, "report": "\n".join(report)}


def _version(fact: Mapping[str, Any], wanted: Mapping[str, Any], problems: list[str], found: list[str]) -> None:
    version, declared, minimum = fact["value"], str(wanted["version"]), str(wanted["minimum"])
    if declared and version.split(".")[: len(declared.split("."))] != declared.split("."):
        problems.append(
            f"{wanted['python']}: found {version} ({fact['from']}), python_runtime_version declares {declared}\n  → "
            "nodes whose versions differ are different kinds of node, each with an environment of its own: "
            "install the declared one, or correct python_runtime_version"
        )
    elif _numbers(version) < _numbers(minimum):
        problems.append(
            f"{wanted['python']}: found {version} ({fact['from']}), jobs need {minimum} or newer "
            f"(python_runtime_minimum)\n  → {_ADVICE['version']}"
        )
    else:
        found.append(f"{wanted['python']} is {version}" + (f", as declared ({declared})" if declared else ""))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


class FilterModule:
    """As Ansible finds filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"python_compare": python_compare}
