"""What the kernel knows of links, addresses and routes, asked by rtnetlink: no root, no ``ip``. Standard library only.

Layouts are those of linux/netlink.h, rtnetlink.h, if_link.h and if_addr.h. Every question is bounded
in time; what the kernel refuses is an OSError, an answer that is not what they describe a ValueError.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

HEADER, LINK, ADDRESS, ROUTE, ATTRIBUTE = (
    struct.Struct(form) for form in ("=IHHII", "=BxHiII", "=BBBBI", "=BBBBBBBBI", "=HH")
)
"""nlmsghdr, ifinfomsg, ifaddrmsg, rtmsg, nlattr."""

NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR, RTM_NEWROUTE, RTM_GETROUTE = 16, 18, 20, 22, 24, 26
NLM_F_REQUEST, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
SCOPES = {0: "global", 200: "site", 253: "link", 254: "host"}
MAIN_TABLE, UNICAST = 254, 1

QUESTION_LIMIT_S = 5.0
TRIES = 5
"""A listing that links changed under is asked for again."""


def attributes(data: bytes) -> dict[int, bytes]:
    """Type → content of a row of attributes. Raises ValueError where one is cut off."""
    found: dict[int, bytes] = {}
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        size, kind = ATTRIBUTE.unpack_from(data, at)
        if size < ATTRIBUTE.size or at + size > len(data):
            raise ValueError(f"netlink attribute {kind & 0x3FFF} of {size} bytes does not fit its message")
        found[kind & 0x3FFF] = data[at + ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, flags, content) of each message that one datagram holds. Raises ValueError where one is cut off."""
    at = 0
    while at + HEADER.size <= len(data):
        size, kind, flags, _, _ = HEADER.unpack_from(data, at)
        if size < HEADER.size or at + size > len(data):
            raise ValueError(f"netlink message of type {kind} and {size} bytes does not fit its datagram")
        yield kind, flags, data[at + HEADER.size : at + size]
        at += (size + 3) & ~3


def ask(kind: int, content: bytes, *, dump: bool) -> list[bytes]:
    """Contents of the kernel's answers to one question. Raises OSError where it refuses or stays silent."""
    for _ in range(TRIES):
        answers, whole = _ask_once(kind, content, dump=dump)
        if whole:
            return answers
    raise OSError(errno.EINTR, f"links and routes changed during each of {TRIES} listings")


def _ask_once(kind: int, content: bytes, *, dump: bool) -> tuple[list[bytes], bool]:
    flags = NLM_F_REQUEST | (NLM_F_DUMP if dump else 0)
    answers: list[bytes] = []
    whole = True
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(QUESTION_LIMIT_S)
        kernel.bind((0, 0))
        kernel.send(HEADER.pack(HEADER.size + len(content), kind, flags, 1, 0) + content)
        while True:
            data, _, received, _ = kernel.recvmsg(1 << 20)
            if received & socket.MSG_TRUNC:
                raise ValueError("netlink datagram of more than a MiB")
            for answer, answer_flags, body in messages(data):
                whole = whole and not answer_flags & NLM_F_DUMP_INTR
                if answer == NLMSG_DONE:
                    return answers, whole
                if answer == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    raise OSError(code, os.strerror(code))
                answers.append(body)
            if not dump:
                return answers, whole


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.rstrip(b"\0").decode(errors="replace")


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int(struct.unpack("=I", raw[:4])[0])


def link(body: bytes) -> dict[str, Any]:
    """One network interface. `kind` is what its driver calls itself where it is virtual (``bridge``, ``veth``)."""
    _, arphrd, index, flags, _ = LINK.unpack_from(body)
    told = attributes(body[LINK.size :])
    info = attributes(told.get(18, b""))
    state, mac = told.get(16, b"\0")[0], told.get(1)
    return {
        "index": index, "name": _text(told[3]), "arphrd": arphrd,
        "up": bool(flags & IFF_UP), "carrier": bool(flags & IFF_LOWER_UP),
        "state": STATES[state] if state < len(STATES) else str(state),
        "mtu": _number(told[4]), "mac": mac.hex(":") if mac else None,
        "kind": _text(info.get(1)), "port_kind": _text(info.get(4)),
        # Numbers of other interfaces; `below` counts in another namespace where `elsewhere` says so.
        "master": _number(told.get(10)), "below": _number(told.get(5)), "elsewhere": 37 in told,
    }  # fmt: skip


def address(body: bytes) -> dict[str, Any]:
    """One address of an interface."""
    family, prefix, _, scope, index = ADDRESS.unpack_from(body)
    told = attributes(body[ADDRESS.size :])
    # On a link between two, 1 is the other end and 2 this one; elsewhere both are the same, or 2 is missing.
    raw = told[2] if family == socket.AF_INET and 2 in told else told[1]
    return {
        "index": index, "address": str(ipaddress.ip_address(raw)), "prefix": prefix,
        "scope": SCOPES.get(scope, str(scope)),
    }  # fmt: skip


def route(body: bytes) -> dict[str, Any]:
    """One route. `index` is the interface, None where several share it or none has it."""
    family, bits, _, _, table, _, _, kind, _ = ROUTE.unpack_from(body)
    told = attributes(body[ROUTE.size :])
    anywhere = b"\0" * (4 if family == socket.AF_INET else 16)
    gateway, source = told.get(5), told.get(7)
    return {
        "to": f"{ipaddress.ip_address(told.get(1, anywhere))}/{bits}", "index": _number(told.get(4)),
        "gateway": str(ipaddress.ip_address(gateway)) if gateway else None,
        "source": str(ipaddress.ip_address(source)) if source else None,
        "metric": _number(told.get(6)) or 0,
        "table": _number(told.get(15)) or table, "kind": kind,
        "hops": list(_hops(told.get(9, b""))),
    }  # fmt: skip


def _hops(data: bytes) -> Iterator[int]:
    """Interfaces of a route over several (struct rtnexthop: length, flags, weight, interface)."""
    at = 0
    while at + 8 <= len(data):
        size, _, _, index = struct.unpack_from("=HBBi", data, at)
        if size < 8:
            raise ValueError(f"next hop of {size} bytes")
        yield index
        at += (size + 3) & ~3


def links() -> list[dict[str, Any]]:
    """All interfaces of this process's network namespace. Raises OSError, ValueError, KeyError."""
    return [link(body) for body in ask(RTM_GETLINK, LINK.pack(0, 0, 0, 0, 0), dump=True)]


def addresses() -> list[dict[str, Any]]:
    """All their addresses, IPv4 and IPv6. Raises OSError, ValueError, KeyError."""
    return [address(body) for body in ask(RTM_GETADDR, ADDRESS.pack(0, 0, 0, 0, 0), dump=True)]


def routes() -> list[dict[str, Any]]:
    """Unicast routes of the main tables, IPv4 and IPv6. Raises OSError, ValueError, KeyError."""
    question = ROUTE.pack(0, 0, 0, 0, 0, 0, 0, 0, 0)
    answers = ask(RTM_GETROUTE, question, dump=True)
    # Other families (multicast, MPLS) are listed too, and no route of theirs is asked about here.
    found = [route(body) for body in answers if body[0] in (socket.AF_INET, socket.AF_INET6)]
    return [row for row in found if row["table"] == MAIN_TABLE and row["kind"] == UNICAST]


def route_to(target: str) -> dict[str, Any]:
    """The way that the kernel takes to an address. Raises OSError (ENETUNREACH) where there is none."""
    raw = ipaddress.ip_address(target).packed
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    question = ROUTE.pack(family, len(raw) * 8, 0, 0, 0, 0, 0, 0, 0) + ATTRIBUTE.pack(4 + len(raw), 1) + raw
    return route(ask(RTM_GETROUTE, question, dump=False)[0])
