"""The Ansible site of a cluster file: its paths are made absolute, and what is not there is told with its line."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Any

from surefoot.config.explain import Problem
from surefoot.config.yaml_source import At


def ansible_problems(data: dict[str, Any], folder: Path) -> list[Problem]:
    """Make the paths of ``ansible`` absolute; relative ones are below `folder`, the cluster file's own. Changes `data`."""
    asked = data.get("ansible")
    if not isinstance(asked, dict):
        return []
    problems: list[Problem] = []
    site = asked.get("site")
    if isinstance(site, str) and site:
        place = _absolute(site, folder)
        asked["site"] = str(place)
        playbook = asked.get("playbook", "site.yml")
        names = ["ansible.cfg", *([playbook] if isinstance(playbook, str) and playbook else [])]
        missing = [name for name in names if not (place / name).is_file()]
        if missing:
            what = (
                f"{place} has no {' and no '.join(missing)}; allowed: the folder where ansible.cfg and the playbook lie"
            )
            problems.append(Problem(("ansible", "site"), what))
    found = asked.get("inventory")
    inventories: list[Any] = found if isinstance(found, list) else []
    for index, path in enumerate(inventories):
        if not isinstance(path, str) or not path:
            continue
        at: At = ("ansible", "inventory", index)
        if path.rstrip().endswith(","):
            problems.append(Problem(at, f"'{path}' is a list of hosts; allowed: the path of a file or folder"))
            continue
        place = _absolute(path, folder)
        inventories[index] = str(place)
        if not place.exists():
            problems.append(Problem(at, f"{place} does not exist; allowed: the path of an inventory file or folder"))
    python = asked.get("python")
    if isinstance(python, str) and "/" in python:
        asked["python"] = str(_absolute(python, folder))
    return problems


def _absolute(path: str, folder: Path) -> Path:
    """Without looking at the disk: symbolic links stay, ``..`` goes."""
    return Path(os.path.normpath(folder / Path(path).expanduser()))
