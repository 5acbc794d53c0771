"""Networks of well-known sites as their nodes would tell of them, to judge and to damage: pure, no host is asked.

What stands where is the reference system's for the Sparks (two ConnectX-7 rails on 192.168.177/178,
management on 192.168.1.0/24, Docker, CNI, Tailscale, wireless) and a DGX H100's for the others (eight
400 Gbit/s InfiniBand or RoCE ports, two more for storage, a BMC's USB network that is alike on all).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from surefoot.hardware.network_facts import NodeNetwork
from surefoot.node.reach import neighbours, own_addresses

Json = dict[str, Any]
Wire = Callable[[str, str, str, str], str | None]
"""(caller, interface, called, address) → outcome of the call; None: what the tables of this module say."""


def known(value: Any) -> Json:
    return {"value": value}


def unknown(why: str) -> Json:
    return {"value": None, "unknown": why}


class Site:
    """Some nodes, each a row of interfaces, routes and devices that may be changed before they are judged."""

    def __init__(self, *nodes: str) -> None:
        self.names = nodes
        self.interfaces: dict[str, list[Json]] = {node: [] for node in nodes}
        self.routes: dict[str, list[Json]] = {node: [] for node in nodes}
        self.hcas: dict[str, list[Json]] = {node: [] for node in nodes}
        self.environment: dict[str, dict[str, str]] = {node: {} for node in nodes}
        self.resolved: dict[str, dict[str, Json]] = {node: {} for node in nodes}
        self.silent: set[str] = set()
        self.wire: Wire = lambda *_: None

    def add(self, node: str, name: str, *addresses: str, **more: Any) -> Json:
        """An interface; hardware with a link unless `more` says otherwise."""
        virtual = more.get("kind") is not None or more.get("arphrd") == 772
        row = {
            "name": name, "index": len(self.interfaces[node]) + 1, "arphrd": 1, "up": True, "carrier": True,
            "state": "up", "mtu": 1500, "mac": "02:00:00:00:00:01", "kind": None, "port_kind": None,
            "master": None, "below": None, "elsewhere": False, "ports": [],
            "addresses": [_address(text) for text in addresses],
            "device": known(None if virtual else f"0000:{len(self.interfaces[node]):02x}:00.0"),
            "bus": known(None if virtual else "pci"), "driver": known(None if virtual else "mlx5_core"),
            "numa_node": known(None), "wireless": known(False), "devtype": known(None),
            "speed_mbit_s": unknown("LookupError: speed says -1: the driver does not know") if virtual else known(1000),
            "counters": known({"rx_errors": 0, "tx_errors": 0}),
        }  # fmt: skip
        row.update(more)
        self.interfaces[node].append(row)
        return row

    def get(self, node: str, name: str) -> Json:
        return next(row for row in self.interfaces[node] if row["name"] == name)

    def drop(self, node: str, name: str) -> None:
        self.interfaces[node].remove(self.get(node, name))

    def rename(self, node: str, name: str, to: str) -> None:
        """As udev does it after a new card: interface, routes and GIDs say the new name."""
        self.get(node, name)["name"] = to
        for route in self.routes[node]:
            route["interfaces"] = [to if other == name else other for other in route["interfaces"]]
        for hca in self.hcas[node]:
            for gid in self.port(node, hca["name"])["gids"]["value"]:
                gid["netdev"] = to if gid["netdev"] == name else gid["netdev"]

    def move(self, node: str, name: str, address: str) -> None:
        """Another address, which its GIDs follow."""
        row = self.get(node, name)["addresses"][0]
        old, new = (ipaddress.IPv6Address(f"::ffff:{text}").exploded for text in (row["address"], address))
        row["address"] = address
        for hca in self.hcas[node]:
            for gid in self.port(node, hca["name"])["gids"]["value"]:
                gid["gid"] = new if gid["gid"] == old else gid["gid"]

    def unplug(self, node: str, name: str) -> None:
        """No cable: no link, and the RDMA port behind it is down."""
        self.get(node, name).update(carrier=False, state="down", speed_mbit_s=unknown("LookupError: speed says -1"))
        for hca in self.hcas[node]:
            port = self.port(node, hca["name"])
            if any(gid["netdev"] == name for gid in port["gids"]["value"]):
                port.update(
                    state=known("DOWN"), physical_state=known("Disabled"), rate=known("40 Gb/sec (4X QDR)"),
                    rate_gbit_s=known(40.0), gids=known([]),
                )  # fmt: skip

    def default(self, node: str, interface: str, gateway: str) -> None:
        self.routes[node].append(
            {"to": "0.0.0.0/0", "interfaces": [interface], "gateway": gateway, "source": None, "metric": 0}
        )

    def hca(
        self, node: str, name: str, interface: str = "", rate: float = 200.0, *, ipoib: str = "", **more: Any
    ) -> Json:
        """An RDMA device of one port: RoCE behind an interface, else InfiniBand."""
        gids = []
        if interface:
            row = self.get(node, interface)
            local = "fe80:0000:0000:0000:4ebb:47ff:fe00:0001"
            gids = [_gid(0, local, "IB/RoCE v1", interface), _gid(1, local, "RoCE v2", interface)]
            for entry in row["addresses"]:
                mapped = ipaddress.IPv6Address(f"::ffff:{entry['address']}").exploded
                index = len(gids)
                gids += [_gid(index, mapped, "IB/RoCE v1", interface), _gid(index + 1, mapped, "RoCE v2", interface)]
        else:
            gids = [_gid(0, "fe80:0000:0000:0000:a088:c203:0030:9a0d", "IB/RoCE v1", None)]
        port = {
            "number": 1, "link_layer": known("Ethernet" if interface else "InfiniBand"), "state": known("ACTIVE"),
            "physical_state": known("LinkUp"), "rate_gbit_s": known(rate), "rate": known(f"{rate:g} Gb/sec (4X NDR)"),
            "lid": known(0 if interface else 17), "subnet_manager_lid": known(0 if interface else 1),
            "active_mtu": unknown("sysfs does not tell the active MTU of an RDMA port; ibv_devinfo does"),
            "gids": known(gids), "counters": known({"port_rcv_errors": 0}), "hw_counters": known({"out_of_sequence": 0}),
        }  # fmt: skip
        port.update(more)
        device = self.get(node, interface or ipoib)["device"]
        found = {
            "name": name, "pci": device, "driver": known("mlx5_core"), "numa_node": known(0), "type": known("MT4129"),
            "board": known("MT_0000000838"), "firmware": known("28.45.4028"), "node_guid": known("fc4c:ea03:00f9:4234"),
            "ports": known([port]),
        }  # fmt: skip
        self.hcas[node].append(found)
        return found

    def port(self, node: str, hca: str) -> Json:
        return next(h for h in self.hcas[node] if h["name"] == hca)["ports"]["value"][0]

    def nodes(self) -> list[NodeNetwork]:
        """Records of all, with what they would find when they call each other."""
        return [
            NodeNetwork.model_validate({
                "node": node, "interfaces": self.interfaces[node], "routes": self.routes[node],
                "hcas": known(self.hcas[node]), "reach": None if node in self.silent else self._reach(node),
                "environment": self.environment[node],
            })
            for node in self.names
        ]  # fmt: skip

    def _reach(self, node: str) -> Json:
        own = own_addresses(self.interfaces[node])
        near = [self.names[index] for index in neighbours(self.names.index(node), len(self.names))]
        calls = []
        for other in near:
            for entry in [] if other in self.silent else own_addresses(self.interfaces[other]):
                calls += self._calls(node, own, other, entry["address"])
        names = {name: self._name(node, name) for name in (node, *near) if name not in self.silent}
        return {
            "me": node, "execution": "one", "host": node, "nonce": f"nonce-{node}", "ports": {"4": known(61933)},
            "addresses": own, "neighbours": near, "absent": [n for n in near if n in self.silent],
            "waited_s": 0.1, "calls": calls, "names": names, "took_s": 0.2,
        }  # fmt: skip

    def _name(self, node: str, name: str) -> Json:
        addresses = own_addresses(self.interfaces[name])
        return self.resolved[node].get(name, known([addresses[0]["address"]] if addresses else ["192.0.2.99"]))

    def _calls(self, node: str, own: list[Json], other: str, address: str) -> list[Json]:
        to = ipaddress.ip_address(address)
        near = [e for e in own if to in ipaddress.ip_network(f"{e['address']}/{e['prefix']}", strict=False)]
        default = [name for route in self.routes[node] for name in route["interfaces"]]
        used = near or [e for e in own if e["interface"] in default][:1]
        row = {"node": other, "address": address, "held": True, "detail": "", "greeted": None, "greeted_by": None}
        if not used:
            return [{**row, "interface": None, "source": None, "outcome": "no route", "time_ms": 0.0}]
        return [self._call(row, node, entry, near=bool(near), own=own) for entry in used]

    def _call(self, row: Json, node: str, entry: Json, *, near: bool, own: list[Json]) -> Json:
        other, address = row["node"], row["address"]
        outcome = self.wire(node, entry["interface"], other, address)
        who: str | None = other
        if outcome is None and address in [e["address"] for e in own]:
            outcome, who = "other host", node
        outcome = outcome or ("reached" if near else "timed out")
        answered = outcome in ("reached", "other host", "cut off")
        return {
            **row, "interface": entry["interface"], "source": entry["address"], "outcome": outcome, "time_ms": 0.5,
            "greeted": f"nonce-{who}" if answered else None, "greeted_by": who if answered else None,
        }  # fmt: skip


def _address(text: str) -> Json:
    at = ipaddress.ip_interface(text)
    scope = "host" if at.is_loopback else "link" if at.is_link_local and at.version == 6 else "global"
    return {"address": str(at.ip), "prefix": at.network.prefixlen, "scope": scope}


def _gid(index: int, gid: str, kind: str, netdev: str | None) -> Json:
    return {"index": index, "gid": gid, "type": kind, "netdev": netdev}


def two_sparks() -> Site:
    """The reference system: 17 interfaces a node, two of its four ConnectX-7 functions cabled."""
    site = Site("spark-1", "spark-2")
    for number, node in enumerate(site.names, 1):
        site.add(node, "lo", "127.0.0.1/8", arphrd=772, state="unknown", mtu=65536)
        site.add(node, "enP7s7", f"192.168.1.{10 + number}/24", driver=known("r8127"), device=known("0007:01:00.0"))
        for function, domain in (("enp1s0f", "0000"), ("enP2p1s0f", "0002")):
            site.add(
                node, f"{function}0np0", carrier=False, state="down", device=known(f"{domain}:01:00.0"),
                speed_mbit_s=unknown("LookupError: speed says -1"),
            )  # fmt: skip
            rail = 177 if domain == "0000" else 178
            site.add(
                node, f"{function}1np1", f"192.168.{rail}.{10 + number}/24", device=known(f"{domain}:01:00.1"),
                mtu=9000, speed_mbit_s=known(200_000),
            )  # fmt: skip
        site.add(node, "wlP9s9", f"192.168.1.{110 + number}/24", wireless=known(True), devtype=known("wlan"))
        site.add(node, "docker0", "172.17.0.1/16", kind="bridge", ports=["veth0a", "veth0b"])
        site.add(node, "br-5f1d2c3b4a59", "172.18.0.1/16", kind="bridge", ports=["veth1a"])
        for port, bridge in (("veth0a", "docker0"), ("veth0b", "docker0"), ("veth1a", "br-5f1d2c3b4a59")):
            site.add(node, port, kind="veth", port_kind="bridge", master=bridge, elsewhere=True)
        site.add(node, "cni0", f"10.42.{number - 1}.1/24", kind="bridge", ports=["veth2a", "veth2b"])
        for port in ("veth2a", "veth2b"):
            site.add(node, port, kind="veth", port_kind="bridge", master="cni0", elsewhere=True)
        site.add(node, "flannel.1", f"10.42.{number - 1}.0/32", kind="vxlan", mtu=1450)
        site.add(node, "tailscale0", f"100.101.102.{number}/32", kind="tun", arphrd=65534, mtu=1280)
        site.default(node, "enP7s7", "192.168.1.1")
        for hca, interface in (("rocep1s0f1", "enp1s0f1np1"), ("roceP2p1s0f1", "enP2p1s0f1np1")):
            site.hca(node, hca, interface)
        for hca, interface in (("rocep1s0f0", "enp1s0f0np0"), ("roceP2p1s0f0", "enP2p1s0f0np0")):
            site.hca(
                node, hca, interface, rate=40.0, state=known("DOWN"), physical_state=known("Disabled"), gids=known([])
            )
    return site


def h100(nodes: int = 4, *, roce: bool = False) -> Site:
    """Nodes with eight rails of 400 Gbit/s, management on a bond, storage on two more ports, and a BMC's USB network."""
    site = Site(*(f"gpu{number:02d}" for number in range(1, nodes + 1)))
    for number, node in enumerate(site.names, 1):
        site.add(node, "lo", "127.0.0.1/8", arphrd=772, mtu=65536)
        for port in ("eno1", "eno2"):
            site.add(node, port, master="bond0", port_kind="bond", speed_mbit_s=known(25_000), driver=known("ice"))
        site.add(
            node,
            "bond0",
            f"10.0.{number >> 8}.{number & 255}/16",
            kind="bond",
            ports=["eno1", "eno2"],
            speed_mbit_s=known(50_000),
        )
        site.add(
            node, "enx0a1b2c", "169.254.3.1/24", bus=known("usb"), driver=known("cdc_ether"), speed_mbit_s=known(1000)
        )
        site.add(node, "docker0", "172.17.0.1/16", kind="bridge", carrier=False, state="down")
        for rail in range(8):
            if roce:
                address = f"10.{100 + rail}.{number >> 8}.{number & 255}/16"
                site.add(node, f"rail{rail}", address, mtu=9000, speed_mbit_s=known(400_000))
                site.hca(node, f"mlx5_{rail}", f"rail{rail}", rate=400.0)
            else:
                site.add(node, f"ib{rail}", arphrd=32, kind=None, mtu=4092, speed_mbit_s=known(400_000))
                site.hca(node, f"mlx5_{rail}", ipoib=f"ib{rail}", rate=400.0)
        for extra in (8, 9):
            address = f"10.{200 + extra}.{number >> 8}.{number & 255}/16"
            site.add(node, f"storage{extra - 8}", address, mtu=9000, speed_mbit_s=known(200_000))
            site.hca(node, f"mlx5_{extra}", f"storage{extra - 8}", rate=200.0)
        site.default(node, "bond0", "10.0.255.254")
    return site


def management_only(nodes: int = 3) -> Site:
    """Nodes with one Ethernet port and Docker."""
    site = Site(*(f"n{number}" for number in range(1, nodes + 1)))
    for number, node in enumerate(site.names, 1):
        site.add(node, "lo", "127.0.0.1/8", arphrd=772)
        site.add(node, "eno1", f"10.1.0.{number}/24", driver=known("igb"))
        site.add(node, "docker0", "172.17.0.1/16", kind="bridge")
        site.default(node, "eno1", "10.1.0.254")
    return site
