"""Interfaces and rails, chosen for each node from what was found there, with the reason of every choice. Pure.

`choose` is all that a caller needs: nodes as they told of themselves → for each the interface that ranks
first meet over, its rails, the environment that says so to NCCL, Gloo and Open MPI, why each other
interface and port was left out, and findings. Names are exact (``=enP7s7``): NCCL takes prefixes, and
mlx5_1 would mean mlx5_10 too.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.hardware.bootstrap import Bootstrap, bootstrap
from surefoot.hardware.network_agreement import disagreements
from surefoot.hardware.network_facts import Interface, NodeNetwork
from surefoot.hardware.network_pins import pins
from surefoot.hardware.network_view import Finding, View, some
from surefoot.hardware.rails import Rail, Rails, rails
from surefoot.model.base import Record


class ChosenRail(Record):
    """One rail of a node."""

    hca: str
    """As NCCL_IB_HCA takes it."""
    port: int
    interface: str | None
    rate_gbit_s: float
    link_layer: str
    gid_index: int | None
    """Of its RoCE v2 IPv4 address; None for InfiniBand."""
    address: str | None


class LeftOut(Record):
    """An interface or an RDMA port that is not used, and why."""

    name: str
    why: str


class NodeChoice(Record):
    """What one node is to use."""

    node: str
    interface: str | None
    """Ranks first meet over it; None where nothing was proved."""
    address: str | None
    why: str
    rails: tuple[ChosenRail, ...]
    why_rails: str
    environment: dict[str, str]
    """Empty of what was not proved: nothing is guessed."""
    left_out: tuple[LeftOut, ...]
    """Every other interface."""
    ports_left_out: tuple[LeftOut, ...]


class NetworkChoice(Record):
    """What all nodes are to use, and what is wrong."""

    nodes: tuple[NodeChoice, ...]
    findings: tuple[Finding, ...]

    @property
    def grave(self) -> tuple[Finding, ...]:
        """Those that make training fail, hang or crawl."""
        return tuple(finding for finding in self.findings if finding.grave)

    def node(self, name: str) -> NodeChoice:
        """The choice of one node. Raises StopIteration for one that never told of itself."""
        return next(node for node in self.nodes if node.node == name)


def choose(nodes: Sequence[NodeNetwork], expected: Sequence[str] | None = None) -> NetworkChoice:
    """Choose for all nodes at once. `expected`: all nodes of the job, in its order; None: those that told.

    Pins are looked for in each node's `environment`. A choice that evidence does not prove is not made.
    """
    names = tuple(expected if expected is not None else (node.node for node in nodes))
    view = View(nodes)
    meeting = bootstrap(view, names)
    at = {node: member.interface.name for node, member in meeting.place.members.items()} if meeting.place else {}
    found = rails(view, names, at)
    return NetworkChoice(
        nodes=tuple(_node(view, view.nodes[name], meeting, found) for name in names if name in view.nodes),
        findings=(
            *meeting.findings,
            *disagreements(view, names),
            *found.findings,
            *pins(view, found.rails),
        ),
    )


def _node(view: View, node: NodeNetwork, meeting: Bootstrap, found: Rails) -> NodeChoice:
    own = found.rails.get(node.node, ())
    member = meeting.place.members.get(node.node) if meeting.place else None
    chosen = member.interface.name if member else None
    behind = {rail.interface.name for rail in own if rail.interface is not None}
    return NodeChoice(
        node=node.node,
        interface=chosen,
        address=member.at if member else None,
        why=meeting.why,
        rails=tuple(_rail(rail) for rail in own),
        why_rails=found.why,
        environment={**socket_environment(chosen), **rail_environment(own)},
        left_out=tuple(
            LeftOut(name=interface.name, why=_why_not(view, node, interface, meeting, rail=interface.name in behind))
            for interface in node.interfaces
            if interface.name != chosen
        ),
        ports_left_out=tuple(LeftOut(name=name, why=why) for name, why in found.left_out.get(node.node, {}).items()),
    )


def socket_environment(interface: str | None) -> dict[str, str]:
    """What says to NCCL, Gloo and Open MPI over which interface ranks first meet."""
    if interface is None:
        return {}
    return {
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "GLOO_SOCKET_IFNAME": interface,
        "OMPI_MCA_btl_tcp_if_include": interface,
    }


def rail_environment(own: Sequence[Rail]) -> dict[str, str]:
    """What says to NCCL which RDMA ports to use; a GID index only where it is the same on all of them."""
    if not own:
        return {}
    found = {"NCCL_IB_HCA": "=" + ",".join(rail.name for rail in own)}
    indices = {rail.gid.index for rail in own if rail.gid is not None}
    if len(indices) == 1:
        found["NCCL_IB_GID_INDEX"] = str(indices.pop())
    return found


def _rail(rail: Rail) -> ChosenRail:
    return ChosenRail(
        hca=rail.name,
        port=rail.port.number,
        interface=rail.interface.name if rail.interface else None,
        rate_gbit_s=rail.rate,
        link_layer=rail.layer,
        gid_index=rail.gid.index if rail.gid else None,
        address=str(rail.gid.ipv4) if rail.gid else None,
    )


def _why_not(view: View, node: NodeNetwork, interface: Interface, meeting: Bootstrap, *, rail: bool) -> str:
    """Why ranks do not first meet over an interface, in words."""
    reasons = [view.unfit[node.node][interface.name]]
    members = [m for m in view.members[node.node] if m.interface.name == interface.name]
    if rail:
        reasons.append("a rail: NCCL uses it through NCCL_IB_HCA")
    passed = [meeting.passed_over.get(str(m.network)) for m in members]
    reasons += [f"{members[i].network}: {why}" for i, why in enumerate(passed) if why]
    if members and not any(passed):
        networks = ", ".join(sorted({str(m.network) for m in members}))
        mine = meeting.place is not None and meeting.place.name in networks
        reasons.append(
            f"{networks}: the node's other interface there is taken"
            if mine
            else f"{networks}: not all nodes have an address in it"
        )
    calls = node.reach.calls if node.reach else ()
    odd = [
        f"at {c.address} of {c.node}, {view.outcome(node.node, c)}"
        for c in calls
        if c.interface == interface.name and c.outcome == "other host"
    ]
    if odd:
        reasons.append(some(odd, 1))
    return "; ".join(reason for reason in reasons if reason)
