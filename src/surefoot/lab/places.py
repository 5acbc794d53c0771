"""The one owner of every path of the lab on this machine.

::

    <home>/base/<key>/               base root that all hosts of all labs share, read-only
    <home>/base/<key>.json           what is in it; written last, so that half a base root is none
    <home>/slots/<number>            which lab holds an address range
    <home>/labs/<name>.lock          held by the command that changes the lab
    <home>/labs/<name>/lab.json      state: what was asked for, recorded processes, faults
                       ssh_config    ssh -F … head
                       cluster.yaml  for surefoot climb --cluster
                       inventory.yml for ansible-playbook, with the site's own in ansible/inventory
                       id id.pub known_hosts secrets/
                       ansible/ provisioning.log   what Ansible kept, and what it did
                       shared/       the shared root: the same path here and on every host
                       shared/home/  /home of every host
                       hosts/<host>/ upper/ work/ root/ console.log
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from surefoot.errors import RequestError

DEFAULT_HOME = "/var/lib/surefoot-lab"
HOME_VARIABLE = "SUREFOOT_LAB_HOME"

_HOME = re.compile(r"/[A-Za-z0-9/._-]+")  # overlayfs splits its options at : and ,
_MAX_HOME = 60


@dataclass(frozen=True)
class LabPaths:
    """Paths of one lab."""

    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.lock")

    @property
    def state(self) -> Path:
        return self.folder / "lab.json"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    @property
    def provisioning(self) -> Path:
        return self.folder / "provisioning.log"

    @property
    def ansible(self) -> Path:
        return self.folder / "ansible"

    @property
    def key(self) -> Path:
        return self.folder / "id"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def user_homes(self) -> Path:
        return self.shared / "home"

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    def host(self, name: str) -> HostPaths:
        return HostPaths(self.hosts / name)


@dataclass(frozen=True)
class HostPaths:
    """Paths of one host: its overlay over the base root, and what its console said."""

    folder: Path

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"


@dataclass(frozen=True)
class LabHome:
    """Paths below the lab's home on this machine."""

    folder: Path

    @property
    def bases(self) -> Path:
        return self.folder / "base"

    @property
    def base_lock(self) -> Path:
        return self.folder / "base.lock"

    @property
    def slots(self) -> Path:
        return self.folder / "slots"

    @property
    def labs(self) -> Path:
        return self.folder / "labs"

    def lab(self, name: str) -> LabPaths:
        return LabPaths(self.labs / name)

    def names(self) -> list[str]:
        """Labs that have a state file, sorted."""
        return sorted(path.parent.name for path in self.labs.glob("*/lab.json"))


def lab_home(text: str) -> LabHome:
    """The lab's home, checked: overlayfs, ssh and sockets must be able to spell it. Raises RequestError."""
    if not _HOME.fullmatch(text) or len(text) > _MAX_HOME or ".." in text:
        raise RequestError(
            f"the lab cannot live in {text!r}: an absolute path of letters, digits, '.', '_', '-' and '/',"
            f" at most {_MAX_HOME} characters, is needed",
            next_action=f"leave --home and {HOME_VARIABLE} out ({DEFAULT_HOME}), or name such a folder",
        )
    return LabHome(Path(text))
