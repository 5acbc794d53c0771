"""The environment of a cluster file: its lock is read with it, so that the record holds all that will be built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.config.explain import Problem
from surefoot.config.places import absolute
from surefoot.config.yaml_source import At
from surefoot.model.lock import parse_lock

_LOCK: At = ("environment", "lock")
_MOST_SHOWN = 8


def environment_problems(data: dict[str, Any], folder: Path) -> list[Problem]:
    """Read the lock into ``environment.requirements``, and make its paths absolute. Changes `data` in place.

    Relative paths are below `folder`, the cluster file's own. A problem of the lock names the lock's line.
    """
    asked = data.get("environment")
    if not isinstance(asked, dict):
        return []
    problems: list[Problem] = []
    if "requirements" in asked:
        del asked["requirements"]
        at: At = ("environment", "requirements")
        problems.append(Problem(at, "is read from the lock; allowed: lock: FILE, and no requirements"))
    wheels = asked.get("wheels")
    if isinstance(wheels, str) and wheels and not wheels.startswith("/"):
        if _away(data):
            what = f"'{wheels}' is relative; on other machines it must be absolute, and all nodes must see it"
            problems.append(Problem(("environment", "wheels"), what))
        else:
            asked["wheels"] = str(absolute(wheels, folder))
    lock = asked.get("lock")
    if not isinstance(lock, str) or not lock:
        return problems  # told by its type
    path = absolute(lock, folder)
    asked["lock"] = str(path)
    requirements, wrong = _read(path)
    asked["requirements"] = requirements
    return problems + [Problem(_LOCK, what) for what in wrong]


def _read(path: Path) -> tuple[list[str], list[str]]:
    """(requirements, what is wrong, each with file and line)."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        return [], [f"{path}: cannot be read: {error.strerror or error}; allowed: a file of NAME==VERSION lines"]
    except ValueError:
        return [], [f"{path}: not UTF-8; allowed: a file of NAME==VERSION lines"]
    pins, problems = parse_lock(text)
    wrong = [f"{path}:{problem.line}: {problem.what}" for problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        wrong.append(f"{path}: and {len(problems) - _MOST_SHOWN} lines more that pin nothing")
    return [pin.text for pin in pins], wrong


def _away(data: dict[str, Any]) -> bool:
    """Nodes are other machines than this one."""
    kinds = [data.get(key) for key in ("connection", "scheduler")]
    return any(isinstance(kind, dict) and kind.get("kind", "local") != "local" for kind in kinds)
