"""Ranks of which nothing came back: what Slurm says of their tasks, and whether their node sees the job's folder. Pure.

A rank's own word is a file in the job's folder. On a node that has another file system there, or may not
write to it, no rank can leave one; only srun and slurmstepd, whose lines the first node keeps, tell of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TASK = re.compile(r"srun: error: ([^\s:]+): tasks? [\d,-]+: (Exited with exit code \d+)")
"""The task that ended by itself; of those that srun ended then it says Terminated or Killed."""
_NO_FOLDER = re.compile(r"slurmstepd(?:-([^\s:]+))?: error: couldn't chdir to [`'](.+?)': ([^:]+)")
_REFUSED = re.compile(r"\w*Error: \[Errno \d+\] ([^:]+): '(.+)'")
"""How Python ends where the launcher cannot read or write a file."""


@dataclass(frozen=True)
class Trace:
    """A line that tells of a task without a word of its own."""

    line: int
    text: str
    node: str
    """Empty where the line does not say."""
    why: str
    sees_no_folder: bool


def traces(rows: Iterable[str], folder: str) -> list[Trace]:
    """What the lines of a job's output tell of tasks that left nothing; `folder` is the job's."""
    found = []
    for number, row in enumerate(rows, 1):
        text = row.strip()
        if match := _NO_FOLDER.match(text):
            if f"{match.group(2)}/".startswith(f"{folder}/"):
                why = f"it does not see the job's folder ({match.group(3).strip()})"
                found.append(Trace(number, text, match.group(1) or "", why, sees_no_folder=True))
        elif match := _REFUSED.match(text):
            if f"{match.group(2)}/".startswith(f"{folder}/"):
                why = f"it cannot use the job's folder ({match.group(1)})"
                found.append(Trace(number, text, "", why, sees_no_folder=True))
        elif match := _TASK.match(text):
            found.append(Trace(number, text, match.group(1), match.group(2), sees_no_folder=False))
    return found


def told(found: list[Trace]) -> str:
    """The traces in words: each node with what is known of it. Empty where there is nothing."""
    nodes: dict[str, list[str]] = {}
    ended = list(dict.fromkeys(trace.node for trace in found if not trace.sees_no_folder))
    for trace in found:
        # A line without a node is the launcher's: of the node whose task ended, where that is one.
        node = trace.node or (ended[0] if len(ended) == 1 else "")
        nodes.setdefault(node or "a node", []).append(trace.why)
    return "; ".join(f"{node}: {', '.join(dict.fromkeys(whys))}" for node, whys in list(nodes.items())[:4])
