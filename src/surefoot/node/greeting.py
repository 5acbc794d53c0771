"""Listening on a host's addresses so that a caller hears which host it is, and calling. Standard library only.

Whoever listens greets with its own nonce, ``surefoot NONCE``, and `FILLER` bytes behind it: a path that
lets small packets through and swallows large ones (a switch whose MTU is less than the hosts') is
found by what does not arrive. Nothing is ever read from a caller.
"""

from __future__ import annotations

import errno
import hashlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from surefoot.node.facts import Fact

GREETING = b"surefoot "
LONGEST = 200
"""Bytes within which a greeting ends."""
FILLER = 32768
"""Bytes after it: several of the largest packets."""
FIRST_PORT, PORTS, TRIED_PORTS = 49152, 16384, 8
FAMILIES = {"4": socket.AF_INET, "6": socket.AF_INET6}


@contextmanager
def listening(nonce: str, execution: str) -> Iterator[dict[str, Fact]]:
    """Greet whoever connects, on one port of all IPv4 and one of all IPv6 addresses; yields those ports by family.

    The port follows from `execution`, so that all hosts of a job listen on the same one: a wrong host then
    says who it is, where another port would only be refused. Where that one is taken, on others.
    Raises OSError where it can listen on none.
    """
    wish = FIRST_PORT + int(hashlib.sha256(execution.encode()).hexdigest(), 16) % PORTS
    with ExitStack() as open_now:
        selector = open_now.enter_context(selectors.DefaultSelector())
        ports = {}
        for name, family in FAMILIES.items():
            try:
                listener = open_now.enter_context(_listener(family, wish))
            except OSError as e:
                ports[name] = {"value": None, "unknown": f"cannot listen: {e}"}
            else:
                selector.register(listener, selectors.EVENT_READ)
                ports[name] = {"value": listener.getsockname()[1]}
        if all(port["value"] is None for port in ports.values()):
            raise OSError(errno.EADDRNOTAVAIL, f"this host can listen on no address: {ports}")
        stop, wake = (open_now.enter_context(end) for end in socket.socketpair())
        selector.register(wake, selectors.EVENT_READ)
        greeter = threading.Thread(
            target=_greet, args=(selector, wake, GREETING + nonce.encode() + b"\n" + bytes(FILLER)), daemon=True
        )
        greeter.start()
        try:
            yield ports
        finally:
            stop.send(b"\n")
            greeter.join(5)


def _listener(family: socket.AddressFamily, wish: int) -> socket.socket:
    """A listening socket on the first free one of the ports that are tried. Raises OSError."""
    tried = [FIRST_PORT + (wish - FIRST_PORT + step) % PORTS for step in range(TRIED_PORTS)]
    for port in (*tried, 0):  # 0: whichever is free
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Of its callers too: what is sent never waits for them.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * FILLER)
            listener.bind(("", port))
            listener.listen(1024)
        except OSError as e:
            listener.close()
            if e.errno != errno.EADDRINUSE or port == 0:
                raise
        else:
            listener.setblocking(False)
            return listener
    raise AssertionError("unreachable")


def _greet(selector: selectors.BaseSelector, wake: socket.socket, greeting: bytes) -> None:
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake:
                return
            try:
                caller, _ = key.fileobj.accept()  # type: ignore[union-attr]
                with caller:
                    caller.settimeout(1)
                    caller.sendall(greeting)
            except OSError:
                time.sleep(0.01)  # it hung up, or no descriptor is free for now: the next one waits in the queue


def call(address: str, port: int, limit_s: float, interface: str = "", source: str = "") -> dict[str, Any]:
    """One connection: its outcome, the nonce that greeted, and the time it took.

    It is held to `interface` where the kernel lets a user do that (Linux 5.7), else begun from `source` alone.
    """
    begun = time.monotonic()
    held, greeted, detail = False, None, ""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as to:
            held = bool(interface) and _hold(to, interface)
            if source:
                to.bind((source, 0))
            to.settimeout(limit_s)
            to.connect((address, port))
            outcome, greeted, detail = _greeting(to, begun + limit_s)
    except OSError as e:
        outcome, detail = _outcome(e), str(e)
    return {
        "outcome": outcome, "greeted": greeted, "held": held, "detail": detail[:200],
        "time_ms": round((time.monotonic() - begun) * 1e3, 3),
    }  # fmt: skip


def _hold(to: socket.socket, interface: str) -> bool:
    try:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
    except PermissionError:
        return False
    return True


def _greeting(to: socket.socket, deadline: float) -> tuple[str, str | None, str]:
    """(outcome, nonce, what was wrong). Whoever does not greet as this module does is no node of ours."""
    data, ended = b"", ""
    while not ended:
        to.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            more = to.recv(1 << 16)
        except TimeoutError:
            ended = "silence"
        else:
            data += more
            ended = "" if more else "end"
        if len(data) > LONGEST and (b"\n" not in data[:LONGEST] or len(data) > LONGEST + FILLER):
            break
    line, _, filler = data.partition(b"\n")
    if not line.startswith(GREETING) or len(line) > LONGEST:
        return "stranger" if data else "silent", None, f"connected, and {data[:60]!r} came"
    nonce = line[len(GREETING) :].decode(errors="replace")
    if len(filler) != FILLER:
        return "cut off", nonce, f"{len(filler)} of {FILLER} bytes came after its greeting, then {ended}"
    return "greeted", nonce, ""


def _outcome(e: OSError) -> str:
    """What became of a connection that failed."""
    if isinstance(e, TimeoutError):
        return "timed out"
    outcomes = {
        errno.ECONNREFUSED: "refused",
        errno.ENETUNREACH: "no route",
        errno.EHOSTUNREACH: "unreachable",
        errno.EADDRNOTAVAIL: "failed",
    }
    return outcomes.get(e.errno or 0, "failed")
