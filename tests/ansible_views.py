"""Views of the rungs inventory and drift, from what a real lab answered (``golden/ansible``).

Recorded by the commands of the rungs' plans on a lab of three hosts with the small site in
``ansible_site``: clean, with three drifts made by hand, and with n2's link cut. Paths of the machine
are replaced. What was added to the documents since then is written into them as today's programs print it for the
same run: numbers of plays, what of a task is for real, what roles say of packages, and of the inventory only what
is kept of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rungs_harness import NONCE, planned, with_files
from slurm_views import SITE as SLURM
from slurm_views import ending
from surefoot.rungs.base import View
from surefoot.rungs.drift import RUNG as DRIFT
from surefoot.rungs.inventory import RUNG as INVENTORY

GOLDEN = Path(__file__).parent / "golden/ansible"
FOLDER = Path(__file__).parent / "ansible_site"
ANSIBLE: dict[str, Any] = {
    "site": str(FOLDER),
    "inventory": [str(FOLDER / "inventory"), str(FOLDER / "hosts.yml")],
    "python": "/usr/bin/python3",
}
GROUP: dict[str, Any] = {"name": "nodes", "count": 2, "hosts": "n[1-2]", "gpus_per_node": 0}
Edit = Callable[[dict[str, Any]], None]


def document(name: str) -> dict[str, Any]:
    """What a program printed on the lab, for this attempt and this checkout."""
    text = (GOLDEN / f"{name}.json").read_text().replace("NONCE", NONCE).replace("/srv/site", str(FOLDER))
    found: dict[str, Any] = json.loads(text)
    return found


def inventory_view(
    case: str = "good", *groups: dict[str, Any], edit: Edit | None = None, nodes: str | None = None, **ansible: Any
) -> View:
    """The inventory rung's evidence. `edit` changes the document, `nodes` is what scontrol said in its place."""
    said = document(f"look-{case}")
    if edit:
        edit(said)
    view = planned(
        INVENTORY, {}, Path("/shared"), node_groups=list(groups) or [GROUP], ansible={**ANSIBLE, **ansible}, **SLURM
    )
    start = said["hosts"]["started_at"]
    files = {"raw/look.stdout": json.dumps(said, indent=1).encode()}
    files["raw/nodes.stdout"] = (nodes or (GOLDEN / "nodes.txt").read_text()).encode()
    files["raw/config.stdout"] = (GOLDEN / "config.txt").read_bytes()
    return with_files(view, {**files, **_endings(("look", "nodes", "config"), start)})


def drift_view(
    case: str = "clean", edit: Edit | None = None, *, group: dict[str, Any] | None = None, **ansible: Any
) -> View:
    """The drift rung's evidence. `ansible`, `group`: of the cluster file, over what it says otherwise."""
    said = document(f"check-{case}")
    if edit:
        edit(said)
    site, groups = {**ANSIBLE, **ansible}, [{**GROUP, **(group or {})}]
    view = planned(DRIFT, {}, Path("/shared"), node_groups=groups, ansible=site, **SLURM)
    files = {"raw/check.stdout": json.dumps(said, indent=1).encode()}
    return with_files(view, {**files, **_endings(("check",), said["check"]["started_at"])})


def _endings(names: tuple[str, ...], start: float) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in names:
        files[f"raw/{name}.stderr"] = b""
        files[f"raw/{name}.exit.json"] = ending(start)
    return files


def events(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a playbook's answer."""
    return [json.loads(row) for row in answer["stdout"]]


def put(answer: dict[str, Any], changed: list[dict[str, Any]]) -> None:
    """Replace the events of a playbook's answer."""
    answer["stdout"] = [json.dumps(event) for event in changed]


def change_event(answer: dict[str, Any], change: Callable[[dict[str, Any]], None], **where: Any) -> None:
    """Change every event that has these values. There must be one."""
    found = events(answer)
    matching = [event for event in found if all(event.get(key) == value for key, value in where.items())]
    assert matching, where
    for event in matching:
        change(event)
    put(answer, found)


def change_totals(answer: dict[str, Any], host: str, **more: int) -> None:
    """Add to what Ansible counts for a host."""

    def add(event: dict[str, Any]) -> None:
        for name, figure in more.items():
            event["hosts"][host][name] += figure

    change_event(answer, add, event="stats")


def change_said(answer: dict[str, Any], host: str, change: Callable[[dict[str, Any]], None], task: str) -> None:
    """Change what a host answered: the JSON in a message."""

    def within(event: dict[str, Any]) -> None:
        said = json.loads(base64.b64decode(event["message"]))
        change(said)
        event["message"] = base64.b64encode(json.dumps(said).encode()).decode()

    change_event(answer, within, event="result", host=host, task=task, status="ok")
