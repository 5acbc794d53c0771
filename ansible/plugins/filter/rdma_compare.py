"""RDMA rails that roles/rdma found on a host, against those that the inventory declares: plain words.

    facts | rdma_compare(wanted)      {"problems": […], "found": […], "report": "…"}

`facts` is what ``roles/rdma/files/look.py`` printed. `wanted`: ``rails`` (name, hca, port, subnet, rate_gbit_s,
mtu), ``mtu``, ``gid_index``, ``pfc_priorities``, ``other_devices``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Port = Mapping[str, Any]
Rail = Mapping[str, Any]


@dataclass
class Comparison:
    """Ports and interfaces of a host, what is wanted, and what came of it."""

    ports: Sequence[Port]
    interfaces: Sequence[Mapping[str, Any]]
    wanted: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def judge(self, ok: bool, found: str, problem: str, advice: str) -> None:
        if ok:
            self.found.append(found)
        else:
            self.problems.append(f"{problem}\n  → {advice}")


def rdma_compare(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Every claim with what shows it, and every mismatch with device, port, expected and found."""
    unknown = [
        f"{facts[name]['from']} cannot be read: {facts[name]['unknown']}\n  → what is not known is not passed"
        for name in ("ports", "interfaces")
        if "unknown" in facts[name]
    ]
    if unknown:
        return _said(unknown, [])
    comparison = Comparison(facts["ports"]["value"], facts["interfaces"]["value"], wanted)
    rails: Sequence[Rail] = wanted["rails"]
    if not rails:
        comparison.problems.append(
            f"rdma_rails declares no rail, so that nothing can be proved; found: {_listed(comparison.ports)}"
            "\n  → declare the rails of this host, or take it out of the group rdma"
        )
    taken: dict[tuple[str, int], str] = {}
    for rail in rails:
        port = _port_of(rail, comparison)
        if port is None:
            continue
        key = (port["device"], port["port"])
        if key in taken:
            comparison.problems.append(
                f"{rail['name']}: {_where(port)} is {taken[key]} already\n  → one port is one rail: correct rdma_rails"
            )
            continue
        taken[key] = rail["name"]
        for check in (_up, _rate, _mtu, _subnet, _gid, _pfc):
            check(rail, port, comparison)
    _undeclared(taken, comparison)
    return _said(comparison.problems, comparison.found)


def _said(problems: list[str], found: list[str]) -> dict[str, Any]:
    """Both, and for people one line that counts, then each problem."""
    report = [f"of {len(problems) + len(found)} claims {len(problems)} do not hold:", *problems]
    return {"problems": problems, "found": found, "report": "\n".join(report)}


def _where(port: Port) -> str:
    return f"{port['device']} port {port['port']}" + (f" ({port['netdev']})" if port["netdev"] else "")


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"{_where(port)} {port['state']}" for port in ports) or "no RDMA device at all"


def _port_of(rail: Rail, comparison: Comparison) -> Port | None:
    """The port of a rail: the declared device, else the one whose interface is in the rail's subnet."""
    hca, number = rail.get("hca", ""), int(rail.get("port", 1))
    if hca:
        for port in comparison.ports:
            if (port["device"], port["port"]) == (hca, number):
                return port
        comparison.problems.append(
            f"{rail['name']}: expected {hca} port {number}, found {_listed(comparison.ports)} (/sys/class/infiniband)"
            "\n  → correct hca in rdma_rails; or the card's driver did not start: `dmesg | grep -i mlx`, `lspci -d 15b3:`"
        )
        return None
    subnet = rail.get("subnet", "")
    if not subnet:
        comparison.problems.append(
            f"{rail['name']}: neither hca nor subnet is declared\n  → one of them must say which port is meant"
        )
        return None
    for port in comparison.ports:
        if _in_subnet(_addresses(port, comparison), subnet):
            comparison.found.append(f"{rail['name']}: {_where(port)} is the port in {subnet}")
            return port
    comparison.problems.append(
        f"{rail['name']}: expected a port in {subnet}, found {_with_addresses(comparison)}"
        "\n  → set the interface's address, or correct subnet in rdma_rails"
    )
    return None


def _addresses(port: Port, comparison: Comparison) -> list[str]:
    """IPv4 addresses of a port: of its interface, and those that its GIDs stand for."""
    own = [one for face in comparison.interfaces if face["name"] == port["netdev"] for one in face["addresses"]]
    known = {text.split("/")[0] for text in own}
    return own + sorted({gid["address"] for gid in port["gids"] if gid["address"]} - known)


def _with_addresses(comparison: Comparison) -> str:
    rows = [f"{_where(port)} {' '.join(_addresses(port, comparison)) or '-'}" for port in comparison.ports]
    return ", ".join(rows) or "no RDMA device at all"


def _in_subnet(addresses: Sequence[str], subnet: str) -> list[str]:
    network = ipaddress.ip_network(subnet)
    return [text for text in addresses if ipaddress.ip_address(text.split("/")[0]) in network]


def _up(rail: Rail, port: Port, comparison: Comparison) -> None:
    good = (port["state"], port["phys_state"]) == ("ACTIVE", "LinkUp")
    advice = (
        "no light on the cable: reseat it, look at the switch port"
        if port["phys_state"] != "LinkUp"
        else "the link is there and is not in service: the interface is down (`ip link`), or there is no subnet manager"
    )
    comparison.judge(
        good,
        f"{rail['name']}: {_where(port)} is ACTIVE, LinkUp, {port['link_layer']}",
        f"{rail['name']}: {_where(port)}: expected ACTIVE and LinkUp, found {port['state']} and {port['phys_state']}",
        advice,
    )


def _rate(rail: Rail, port: Port, comparison: Comparison) -> None:
    expected, found = rail.get("rate_gbit_s", ""), port["rate_gbit_s"]
    if expected == "":
        comparison.found.append(f"{rail['name']}: {_where(port)} runs at {found:g} Gb/s; no rate is declared")
        return
    comparison.judge(
        float(expected) == found,
        f"{rail['name']}: {_where(port)} runs at {found:g} Gb/s, as declared",
        f"{rail['name']}: {_where(port)}: expected {float(expected):g} Gb/s, found {found:g} Gb/s",
        "lanes are missing or the cable is of another kind: `mlxlink -d DEVICE`, `ethtool INTERFACE`; else correct rate_gbit_s",
    )


def _mtu(rail: Rail, port: Port, comparison: Comparison) -> None:
    expected, found = rail.get("mtu", comparison.wanted["mtu"]), port["mtu"]
    if expected in ("", None):
        comparison.found.append(f"{rail['name']}: {_where(port)} has MTU {found}; none is declared")
        return
    comparison.judge(
        found == int(expected),
        f"{rail['name']}: {_where(port)} has MTU {found}, as declared",
        f"{rail['name']}: {_where(port)}: expected MTU {expected}, found {found}",
        "set it where the host's network is configured (netplan, networkd), and on the switch",
    )


def _subnet(rail: Rail, port: Port, comparison: Comparison) -> None:
    subnet = rail.get("subnet", "")
    if not subnet or not rail.get("hca", ""):
        return
    own = _addresses(port, comparison)
    others = [
        f"{face['name']} has {' '.join(hit)}"
        for face in comparison.interfaces
        if face["name"] != port["netdev"] and (hit := _in_subnet(face["addresses"], subnet))
    ]
    comparison.judge(
        bool(_in_subnet(own, subnet)),
        f"{rail['name']}: {_where(port)} is in {subnet} with {' '.join(_in_subnet(own, subnet))}",
        f"{rail['name']}: {_where(port)}: expected an address in {subnet}, found {' '.join(own) or 'none'}"
        + (f"; {', '.join(others)}" if others else ""),
        "rails are crossed, or the interface has no address: see netplan on the host, or correct rdma_rails",
    )


def _gid(rail: Rail, port: Port, comparison: Comparison) -> None:
    """The index under which a port speaks RoCE v2 over IPv4; NCCL_IB_GID_INDEX must name it where it is set."""
    if port["link_layer"] != "Ethernet":
        return
    subnet = rail.get("subnet", "")
    fitting = [
        gid
        for gid in port["gids"]
        if gid["type"] == "RoCE v2" and gid["address"] and (not subnet or _in_subnet([gid["address"]], subnet))
    ]
    indices = [gid["index"] for gid in fitting]
    told = ", ".join(f"index {gid['index']} is RoCE v2 of {gid['address']}" for gid in fitting)
    expected = str(comparison.wanted["gid_index"])
    have = ", ".join(
        f"{gid['index']}: {gid['type'] or 'no type'} {gid['address'] or gid['gid']}" for gid in port["gids"]
    )
    comparison.judge(
        bool(indices) and expected in ("", *map(str, indices)),
        f"{rail['name']}: {_where(port)}: GID {told}",
        f"{rail['name']}: {_where(port)}: expected {'GID index ' + expected if expected else 'a GID'} of RoCE v2 over IPv4"
        f"{' in ' + subnet if subnet else ''}, found {have or 'no GID'}",
        "correct rdma_gid_index (and NCCL_IB_GID_INDEX in the cluster file's env), or give the interface its address",
    )


def _pfc(rail: Rail, port: Port, comparison: Comparison) -> None:
    expected, fact = comparison.wanted["pfc_priorities"], port["pfc"]
    if "unknown" in fact:
        if expected:
            comparison.problems.append(
                f"{rail['name']}: {_where(port)}: expected flow control on priorities {_numbers(expected)}, "
                f"found nothing: {fact['unknown']}\n  → install iproute2 with dcb, or leave rdma_pfc_priorities empty"
            )
        else:
            comparison.found.append(f"{rail['name']}: {_where(port)}: flow control not known: {fact['unknown']}")
        return
    found = fact["value"]
    comparison.judge(
        not expected or sorted(map(int, expected)) == found,
        f"{rail['name']}: {_where(port)}: flow control on priorities {_numbers(found)} ({fact['from']})",
        f"{rail['name']}: {_where(port)}: expected flow control on priorities {_numbers(expected)}, found {_numbers(found)}",
        "`dcb pfc set dev INTERFACE prio-pfc all:off 3:on`, kept by the host's network configuration, and on the switch",
    )


def _numbers(numbers: Sequence[Any]) -> str:
    return " ".join(str(number) for number in sorted(map(int, numbers))) or "none"


def _undeclared(taken: Mapping[tuple[str, int], str], comparison: Comparison) -> None:
    others = comparison.wanted["other_devices"]
    for port in comparison.ports:
        if (port["device"], port["port"]) in taken or port["state"] != "ACTIVE":
            continue
        if port["device"] in others:
            comparison.found.append(f"{_where(port)} is ACTIVE and no rail (rdma_other_devices)")
        elif comparison.wanted["rails"]:
            comparison.problems.append(
                f"{_where(port)} is ACTIVE at {port['rate_gbit_s']:g} Gb/s and no rail is declared for it"
                "\n  → declare it in rdma_rails, or in rdma_other_devices where it carries something else"
            )


class FilterModule:
    """As Ansible finds filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rdma_compare": rdma_compare}
