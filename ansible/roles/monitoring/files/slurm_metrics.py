#!/usr/bin/env python3
"""Counts Slurm's nodes and jobs into a file that the node exporter reads: ``slurm_metrics.py FILE.prom``.

The file is replaced as a whole, and always says when: a count that stops is seen by its age. Where Slurm
does not answer, or answers what is not understood, the file says ``surefoot_slurm_answers 0`` and holds no
counts, for old ones would be taken for new; the exit code is 1 and standard error says why.

Needs Python 3.9 or newer and nothing else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

NODES = ("sinfo", "--noheader", "--Node", "--format=%N|%T")
JOBS = ("squeue", "--noheader", "--array", "--format=%T")
TIMEOUT_S = 30

NODE_STATES = ("idle", "mixed", "allocated", "completing", "draining", "drained", "down")
JOB_STATES = ("pending", "running", "completing", "configuring", "suspended")
"""States that are counted also where there are none: 0 is a measurement."""

WORKING = {"idle", "mixed", "allocated", "completing", "planned", "reserved", "future", "maint"}
"""States in which a node is as it is meant to be. Nodes that sleep to save power are, too: see `_AS_MEANT`."""

_NODE = re.compile(r"(?P<name>[^\s|]+)\|(?P<state>[a-z_]+)(?P<marks>[*~#!%$@^+-]*)")
_AS_MEANT = ("power", "reboot")


class NotUnderstoodError(Exception):
    """Slurm did not answer, or not in a way that is understood."""


def ask(argv: tuple[str, ...]) -> str:
    """What a command of Slurm's prints. Raises NotUnderstoodError."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotUnderstoodError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        raise NotUnderstoodError(f"{argv[0]}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def read_nodes(text: str) -> dict[str, tuple[str, bool]]:
    """State and whether it responds, of each node, however many partitions it is in. Raises NotUnderstoodError."""
    nodes = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _NODE.fullmatch(line.strip().lower()) if line.count("|") == 1 else None
        if found is None:
            raise NotUnderstoodError(f"sinfo, line {number}: {line!r} is not NODE|STATE")
        nodes[line.partition("|")[0].strip()] = (found["state"], "*" not in found["marks"])
    if not nodes:
        raise NotUnderstoodError("sinfo names no node")
    return nodes


def read_jobs(text: str) -> Counter[str]:
    """How many jobs are in each state. Raises NotUnderstoodError."""
    states = [line.strip().lower() for line in text.splitlines()]
    for number, state in enumerate(states, 1):
        if not re.fullmatch(r"[a-z_]+", state):
            raise NotUnderstoodError(f"squeue, line {number}: {state!r} is not the state of a job")
    return Counter(states)


def metrics(nodes: Mapping[str, tuple[str, bool]], jobs: Mapping[str, int], now: float) -> str:
    """All that was counted, in Prometheus' text format."""
    by_state = Counter(state for state, _ in nodes.values())
    lines = [
        *_head("surefoot_slurm_nodes", "Nodes by Slurm's state."),
        *_counts("surefoot_slurm_nodes", {**dict.fromkeys(NODE_STATES, 0), **by_state}),
        *_head("surefoot_slurm_nodes_not_responding", "Nodes whose slurmd does not answer."),
        f"surefoot_slurm_nodes_not_responding {sum(not responds for _, responds in nodes.values())}",
        *_head("surefoot_slurm_node_unavailable", "1 for each node that takes no jobs and is meant to."),
    ]
    for name, (state, responds) in sorted(nodes.items()):
        if not responds or not (state in WORKING or state.startswith(_AS_MEANT)):
            shown = "not_responding" if state in WORKING else state
            lines.append(f'surefoot_slurm_node_unavailable{{node="{name}",state="{shown}"}} 1')
    lines += _head("surefoot_slurm_jobs", "Jobs in the queue by state, each element of an array for itself.")
    lines += _counts("surefoot_slurm_jobs", {**dict.fromkeys(JOB_STATES, 0), **jobs})
    return "\n".join([*lines, *_told(1, now)]) + "\n"


def silence(now: float) -> str:
    """The file where nothing was counted."""
    return "\n".join(_told(0, now)) + "\n"


def _told(answers: int, now: float) -> list[str]:
    return [
        *_head("surefoot_slurm_answers", "Whether Slurm answered, in a way that is understood."),
        f"surefoot_slurm_answers {answers}",
        *_head("surefoot_slurm_written_timestamp_seconds", "When this file was written."),
        f"surefoot_slurm_written_timestamp_seconds {now:.3f}",
    ]


def _head(name: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} gauge"


def _counts(name: str, counts: Mapping[str, int]) -> Iterator[str]:
    for state, count in sorted(counts.items()):
        yield f'{name}{{state="{state}"}} {count}'


def write(path: Path, text: str) -> None:
    """Replace a file as a whole; whoever reads it sees the old one or the new one."""
    draft = path.with_name(f".{path.name}.new")  # the exporter reads *.prom alone
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.chmod(0o644)
    draft.replace(path)


def main(arguments: list[str]) -> int:
    """Count once."""
    if len(arguments) != 1:
        sys.stderr.write(f"usage: {Path(__file__).name} FILE.prom\n")
        return 2
    path = Path(arguments[0])
    try:
        text = metrics(read_nodes(ask(NODES)), read_jobs(ask(JOBS)), time.time())
    except NotUnderstoodError as error:
        sys.stderr.write(f"{error}\n")
        write(path, silence(time.time()))
        return 1
    write(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
