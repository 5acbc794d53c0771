"""Where the networks of nodes do not agree: each disagreement a finding of its own, with the nodes named. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from surefoot.hardware.network_facts import Network
from surefoot.hardware.network_view import Finding, Member, Trouble, View, grouped, some
from surefoot.hostlist import folded

Subnets = Mapping[Network, Mapping[str, Sequence[Member]]]


def disagreements(view: View, expected: Sequence[str]) -> list[Finding]:
    """All of them, of the interfaces that are fit to meet over. `expected`: all nodes of the job."""
    subnets = view.subnets()
    nodes = [name for name in expected if name in view.nodes]
    return [
        *_absent(view, expected),
        *_names(view, expected),
        *_twice(view),
        *_partial(view, subnets, nodes),
        *_unreached(view, subnets),
        *_mtu(view, subnets),
        *_speeds(view, subnets),
        *_links_down(view, nodes),
    ]


def _absent(view: View, expected: Sequence[str]) -> Iterator[Finding]:
    silent = [name for name in expected if name not in view.spoke]
    waiting = {name: [other for other, r in view.spoke.items() if name in r.absent] for name in silent}
    if silent:
        heard = max((len(others) for others in waiting.values()), default=0)
        yield Finding(
            trouble=Trouble.ABSENT,
            nodes=tuple(silent),
            text=f"{folded(silent)} never told where it is ({heard} nodes waited for its file in the job's folder)",
            next_action="look in the job's output of that node: did its ranks start, and do they see the same job folder?",
        )
    # Both ends spoke in the end, and one had given the other up by then.
    late = [(name, other) for name, reach in view.spoke.items() for other in reach.absent if other in view.spoke]
    if late:
        yield Finding(
            trouble=Trouble.ABSENT,
            nodes=tuple(sorted({other for _, other in late})),
            text=some(f"{other} wrote its file after {name} had stopped waiting" for name, other in late),
            next_action="see whether that node starts late, or the shared folder shows files late there",
        )


def _names(view: View, expected: Sequence[str]) -> Iterator[Finding]:
    """Host names that lead to no address of their host."""
    known = {name: {member.at for member in members if view.leads(member)} for name, members in view.members.items()}
    loop: dict[str, str] = {}
    astray: list[tuple[str, str, str]] = []
    for name, reach in view.spoke.items():
        for other, led in reach.names.items():
            addresses = led.value or ()
            if other == name and any(address.is_loopback for address in addresses):
                loop[name] = ", ".join(str(address) for address in addresses)
            elif other in view.nodes:
                if led.unknown:
                    astray.append((name, other, f"to nothing ({led.unknown})"))
                elif not any(str(address) in known[other] for address in addresses):
                    where = ", ".join(_where(view, other, str(address)) for address in addresses)
                    astray.append((name, other, f"to {where}"))
    if loop:
        yield Finding(
            trouble=Trouble.OWN_NAME,
            nodes=tuple(loop),
            text=f"the own name of {folded(loop)} leads to {next(iter(loop.values()))} there: "
            "a rank that listens on it is not found by others",
            next_action="in /etc/hosts there, let the name lead to the address that other nodes know, not to 127.0.1.1",
        )
    first = expected[0] if expected else ""
    for grave in (True, False):
        rows = [row for row in astray if (row[1] == first) == grave]
        if rows:
            yield Finding(
                trouble=Trouble.NAME,
                nodes=tuple(sorted({name for name, _, _ in rows})),
                text=some(f"on {name}, the name {other} leads {where}" for name, other, where in rows),
                next_action="let names lead to the same address on all nodes (DNS, /etc/hosts)"
                + ("; ranks find each other by the first node's" if grave else ""),
                grave=grave,
            )


def _where(view: View, node: str, address: str) -> str:
    """An address, with the interface of the node that has it."""
    having = [i.name for i in view.nodes[node].interfaces if any(str(a.address) == address for a in i.addresses)]
    return f"{address} ({having[0]} there)" if having else address


def _twice(view: View) -> Iterator[Finding]:
    """An address that two nodes have, on interfaces that lead out."""
    found: dict[str, set[str]] = {}
    for node, members in view.members.items():
        for member in members:
            if view.leads(member):
                found.setdefault(member.at, set()).add(node)
    for caller, reach in view.spoke.items():
        for call in reach.calls:
            if call.outcome != "other host":
                continue
            who = call.greeted_by or view.hosts.get(call.greeted or "")
            fit = any(m.at == call.address and view.leads(m) for m in view.members.get(call.node, ()))
            if fit and who not in (None, caller):
                found.setdefault(call.address, set()).update({call.node, str(who)})
    for address, nodes in found.items():
        if len(nodes) > 1:
            yield Finding(
                trouble=Trouble.ADDRESS_TWICE,
                nodes=tuple(sorted(nodes)),
                text=f"{address} is an address of {folded(nodes)}: which of them answers is chance",
                next_action="give each node an address of its own",
            )


def _partial(view: View, subnets: Subnets, nodes: Sequence[str]) -> Iterator[Finding]:
    """Subnets that some nodes are on and others are not."""
    for network, members in subnets.items():
        there = [name for name in nodes if name in members]
        fit = [m for name in there for m in members[name] if view.leads(m)]
        lacking = [name for name in nodes if name not in members]
        # Of a fabric with routes between subnets, each is on few nodes, and others reach it all the same.
        if not fit or not lacking or all(_reached_from(view, member, lacking) for member in fit):
            continue
        yield Finding(
            trouble=Trouble.SUBNET_PARTIAL,
            nodes=tuple(lacking),
            text=f"{network} is on {folded(there)} ({', '.join(sorted({m.interface.name for m in fit}))}), "
            f"and no interface of {folded(lacking)} that is up has an address in it",
            next_action="see whether the interface there has a link and its address; a network of some nodes alone "
            "(storage) needs nothing",
            grave=len(there) >= len(lacking),
        )
    for network, members in subnets.items():
        twice = {
            name: sorted({m.interface.name for m in own}) for name, own in members.items()
            if len({m.interface.name for m in own if view.leads(m)}) > 1
        }  # fmt: skip
        if twice:
            yield Finding(
                trouble=Trouble.SUBNET_TWICE,
                nodes=tuple(twice),
                text=f"{network}: {folded(twice)} has several interfaces in it "
                f"({', '.join(next(iter(twice.values())))}): the kernel sends all traffic over one of them",
                next_action="give each rail a subnet of its own, or policy routes",
                grave=False,
            )


def _reached_from(view: View, member: Member, others: Iterable[str]) -> bool:
    calls = [call for other in others for call in view.calls(other, member)]
    return bool(calls) and all(view.right(call) for call in calls)


def _unreached(view: View, subnets: Subnets) -> Iterator[Finding]:
    """Pairs that share a subnet and do not reach each other on it, one way or both; and what large packets do."""
    pairs = set(view.asked())
    for network, members in subnets.items():
        fit = {node: [m for m in own if view.leads(m)] for node, own in members.items()}
        bad: dict[tuple[str, str], str] = {}
        cut: dict[tuple[str, str], str] = {}
        for caller, called in pairs:
            own = fit.get(caller)
            for to in fit.get(called, ()) if own else ():
                if not own or any(view.reaches(m, to) for m in own):
                    continue
                outcomes = {call.outcome for call in view.calls(caller, to)}
                (cut if "cut off" in outcomes else bad)[caller, called] = view.what_came(own[0], to)
        yield from _pairs(str(network), bad, pairs)
        if cut:
            yield Finding(
                trouble=Trouble.CUT_OFF,
                nodes=tuple(sorted({node for pair in cut for node in pair})),
                text=f"{network}: small packets arrive and large ones do not: "
                + some(f"{a} from {b} ({what})" for (a, b), what in sorted(cut.items())),
                next_action="compare the MTU of both ends with that of the switch between them",
            )


def _pairs(network: str, bad: Mapping[tuple[str, str], str], pairs: set[tuple[str, str]]) -> Iterator[Finding]:
    one_way = {
        (a, b): what for (a, b), what in bad.items() if (b, a) in pairs and (b, a) not in bad
    }  # fmt: skip
    for trouble, rows, more in (
        (Trouble.ONE_WAY, one_way, ", while the other way works"),
        (Trouble.UNREACHABLE, {pair: what for pair, what in bad.items() if pair not in one_way}, ""),
    ):
        if rows:
            yield Finding(
                trouble=trouble,
                nodes=tuple(sorted({node for pair in rows for node in pair})),
                text=f"{network}: "
                + some(f"{a} does not reach {b}{more} ({what})" for (a, b), what in sorted(rows.items())),
                next_action="look for a firewall, a wrong VLAN or a wrong prefix on the nodes that most pairs name",
            )


def _mtu(view: View, subnets: Subnets) -> Iterator[Finding]:
    for network, members in subnets.items():
        rows = [(m.node, m.interface.mtu) for own in members.values() for m in own if view.leads(m)]
        if len({mtu for _, mtu in rows}) > 1:
            odd = _minority(rows)
            yield Finding(
                trouble=Trouble.MTU,
                nodes=tuple(odd),
                text=f"{network}: the MTU is {grouped((node, str(mtu)) for node, mtu in rows)}",
                next_action="set one MTU on all nodes and on the switch between them",
            )


def _minority(rows: Sequence[tuple[str, int]]) -> list[str]:
    """Nodes whose value is not the most common one; all, where none is the most common."""
    ordered = Counter(value for _, value in rows).most_common()
    tied = len(ordered) > 1 and ordered[0][1] == ordered[1][1]
    return sorted({node for node, value in rows if tied or value != ordered[0][0]})


def _speeds(view: View, subnets: Subnets) -> Iterator[Finding]:
    """Links slower than those of their peers. Unknown speeds say nothing."""
    for network, members in subnets.items():
        known = [(m.node, m.speed) for own in members.values() for m in own if view.leads(m) and m.speed]
        fastest = max((speed for _, speed in known), default=0)
        slow = [node for node, speed in known if speed < fastest]
        if slow:
            yield Finding(
                trouble=Trouble.SPEED,
                nodes=tuple(slow),
                text=f"{network}: links run at {grouped((node, f'{speed} Mbit/s') for node, speed in known)}",
                next_action="reseat or replace the cable or transceiver of the slow ones, or look at their switch ports",
            )


def _links_down(view: View, nodes: Sequence[str]) -> Iterator[Finding]:
    """Interfaces without a link that at least half of the other nodes have one on, by name."""
    for name in dict.fromkeys(name for node in nodes for name in view.leading(node)):
        interfaces = {node: i for node in nodes if (i := view.nodes[node].interface(name)) is not None}
        down = [node for node, i in interfaces.items() if not (i.up and i.carrier)]
        # One that no node uses (no address, no port of anything) may be plugged in or not.
        up = [node for node, i in interfaces.items() if i.up and i.carrier and (i.usable or i.master)]
        if down and len(up) >= len(down):
            states = grouped((node, _state(view, node, name)) for node in down)
            yield Finding(
                trouble=Trouble.LINK_DOWN,
                nodes=tuple(down),
                text=f"{name} has a link on {folded(up)}, and is {states}",
                next_action="look at the cable and the switch port, or switch the interface on",
            )


def _state(view: View, node: str, name: str) -> str:
    interface = view.nodes[node].interface(name)
    assert interface is not None, name
    return "without a link" if interface.up else "switched off"
