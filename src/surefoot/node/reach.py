"""Which node reaches which, over which interface, before there is a process group. Standard library only.

One process a node listens on every address and writes ``net-<node>.json`` (addresses, port, nonce)
into the job's folder; it reads those of its neighbours and connects to each of their addresses, from
each own interface that leads there. Whoever is listening greets with its own nonce, so that a wrong
host is told from the right one: docker0 is 172.17.0.1 everywhere, a host's own name may lead to
127.0.1.1, and two hosts may have one address. What came of it stands in ``reach-<node>.json``.
Everything is bounded in time, and a neighbour that never wrote is named.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.files import write_atomic
from surefoot.node.facts import Fact, fact, netlink
from surefoot.node.greeting import call, listening

ALL_PAIRS_UP_TO = 16
"""Nodes up to which each connects to all others; beyond, to some (`neighbours`)."""
AT_ONCE = 96
"""Connections tried at the same time."""


@dataclass(frozen=True)
class Limits:
    """How long is waited for what, seconds."""

    others_s: float = 60.0
    """For the files of neighbours: as far apart as the nodes of a job start."""
    connect_s: float = 3.0
    """For a connection and its greeting. A SYN that is lost is sent again after 1 s."""
    name_s: float = 5.0
    """For the resolver."""
    linger_s: float = 30.0
    """For neighbours to be done, while this node still answers them."""


@dataclass(frozen=True)
class Meeting:
    """Who meets whom where."""

    folder: Path
    """On shared storage, the same for all."""
    me: str
    everyone: tuple[str, ...]
    """All nodes by the names that the scheduler calls them by, in the same order on each."""
    execution: str
    """Same for all nodes of one execution of the job: files of an earlier one lie in the same folder."""

    def __post_init__(self) -> None:
        """Names are those of files, and one is this node's. Raises ValueError."""
        wrong = [name for name in self.everyone if not name or "/" in name]
        if wrong or len(set(self.everyone)) != len(self.everyone) or self.me not in self.everyone:
            raise ValueError(f"{self.me} among {self.everyone}: names must differ, hold no /, and one is this node's")

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those that this node connects to, in everyone's order."""
        chosen = neighbours(self.everyone.index(self.me), len(self.everyone))
        return tuple(self.everyone[index] for index in chosen)

    @property
    def callers(self) -> tuple[str, ...]:
        """Those that connect to this node: all others to the first."""
        me, nodes = self.everyone.index(self.me), len(self.everyone)
        return tuple(name for index, name in enumerate(self.everyone) if me in neighbours(index, nodes))

    def file(self, kind: str, node: str) -> Path:
        """Where `node` writes what (``net``, ``reach``)."""
        return self.folder / f"{kind}-{node}.json"


def neighbours(me: int, nodes: int) -> list[int]:
    """Numbers of the nodes that node `me` of `nodes` connects to.

    Beyond `ALL_PAIRS_UP_TO`: the ones next to it on a ring, both ways, so that a way that leads one way only
    shows; those 2, 4, 8, … further on; and the first, which all ranks must find.
    """
    if nodes <= ALL_PAIRS_UP_TO:
        return [index for index in range(nodes) if index != me]
    steps = [-1, *(1 << power for power in range(nodes.bit_length()) if 1 << power < nodes)]
    return sorted(({(me + step) % nodes for step in steps} | {0}) - {me})


def own_addresses(interfaces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Addresses that others might reach this node by: of interfaces with a link, loopback and IPv6 link-local left out."""
    found = []
    for interface in interfaces:
        if not (interface["up"] and interface["carrier"]) or interface["arphrd"] == 772:
            continue
        for entry in interface["addresses"]:
            at = ipaddress.ip_address(entry["address"])
            if entry["scope"] == "host" or (at.version == 6 and at.is_link_local):
                continue
            found.append({"interface": interface["name"], "address": str(at), "prefix": entry["prefix"]})
    return found


def ways(address: str, own: Sequence[dict[str, Any]], index: dict[int, str]) -> list[tuple[str, str]]:
    """(interface, source address) of every own interface that leads to `address`.

    All those on whose subnet it lies, be it several; where there is none, the one that the kernel's
    route names. `index` is number → name of the interfaces. Raises OSError where there is no route.
    """
    to = ipaddress.ip_address(address)
    near = [
        (entry["interface"], entry["address"])
        for entry in own
        if to in ipaddress.ip_network(f"{entry['address']}/{entry['prefix']}", strict=False)
    ]
    if near:
        return near
    route = netlink.route_to(address)
    name = index.get(route["index"] or 0, "")
    sources = [entry["address"] for entry in own if entry["interface"] == name]
    same_family = [s for s in sources if ipaddress.ip_address(s).version == to.version]
    source = route["source"] or next(iter(same_family), None)
    return [(name, source)] if source else []


def wait_for(found: Callable[[set[str]], set[str]], wanted: Iterable[str], limit_s: float, stir: Path) -> set[str]:
    """Those of `wanted` that `found` (names not seen yet → those seen now) never saw within the limit.

    NFS lets a client believe for up to a minute that a folder has not changed, but not of one that it
    changes itself: a file of ours that comes and goes there (`stir`) makes it look again.
    """
    deadline, pause_s, stirred = time.monotonic() + limit_s, 0.05, time.monotonic()
    missing = set(wanted)
    while True:
        missing -= found(missing)
        left_s = deadline - time.monotonic()
        if not missing or left_s <= 0:
            return missing
        time.sleep(min(pause_s, left_s))
        pause_s = min(2.0, pause_s * 1.5)
        if time.monotonic() - stirred > 4:
            write_atomic(stir, "")
            stir.unlink(missing_ok=True)
            stirred = time.monotonic()


def read_cards(meeting: Meeting, kind: str, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Node → its file of this execution. One that is not there, or of an earlier execution, is left out."""
    there = {entry.name for entry in meeting.folder.iterdir()}
    cards = {}
    for node in wanted:
        path = meeting.file(kind, node)
        if path.name not in there:
            continue
        try:
            card = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # replaced, or stale on NFS: the next look opens it anew
        if isinstance(card, dict) and card.get("execution") == meeting.execution and card.get("me") == node:
            cards[node] = card
    return cards


def resolve(names: Iterable[str], limit_s: float) -> dict[str, Fact]:
    """Name → the addresses that it leads to here, in the resolver's order; unknown where it fails or is silent."""
    answers: dict[str, Fact] = {}

    def ask(name: str) -> None:
        answers[name] = fact(lambda: _resolve(name))

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = {"value": None, "unknown": f"the resolver gave no answer in {limit_s:g} s"}
    return {name: answers.get(name, silent) for name in names}


def _resolve(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def meet(meeting: Meeting, interfaces: Sequence[dict[str, Any]], limits: Limits | None = None) -> dict[str, Any]:
    """Meet the neighbours and say what came of it; also written to ``reach-<me>.json``.

    `interfaces` is what `surefoot.node.facts.network.interfaces` found. Raises StorageError where the
    folder cannot be written, OSError where this node can listen on no port at all.
    """
    limits = limits or Limits()
    begun, nonce = time.monotonic(), secrets.token_hex(16)
    own = own_addresses(interfaces)
    with listening(nonce, meeting.execution) as ports:
        card = {
            "me": meeting.me, "execution": meeting.execution, "host": socket.gethostname(), "nonce": nonce,
            "ports": ports, "addresses": own,
        }  # fmt: skip
        write_atomic(meeting.file("net", meeting.me), json.dumps(card, indent=1))
        cards: dict[str, dict[str, Any]] = {}

        def arrived(missing: set[str]) -> set[str]:
            new = read_cards(meeting, "net", missing)
            cards.update(new)
            return set(new)

        stir = meeting.folder / f".stir-{meeting.me}"
        absent = wait_for(arrived, meeting.neighbours, limits.others_s, stir)
        waited_s = time.monotonic() - begun
        index = {interface["index"]: interface["name"] for interface in interfaces}
        found = {
            **card,
            "neighbours": list(meeting.neighbours),
            "absent": [node for node in meeting.neighbours if node in absent],
            "waited_s": round(waited_s, 3),
            "calls": _calls(
                own, index, cards, {**{c["nonce"]: n for n, c in cards.items()}, nonce: meeting.me}, limits
            ),
            "names": resolve([meeting.me, *cards], limits.name_s),
        }
        found["took_s"] = round(time.monotonic() - begun, 3)
        write_atomic(meeting.file("reach", meeting.me), json.dumps(found, indent=1, allow_nan=False))
        wait_for(
            lambda missing: set(read_cards(meeting, "reach", missing)),
            set(meeting.callers) - absent,
            limits.linger_s,
            stir,
        )
    return found


def _calls(
    own: Sequence[dict[str, Any]],
    index: dict[int, str],
    cards: dict[str, dict[str, Any]],
    nonces: dict[str, str],
    limits: Limits,
) -> list[dict[str, Any]]:
    """Every call to every address of every neighbour, in a steady order, whoever greeted by name."""
    planned: list[tuple[dict[str, Any], int | None]] = []
    for node, card in sorted(cards.items()):
        for entry in card["addresses"]:
            address = entry["address"]
            port = card["ports"]["6" if ":" in address else "4"]["value"]
            to = {"node": node, "address": address}
            try:
                leading = ways(address, own, index)
            except (OSError, ValueError, LookupError) as e:
                planned.append(({**to, "interface": None, "source": None, **_no_way(str(e))}, None))
                continue
            if not leading or port is None:
                why = "no own address to call from" if port else f"{node} does not listen there"
                planned.append(({**to, "interface": None, "source": None, **_no_way(why)}, None))
            planned.extend(
                ({**to, "interface": name, "source": source}, port) for name, source in leading if port is not None
            )

    def done(plan: tuple[dict[str, Any], int | None]) -> dict[str, Any]:
        row, port = plan
        if port is None:
            return row
        result = call(row["address"], port, limits.connect_s, row["interface"], row["source"])
        who = nonces.get(result["greeted"] or "")
        if result["greeted"] is not None and who != row["node"]:
            result["outcome"] = "other host"
        elif result["outcome"] == "greeted":
            result["outcome"] = "reached"
        return {**row, **result, "greeted_by": who}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(done, planned))


def _no_way(why: str) -> dict[str, Any]:
    return {
        "outcome": "no route",
        "greeted": None,
        "held": False,
        "detail": why[:200],
        "time_ms": 0.0,
        "greeted_by": None,
    }
