"""Views of rungs on a Slurm site, from what a real lab answered (``golden/slurm/22.05.8-lab``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rungs_harness import NONCE, planned, with_files
from surefoot.rungs.base import Rung, View

GOLDEN = Path(__file__).parent / "golden/slurm/22.05.8-lab"
GROUP: dict[str, Any] = {"name": "nodes", "count": 2, "hosts": "n[1-2]", "gpus_per_node": 0}
SITE: dict[str, Any] = {
    "connection": {"kind": "ssh", "host": "lab-head"},
    "scheduler": {"kind": "slurm", "partition": "gpu"},
    "python": "/usr/bin/python3",
}


def site(rung: Rung[Any, Any], *groups: dict[str, Any], **asked: Any) -> View:
    """A plan for the lab, without evidence. `groups`: other node groups than n[1-2] without GPUs."""
    return planned(rung, asked, Path("/shared"), node_groups=list(groups) or [GROUP], **SITE)


def runner_document(case: str) -> dict[str, Any]:
    """What ``surefoot.node.runner`` printed on the lab's head, with this attempt's nonce."""
    text = (GOLDEN / f"runner-{case}.json").read_text().replace("NONCE", NONCE)
    document: dict[str, Any] = json.loads(text)
    return document


def ending(start: float, seconds: float = 1.0) -> bytes:
    """``<command>.exit.json`` of a command that ended with 0."""
    end = {"exit_code": 0, "signal": None, "timed_out": False, "started_at": start, "ended_at": start + seconds}
    return json.dumps(end).encode()


def answered(view: View, document: dict[str, Any]) -> View:
    """The view with this document as the runner's answer, in time, asked from another machine."""
    start = document["clock"] - 0.5
    return with_files(
        view,
        {
            "raw/here.stdout": b"my-laptop\n0123\n4567\n",
            "raw/here.stderr": b"",
            "raw/here.exit.json": ending(start - 1),
            "raw/runner.stdout": json.dumps(document, indent=1).encode(),
            "raw/runner.stderr": b"",
            "raw/runner.exit.json": ending(start),
        },
    )
