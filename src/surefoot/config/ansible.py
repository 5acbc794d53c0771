"""The Ansible site of a cluster file: its paths are made absolute, and what is not there is told with its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from surefoot.config.explain import Problem
from surefoot.config.places import absolute, shown
from surefoot.config.yaml_source import At
from surefoot.model.cluster import PLAYBOOK

_SITE = "allowed: the folder where ansible.cfg and the playbook lie"
_INVENTORY = "allowed: the path of an inventory file or folder"


def ansible_problems(data: dict[str, Any], folder: Path) -> list[Problem]:
    """Make the paths of ``ansible`` absolute; relative ones are below `folder`, the cluster file's own. Changes `data`."""
    asked = data.get("ansible")
    if not isinstance(asked, dict):
        return []
    problems: list[Problem] = []
    site = asked.get("site")
    if isinstance(site, str) and site:
        place = absolute(site, folder)
        asked["site"] = str(place)
        playbook = asked.get("playbook", "site.yml")
        well_named = isinstance(playbook, str) and re.fullmatch(PLAYBOOK, playbook)
        names = ["ansible.cfg", *([playbook] if well_named else [])]  # another is told at its own key
        wrong = _site_problem(place, names)
        if wrong:
            problems.append(Problem(("ansible", "site"), f"{shown(place)} {wrong}; {_SITE}"))
    found = asked.get("inventory")
    inventories: list[Any] = found if isinstance(found, list) else []
    for index, path in enumerate(inventories):
        if not isinstance(path, str) or not path:
            continue
        at: At = ("ansible", "inventory", index)
        if path.rstrip().endswith(","):
            problems.append(Problem(at, f"{path!r} is a list of hosts; allowed: the path of a file or folder"))
            continue
        place = absolute(path, folder)
        inventories[index] = str(place)
        wrong = _missing(place)
        if wrong:
            problems.append(Problem(at, f"{shown(place)} {wrong}; {_INVENTORY}"))
    python = asked.get("python")
    if isinstance(python, str) and "/" in python:
        asked["python"] = str(absolute(python, folder))
    return problems


def _site_problem(place: Path, names: list[str]) -> str:
    """What is wrong with the site's folder; empty where the files are there."""
    wrong = _missing(place)
    if wrong:
        return wrong
    if not place.is_dir():
        return "is a file"
    missing = [shown(name) for name in names if not _file_is_there(place / name)]
    return f"has no {' and no '.join(missing)}" if missing else ""


def _missing(place: Path) -> str:
    if re.search(r"\$[\w{]", str(place)):
        return "holds a $NAME: Ansible would put that variable's value there, Surefoot does not"
    try:
        return "" if place.exists() else "does not exist"
    except OSError as error:  # not allowed to look, or no name that a file can have
        return f"cannot be looked at: {error.strerror or error}"


def _file_is_there(place: Path) -> bool:
    try:
        return place.is_file()
    except OSError:
        return False
