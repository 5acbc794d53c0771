"""What the lab's Slurm says of its nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from surefoot.errors import MachineryError
from surefoot.lab.configuration import ACCOUNT
from surefoot.lab.hosts import on_host
from surefoot.lab.spec import CLIMBER, HEAD
from surefoot.lab.state import LabState

_WORKING = ("idle", "mixed", "allocated", "completing")


@dataclass(frozen=True)
class NodeState:
    """A node as `sinfo` shows it: state in its long form (``idle``, ``down*``), reason where there is one."""

    name: str
    state: str
    reason: str

    @property
    def works(self) -> bool:
        return self.state in _WORKING

    def __str__(self) -> str:
        return f"{self.name} {self.state}" + (f" ({self.reason})" if self.reason else "")


def parse_nodes(text: str) -> list[NodeState]:
    """Nodes of ``sinfo -h -N -o '%N|%T|%E'``, each once however many partitions it is in."""
    nodes = {}
    for line in text.splitlines():
        name, state, reason = line.split("|", 2)
        nodes[name] = NodeState(name, state.lower(), "" if reason == "none" else reason)
    return list(nodes.values())


def node_states(state: LabState) -> list[NodeState]:
    """What slurmctld says of every node. Raises MachineryError where it does not answer."""
    return parse_nodes(on_host(state, HEAD, ["sinfo", "-h", "-N", "-o", "%N|%T|%E"]).stdout)


def wait_until_working(state: LabState, *, timeout_s: float) -> list[NodeState]:
    """Wait until every node works. Raises MachineryError saying what was seen last."""
    deadline = time.monotonic() + timeout_s
    while True:
        dead = [host for host in state.spec.hosts if not state.alive(host)]
        if dead:
            raise MachineryError(f"hosts that ended: {', '.join(dead)}")
        try:
            nodes = node_states(state)
            seen = ", ".join(str(node) for node in nodes)
            if len(nodes) == state.spec.nodes and all(node.works for node in nodes):
                return nodes
        except MachineryError as error:
            seen = error.message
        if time.monotonic() > deadline:
            raise MachineryError(f"after {timeout_s:.0f} s the nodes do not all work: {seen}")
        time.sleep(0.1)


def add_accounts(state: LabState) -> None:
    """An account for the lab's user and for root: Slurm takes no job without one where it enforces them."""
    tool = ["sacctmgr", "-i", "-Q"]
    on_host(state, HEAD, [*tool, "add", "account", ACCOUNT, "Description=lab"])
    on_host(state, HEAD, [*tool, "add", "user", f"root,{CLIMBER}", f"account={ACCOUNT}"])


def resume(state: LabState, host: str) -> None:
    """Take a node out of drain or down where it is in it."""
    broken = [node for node in node_states(state) if node.name == host and not node.works]
    if broken:
        on_host(state, HEAD, ["scontrol", "update", f"nodename={host}", "state=resume"], check=False)
