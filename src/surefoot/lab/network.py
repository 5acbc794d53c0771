"""The lab's network: a switch in a namespace of its own, a namespace for each host. This machine's network is not touched."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from surefoot.errors import MachineryError
from surefoot.lab.commands import run
from surefoot.lab.spec import MGMT, SWITCH, LabSpec, address, namespace, port

NETNS = Path("/run/netns")


def namespaces(spec: LabSpec) -> tuple[str, ...]:
    """All network namespaces of a lab, the switch first."""
    return tuple(namespace(spec.name, host) for host in (SWITCH, MGMT, *spec.hosts))


def up_commands(spec: LabSpec, slot: int) -> list[list[str]]:
    """The commands that make the network, in order. Pure."""
    switch = namespace(spec.name, SWITCH)
    inside = ["ip", "-n", switch, "link"]
    commands = [
        ["ip", "netns", "add", switch],
        [*inside, "set", "lo", "up"],
        [*inside, "add", "br0", "type", "bridge"],
        [*inside, "set", "br0", "up"],
    ]
    for host in (MGMT, *spec.hosts):
        own = namespace(spec.name, host)
        commands += [
            ["ip", "netns", "add", own],
            ["ip", "-n", own, "link", "set", "lo", "up"],
            ["ip", "-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", port(host), "netns", switch],
            ["ip", "-n", own, "addr", "add", f"{address(slot, host)}/24", "dev", "eth0"],
            ["ip", "-n", own, "link", "set", "eth0", "up"],
            [*inside, "set", port(host), "master", "br0", "up"],
        ]
    return commands


def up(spec: LabSpec, slot: int) -> None:
    """Make the network. Raises MachineryError; what was made until then is found by name and removed by `down`."""
    for command in up_commands(spec, slot):
        run(command, next_action=f"surefoot lab down --name {spec.name} removes what is there already")


def down(spec: LabSpec) -> None:
    """Remove the network, after ending what still runs in it (a user's ssh through the management namespace)."""
    for name in namespaces(spec):
        if not (NETNS / name).exists():
            continue
        for pid in run(["ip", "netns", "pids", name], check=False).stdout.split():
            _end(int(pid))
        done = run(["ip", "netns", "del", name], check=False)
        if (NETNS / name).exists():
            raise MachineryError(f"the network namespace {name} cannot be removed: {done.stderr.strip()}")


def _end(pid: int) -> None:
    assert pid > 1
    if pid == os.getpid():
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def set_port(spec: LabSpec, host: str, *, up: bool) -> None:
    """Plug a host's cable in at the switch, or pull it: the host sees its carrier go."""
    run(["ip", "-n", namespace(spec.name, SWITCH), "link", "set", port(host), "up" if up else "down"])


def port_is_up(spec: LabSpec, host: str) -> bool:
    """Whether a host's cable is plugged in at the switch."""
    shown = run(["ip", "-n", namespace(spec.name, SWITCH), "-o", "link", "show", port(host)]).stdout
    return ",UP" in shown.partition("<")[2].partition(">")[0]


def _ends(spec: LabSpec, host: str) -> tuple[tuple[str, str], ...]:
    """Both ends of a host's cable as (namespace, interface): each shapes what it sends."""
    return (namespace(spec.name, host), "eth0"), (namespace(spec.name, SWITCH), port(host))


def shape(spec: LabSpec, host: str, rate: str) -> None:
    """Hold a host's link to a rate in tc's words (``200mbit``), both ways."""
    for name, interface in _ends(spec, host):
        add = ["tc", "-n", name, "qdisc", "add", "dev", interface, "root"]
        run([*add, "tbf", "rate", rate, "burst", "64kb", "latency", "50ms"])


def unshape(spec: LabSpec, host: str) -> None:
    """Give a host's link its full rate again."""
    for name, interface in _ends(spec, host):
        if "tbf" in _queue(name, interface):
            run(["tc", "-n", name, "qdisc", "del", "dev", interface, "root"])


def is_shaped(spec: LabSpec, host: str) -> bool:
    """Whether either end of a host's cable is held to a rate."""
    return any("tbf" in _queue(name, interface) for name, interface in _ends(spec, host))


def _queue(name: str, interface: str) -> str:
    return run(["tc", "-n", name, "qdisc", "show", "dev", interface, "root"]).stdout
