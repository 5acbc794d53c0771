"""Hosts that are network namespaces of this machine, joined by bridges in one more. Root, iproute2 and util-linux.

Nothing of the machine's own network is touched: the cables run between the namespaces alone, and the
kernel takes all of it away with them. Inside, ``/sys``, ``/etc/hosts`` and the host's name are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent.parent / "src"
PROGRAM = Path(__file__).with_name("meeting_host.py")
SHORT = {"others_s": 8.0, "connect_s": 1.5, "name_s": 3.0, "linger_s": 8.0}


def possible() -> str:
    """Why such hosts cannot be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces want root"
    missing = [tool for tool in ("ip", "unshare", "mount") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


def ip(*lines: str, netns: str = "") -> None:
    """Commands of iproute2, each without its leading ``ip``; in one process. Raises CalledProcessError."""
    command = ["ip", *(["-n", netns] if netns else []), "-batch", "-"]
    done = subprocess.run(
        command, check=False, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{lines}: {done.stdout}{done.stderr}"


@dataclass
class Hosts:
    """Some hosts, and the networks between them."""

    folder: Path
    names: tuple[str, ...]
    mark: str
    hosts_files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each host; for whoever judges, no program is given it."""

    def netns(self, host: str) -> str:
        return f"{self.mark}-{host}"

    def network(self, name: str) -> None:
        """A switch of its own for one network: a bridge that no host is."""
        switch = self.netns("switch")
        ip(f"link add sw-{name} type bridge", f"link set sw-{name} up mtu 9000", netns=switch)

    def cable(self, network: str, host: str, interface: str, address: str, mtu: int = 1500) -> None:
        """A cable from a host's new interface to a network."""
        switch, end = self.netns("switch"), f"{network}-{self.names.index(host)}"
        ip(
            f"link add {end} type veth peer name {interface} netns {self.netns(host)}",
            f"link set {end} master sw-{network} up mtu {max(mtu, 1500)}",
            netns=switch,
        )
        rows = [f"link set {interface} up mtu {mtu}"]
        rows += [f"addr add {address} dev {interface}"] if address else []
        ip(*rows, netns=self.netns(host))

    def do(self, host: str, *lines: str) -> None:
        """Commands of iproute2 on a host."""
        ip(*lines, netns=self.netns(host))

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """A command as that host would run it, with its own name and its own /etc/hosts."""
        hosts = self.folder / f"hosts-{host}"
        hosts.write_text(self.hosts_files.get(host, "127.0.0.1 localhost\n"))
        inside = f'mount --bind {hosts} /etc/hosts && hostname {host} && exec "$@"'
        return ["ip", "netns", "exec", self.netns(host), "unshare", "--mount", "--uts", "sh", "-c", inside, "sh", *argv]

    def meet(self, only: Sequence[str] | None = None, **limits: float) -> dict[str, dict[str, Any]]:
        """What each host's ``reach-HOST.json`` says after they met; `only`: those of them that came."""
        job = self.folder / "job"
        job.mkdir(exist_ok=True)
        running = {}
        for host in only or self.names:
            asked = {
                "folder": str(job), "me": host, "everyone": self.names, "execution": "one", "limits": {**SHORT, **limits},
            }  # fmt: skip
            argv = self.command(host, [sys.executable, str(PROGRAM), json.dumps(asked)])
            running[host] = subprocess.Popen(
                argv, env={**os.environ, "PYTHONPATH": str(SOURCES)}, stderr=subprocess.PIPE, text=True
            )
        for host, process in running.items():
            try:
                _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
            assert process.returncode == 0, f"{host}: {errors}"
        return {host: json.loads((job / f"reach-{host}.json").read_text()) for host in running}

    def facts(self, host: str) -> dict[str, Any]:
        """What that host found of its interfaces and devices."""
        return json.loads((self.folder / "job" / f"facts-{host}.json").read_text())


@contextlib.contextmanager
def hosts(folder: Path, *names: str) -> Iterator[Hosts]:
    """Hosts with a loopback alone; gone afterwards, with whatever still runs in them."""
    made = Hosts(folder=folder, names=names, mark=f"sft{os.getpid()}")
    spaces = [made.netns(name) for name in ("switch", *names)]
    try:
        for space in spaces:
            subprocess.run(["ip", "netns", "add", space], check=True, timeout=30)
            ip("link set lo up", netns=space)
        yield made
    finally:
        for space in spaces:
            found = subprocess.run(
                ["ip", "netns", "pids", space], check=False, capture_output=True, text=True, timeout=30
            )
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=30)
