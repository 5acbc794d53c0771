"""Versions of the packages that roles name, beside each other, and of which roles that is not known. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surefoot.errors import EvidenceError
from surefoot.model.base import Record
from surefoot.provision.events import Playbook
from surefoot.rungs.ansible_view import HostSaid

ABSENT = "not installed"


class RolePackages(Record):
    """What ``surefoot.provision.check`` read of one role."""

    variables: tuple[str, ...]
    """Those that name packages: ``ROLE_packages``, ``ROLE_…_packages``."""
    installs: bool
    """Whether its tasks install packages."""
    there: bool
    """Whether the role's folder was found."""


Named = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Host → variable of a role → packages that it names there."""


@dataclass(frozen=True)
class Versions:
    """Versions of one package on the hosts where a role names it."""

    role: str
    package: str
    distribution: str
    by_host: Mapping[str, str]
    """Host → version; `ABSENT` where it is not."""

    @property
    def unlike(self) -> str:
        """``munge: n2 has 0.5.16-1, others 0.5.15-2``; empty where all are the same."""
        counted = Counter(self.by_host.values())
        if len(counted) <= 1:
            return ""
        most = counted.most_common()
        if most[0][1] > most[1][1]:
            odd = [f"{host} has {version}" for host, version in sorted(self.by_host.items()) if version != most[0][0]]
            return f"{self.package}: {', '.join(odd)}; others {most[0][0]}"
        return f"{self.package}: " + ", ".join(
            f"{host} has {version}" for host, version in sorted(self.by_host.items())
        )


@dataclass(frozen=True)
class _Name:
    """A package that a role names, and whether it is to be on each of the hosts that it is named for."""

    role: str
    package: str
    everywhere: bool


def _names(run: Playbook, roles: Mapping[str, RolePackages], named: Named) -> dict[_Name, set[str]]:
    """Name → hosts that it is named for: by a task that ran there, or by the role's variables.

    ``ROLE_packages`` is what the role wants on a host. Others may be for hosts of another kind (a server's
    packages stand among a client's defaults too): of those, hosts that have the package are compared.
    """
    found: dict[_Name, set[str]] = {}
    for told in run.results:
        for package in told.result.packages:
            found.setdefault(_Name(told.result.role, package, everywhere=True), set()).add(told.result.host)
    ran = {(told.result.host, told.result.role) for told in run.results}
    for role, told_of in roles.items():
        for variable in told_of.variables:
            for host, values in named.items():
                if (host, role) in ran:
                    for package in values.get(variable, ()):
                        name = _Name(role, package, everywhere=variable == f"{role}_packages")
                        found.setdefault(name, set()).add(host)
    return found


def versions_of(
    run: Playbook, roles: Mapping[str, RolePackages], named: Named, said: Mapping[str, HostSaid]
) -> Iterator[Versions]:
    """Each package that a role names, on the hosts that it names it for; hosts of one release are compared."""
    alike: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, hosts in _names(run, roles, named).items():
        for host in hosts & said.keys():
            version = said[host].versions.get(name.package, ABSENT)
            if name.everywhere or version != ABSENT:
                alike.setdefault((name.role, name.package, said[host].distribution), {})[host] = version
    for (role, package, distribution), found in sorted(alike.items()):
        if set(found.values()) != {ABSENT}:  # a name that stands for another package
            yield Versions(role, package, distribution, found)


def silent_hosts(run: Playbook, said: Mapping[str, HostSaid]) -> list[str]:
    """Hosts that were looked at and whose packages are not known."""
    away = {host for host, total in run.totals.items() if total.unreachable}
    return sorted(run.totals.keys() - away - said.keys() - {"localhost"})


def unknown_roles(
    run: Playbook, roles: Mapping[str, RolePackages], named: Named, asked: Playbook | None, file: str
) -> list[str]:
    """Roles whose packages cannot be worked out, each with why. Raises EvidenceError where one is not spoken of."""
    found = []
    ran = {(told.result.host, told.result.role) for told in run.results if told.result.role}
    if lost := sorted({role for _, role in ran} - roles.keys()):
        raise EvidenceError(f"what the roles {', '.join(lost[:5])} say of packages is missing", file=file)
    for role, told_of in sorted(roles.items()):
        if not told_of.there:
            found.append(f"{role}: its folder is neither in roles/ nor where roles_path of ansible.cfg says")
        elif told_of.installs and not told_of.variables:
            found.append(f"{role}: it installs packages, and none of its defaults is named {role}_packages")
        for variable in told_of.variables:
            without = sorted(host for host, values in named.items() if (host, role) in ran and variable not in values)
            if without:
                found.append(
                    f"{role}: {variable} cannot be worked out on {', '.join(without[:4])}: {_why(asked, variable)}"
                )
    return found


def _why(asked: Playbook | None, variable: str) -> str:
    told = asked.of("failed") if asked else []
    why = next((t.result.message for t in told if t.result.task == f"Packages of {variable}"), "")
    return " ".join(why.split())[:200] or "it is not told why"
