"""What a lab is asked to be, and the names and addresses that follow from it. Pure."""

from __future__ import annotations

import enum

from pydantic import Field, model_validator

from surefoot.model.base import Record

HEAD = "head"
MGMT = "mgmt"
"""Not a host: the network namespace through which this machine reaches the hosts."""
SWITCH = "sw"
CLIMBER = "climber"
"""The ordinary user of the lab, with a home that every host shares."""
CLIMBER_UID = 2001
DEFAULT_SUITE = "bookworm"
MAX_NODES = 64
MAX_SLOTS = 200

_NETWORK = "10.77"


class Tier(enum.StrEnum):
    """How much of a host a host is."""

    HOSTS = "hosts"
    """systemd-nspawn: own root, systemd, sshd, services, accounting with a database."""
    NAMESPACES = "namespaces"
    """Own root, network, host name and sshd, but no systemd and no accounting: up in seconds."""


class LabSpec(Record):
    """What `surefoot lab up` was asked for."""

    name: str = Field(default="lab", pattern=r"^[a-z][a-z0-9]{0,11}$")
    tier: Tier = Tier.HOSTS
    suite: str = Field(default=DEFAULT_SUITE, pattern=r"^[a-z][a-z0-9.-]{1,30}$")
    """Debian suite of the hosts, and so their version of Slurm."""
    nodes: int = Field(default=2, ge=1, le=MAX_NODES)
    gpus_per_node: int = Field(default=8, ge=0, le=16)
    """Pretended: device files without a device behind them."""
    cpus_per_node: int = Field(default=96, ge=1, le=1024)
    """Pretended: Slurm places ranks as if they were there; they share the machine's."""
    memory_mib: int = Field(default=2_000_000, ge=1024)
    """Pretended, per node."""
    binds: tuple[str, ...] = ()
    """Folders of this machine that every host sees, read-only, under the same path."""
    by_roles: bool = False
    """Its hosts are made a cluster by ``ansible/site.yml``, not by files that are written before they start."""
    bare: bool = False
    """Hosts as a machine just installed: systemd, sshd and Python, and nothing of Slurm. Something else makes them nodes."""
    python: str = ""
    """Interpreter for the cluster file; empty: the hosts' own, which has nothing but its standard library."""

    @model_validator(mode="after")
    def _bare_hosts_have_systemd(self) -> LabSpec:
        if self.bare and self.tier is not Tier.HOSTS:
            raise ValueError("bare hosts are of the tier hosts: what is installed on them wants systemd")
        if self.by_roles and (self.bare or self.tier is not Tier.HOSTS):
            raise ValueError("roles make a cluster of hosts of the tier hosts, with the packages that they install")
        return self

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The head, then the nodes."""
        return (HEAD, *self.node_names)


def address(slot: int, host: str) -> str:
    """IPv4 address of a host (or of `MGMT`) in the lab that holds `slot`: labs have a /24 each."""
    assert 0 <= slot < MAX_SLOTS
    last = {MGMT: 2, HEAD: 10}.get(host)
    if last is None:
        last = 10 + int(host.removeprefix("n"))
    return f"{_NETWORK}.{slot}.{last}"


def namespace(lab: str, host: str) -> str:
    """Name of a network namespace of a lab: of a host, of `MGMT` or of `SWITCH`."""
    return f"surefoot-{lab}-{host}"


def port(host: str) -> str:
    """Name of a host's port on the switch, inside the switch's namespace."""
    return f"v-{host}"
