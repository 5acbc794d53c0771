"""Over which interface ranks first meet: found from what reached whom, never guessed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from surefoot.hardware.interface_kinds import FIRST_CLASS, INSIDE
from surefoot.hardware.network_view import Finding, Member, Trouble, View, some


@dataclass(frozen=True)
class Place:
    """A way for all nodes to meet: an address of each."""

    name: str
    """The subnet, or that it is routed."""
    members: Mapping[str, Member]
    shared: bool
    """All are on one subnet."""

    @property
    def inside(self) -> bool:
        """Some node has nothing better than a container's interface there."""
        return any(member.kind in INSIDE for member in self.members.values())


@dataclass(frozen=True)
class Bootstrap:
    """Where to meet; None where nothing was proved. `why` says it in words, and `passed_over` of each other place."""

    place: Place | None
    why: str
    passed_over: Mapping[str, str]
    """Name of a place → why it is not taken."""
    findings: tuple[Finding, ...]


def bootstrap(view: View, expected: Sequence[str]) -> Bootstrap:
    """The best place of those that every pair that was tried proved. `expected`: all nodes of the job."""
    nodes = [name for name in expected if name in view.spoke]
    places = _places(view, nodes)
    failing = {place.name: _failing(view, place) for place in places}
    proved = [place for place in places if not failing[place.name]]
    if not proved:
        text = _nothing(places, failing, view, nodes)
        finding = Finding(
            trouble=Trouble.NO_COMMON_NETWORK,
            nodes=tuple(nodes),
            text=text,
            next_action="bring up one network between all nodes (cables, VLANs, addresses, firewalls for TCP between "
            "nodes), or run on nodes that share one",
        )
        reasons = {place.name: some(failing[place.name]) for place in places}
        return Bootstrap(place=None, why=text, passed_over=reasons, findings=(finding,))
    proved.sort(key=lambda place: _rank(view, place))
    best = proved[0]
    passed = {place.name: some(failing[place.name]) for place in places if failing[place.name]}
    passed |= {place.name: f"{best.name} is preferred: {_preference(view, best, place)}" for place in proved[1:]}
    return Bootstrap(place=best, why=_why(view, best, nodes), passed_over=passed, findings=())


def _places(view: View, nodes: Sequence[str]) -> list[Place]:
    """Subnets that all nodes are on, and the way by which each node's default route leads."""
    found = []
    for network, members in view.subnets().items():
        if nodes and all(node in members for node in nodes):
            chosen = {node: min(members[node], key=lambda m: _member_rank(view, m)) for node in nodes}
            found.append(Place(name=str(network), members=chosen, shared=True))
    for version in (4, 6):
        routed = {}
        for node in nodes:
            own = [m for m in view.members[node] if m.address.address.version == version and view.default(m)]
            if own:
                routed[node] = min(own, key=lambda m: _member_rank(view, m))
        if nodes and len(routed) == len(nodes) and len({m.network for m in routed.values()}) > 1:
            found.append(Place(name=f"default routes (IPv{version})", members=routed, shared=False))
    return found


def _member_rank(view: View, member: Member) -> tuple[object, ...]:
    return (member.kind not in FIRST_CLASS, not view.default(member), -member.speed, member.interface.index)


def _failing(view: View, place: Place) -> list[str]:
    """Pairs that were tried and did not reach each other there, in words."""
    members = place.members
    alone = [f"between {node} and the others nothing was tried" for node in view.left_alone(list(members))]
    return alone + [
        f"{caller} does not reach {called} at {members[called].at} ({view.what_came(members[caller], members[called])})"
        for caller, called in view.asked()
        if caller in members and called in members and not view.reaches(members[caller], members[called])
    ]


def _rank(view: View, place: Place) -> tuple[object, ...]:
    members = place.members.values()
    return (
        place.inside, not place.shared, -sum(view.default(member) for member in members),
        next(iter(members)).address.address.version, -min(member.speed for member in members), place.name,
    )  # fmt: skip


def _preference(view: View, best: Place, other: Place) -> str:
    """What put `best` before `other`, in words."""
    if other.inside != best.inside:
        return "there, a node has only a container's interface"
    if other.shared != best.shared:
        return "all nodes are on one subnet there"
    by_default = [sum(view.default(member) for member in place.members.values()) for place in (best, other)]
    if by_default[0] != by_default[1]:
        return "the default route leads over it, so it is management, and rails stay free"
    versions = [next(iter(place.members.values())).address.address.version for place in (best, other)]
    if versions[0] != versions[1]:
        return "IPv4 before IPv6"
    speeds = [min(member.speed for member in place.members.values()) for place in (best, other)]
    return f"its links are faster ({speeds[0]} and {speeds[1]} Mbit/s)" if speeds[0] != speeds[1] else "it comes first"


def _why(view: View, place: Place, nodes: Sequence[str]) -> str:
    tried = sum(1 for _ in view.asked())
    if len(nodes) == 1:
        return f"{place.name}, the only node's best network: there is no other node to reach"
    how = "all nodes are on it" if place.shared else "nodes are on several subnets, with routes between them"
    return f"{place.name}: {how}, and the right host answered in all {tried} calls from node to node"


def _nothing(places: Sequence[Place], failing: Mapping[str, list[str]], view: View, nodes: Sequence[str]) -> str:
    """Why there is no place to meet, in words."""
    if not nodes:
        return "no node told whom it reaches"
    if places:
        return "no network connects all nodes: " + " | ".join(
            f"{place.name}: {some(failing[place.name])}" for place in places
        )
    subnets = view.subnets()
    if not subnets:
        return "no node has an interface that is fit to meet over: see why each was left out"
    rows = []
    for network, members in subnets.items():
        lacking = [node for node in nodes if node not in members]
        rows.append(f"{network} lacks {', '.join(lacking)}")
    return "no network has all nodes on it: " + some(rows)
