"""What the pre-check found for this node (interface, rails, GID index), put into a rank's environment. Standard library only.

``request.json`` holds, as ``environment``, node → variable → value; None where no pre-check stands below.
To be called before torch joins a process group: NCCL and Gloo read these variables once.
"""

from __future__ import annotations

import os
from typing import Any

from surefoot.node.probe import own_node
from surefoot.node.rank import Rank, say


def take_environment(rank: Rank) -> dict[str, Any]:
    """Set what was found for this node, but for what is set already: a pin wins. For the report, as ``network``:

    ``source``: ``precheck``, or None where there is none. ``node``: this one, as the scheduler calls it.
    ``set``: what was set. ``kept``: what was found too, and was set before, with the value that it had and keeps.
    """
    environment: dict[str, dict[str, str]] | None = rank.request["environment"]
    found = (environment or {}).get(own_node(), {})
    kept = {name: os.environ[name] for name in found if name in os.environ}
    taken = {name: value for name, value in found.items() if name not in kept}
    os.environ.update(taken)
    if rank.rank == 0:
        say(f"network: {_told(environment is not None, taken, kept)}")
    return {"source": None if environment is None else "precheck", "node": own_node(), "set": taken, "kept": kept}


def _told(asked: bool, taken: dict[str, str], kept: dict[str, str]) -> str:
    """One line for the job's log."""
    if not asked:
        return "no pre-check stands below; libraries choose interface and rails by themselves"
    parts = [f"{name}={value} as the pre-check found" for name, value in taken.items()]
    parts += [f"{name}={value} as it was set before" for name, value in kept.items()]
    return ", ".join(parts) or "the pre-check found nothing for this node"
