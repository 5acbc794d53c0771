"""What Ansible lists: an inventory's hosts, groups and variables, and a site's plays. Complete, or an error. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.errors import EvidenceError
from surefoot.evidence import parse_json

READ = ("ansible_host",)
"""Variables that are read from the listing. Others are asked for by name, templates worked out (``look``)."""


@dataclass(frozen=True)
class Listed:
    """``ansible-inventory --list``."""

    variables: Mapping[str, Mapping[str, Any]]
    """Host → its variables, those of its groups merged in; templates are as they were written."""
    own: Mapping[str, tuple[str, ...]]
    """Group → hosts that stand in it."""
    children: Mapping[str, tuple[str, ...]]
    """Group → groups below it."""

    @property
    def hosts(self) -> list[str]:
        """Every host, sorted."""
        return sorted(self.variables)

    def within(self, group: str) -> list[str]:
        """Hosts of a group and of those below it, sorted; empty where there is no such group."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [group]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                found |= set(self.own.get(name, ()))
                waiting += self.children.get(name, ())
        return sorted(found)

    def address(self, host: str) -> str:
        """How the host is reached: ``ansible_host``, else its name."""
        return str(self.variables[host].get("ansible_host") or host)


def inventory_of(text: str, *, file: str, recorded: bool = False) -> Listed:
    """Raises EvidenceError where it is not the whole of an inventory with a host in it.

    `recorded`: as `kept` writes it, with every host among the variables and every key in each group; Ansible
    itself leaves out what is empty.
    """
    data = parse_json(text, file=file)
    meta = data.get("_meta") if isinstance(data, dict) else None
    told = meta.get("hostvars") if isinstance(meta, dict) else None
    if not isinstance(told, dict) or not all(isinstance(values, dict) for values in told.values()):
        raise EvidenceError("ansible-inventory: no _meta.hostvars of every host", file=file, text=text[:200])
    if recorded:
        _refuse_left_out(data, file)
    own: dict[str, tuple[str, ...]] = {}
    children: dict[str, tuple[str, ...]] = {}
    for name, group in data.items():
        if name == "_meta":
            continue
        if not isinstance(group, dict) or not set(group) <= {"hosts", "children", "vars"}:
            raise EvidenceError(f"ansible-inventory: group {name!r} is none", file=file, text=str(group))
        own[name] = _names(group.get("hosts", []), name, file)
        children[name] = _names(group.get("children", []), name, file)
    if "all" not in own:
        raise EvidenceError("ansible-inventory: no group all: the output is not whole", file=file)
    hosts = {host for names in own.values() for host in names}
    if not hosts:
        raise EvidenceError("ansible-inventory: not one host", file=file)
    if strangers := sorted(set(told) - hosts):
        raise EvidenceError(f"ansible-inventory: {', '.join(strangers[:5])} in no group", file=file)
    listed = Listed({host: told.get(host, {}) for host in sorted(hosts)}, own, children)
    if lost := sorted(hosts - set(listed.within("all"))):
        raise EvidenceError(f"ansible-inventory: {', '.join(lost[:5])} not below the group all", file=file)
    return listed


def _refuse_left_out(data: Mapping[str, Any], file: str) -> None:
    """What `kept` writes is all there, also what is empty."""
    groups = {name: group for name, group in data.items() if name != "_meta"}
    for name, group in groups.items():
        if not isinstance(group, dict) or set(group) != {"hosts", "children"}:
            raise EvidenceError(f"ansible-inventory: group {name!r} is not whole", file=file, text=str(group))
    hosts = {host for group in groups.values() for host in group["hosts"] if isinstance(host, str)}
    told = data["_meta"]["hostvars"]
    if lost := sorted(host for host in hosts if set(told.get(host, ())) != set(READ)):
        raise EvidenceError(f"ansible-inventory: {', '.join(lost[:5])} without {' and '.join(READ)}", file=file)


def kept(text: str, *, file: str) -> str:
    """Of ``ansible-inventory --list`` what is read: groups, hosts, and the variables in `READ`, as JSON.

    The whole of it holds every password, token and receiver that an inventory sets, under whatever names; none
    of that is recorded. Raises EvidenceError, as `inventory_of`, where it is not the whole of an inventory:
    what was cut off must not become a smaller one.
    """
    listed = inventory_of(text, file=file)
    variables = {host: {name: values.get(name) for name in READ} for host, values in listed.variables.items()}
    groups = {
        name: {"hosts": list(hosts), "children": [child for child in listed.children[name] if child in listed.own]}
        for name, hosts in listed.own.items()
    }
    return json.dumps({"_meta": {"hostvars": variables}, **groups}, indent=1)


def _names(value: Any, group: str, file: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise EvidenceError(f"ansible-inventory: group {group!r} holds what is no name", file=file, text=str(value))
    if len(set(value)) != len(value):
        raise EvidenceError(f"ansible-inventory: group {group!r} holds a name twice", file=file, text=str(value))
    return tuple(value)


@dataclass(frozen=True)
class Play:
    """A play of a playbook and the hosts that it is for."""

    name: str
    hosts: frozenset[str]


_PLAY = re.compile(r"^  play #(\d+) \((.*?)\): (.*?)\tTAGS: \[.*\]$")
_PATTERN = re.compile(r"^    pattern: \[.*\]$")
_COUNT = re.compile(r"^    hosts \((\d+)\):$")
_HOST = re.compile(r"^      (\S.*)$")


def plays_of(rows: Sequence[str], *, file: str) -> list[Play]:
    """``ansible-playbook --list-hosts``. Raises EvidenceError for a row that is none, and where hosts are missing."""
    plays: list[tuple[str, list[str]]] = []
    count: int | None = None
    for row in rows:
        if not row.strip() or row.startswith("playbook: ") or _PATTERN.match(row):
            continue
        if match := _PLAY.match(row):
            _refuse_missing(plays, count, file)
            if int(match.group(1)) != len(plays) + 1:
                raise EvidenceError(
                    f"ansible-playbook --list-hosts: play {len(plays) + 1} is missing", file=file, text=row
                )
            plays.append((match.group(3).strip(), []))
            count = None
        elif (match := _COUNT.match(row)) and plays and count is None:
            count = int(match.group(1))
        elif (match := _HOST.match(row)) and plays and count is not None:
            plays[-1][1].append(match.group(1))
        else:
            raise EvidenceError("ansible-playbook --list-hosts: neither a play nor a host", file=file, text=row)
    _refuse_missing(plays, count, file)
    if not plays:
        raise EvidenceError("ansible-playbook --list-hosts: not one play", file=file)
    return [Play(name, frozenset(hosts)) for name, hosts in plays]


def _refuse_missing(plays: Sequence[tuple[str, list[str]]], count: int | None, file: str) -> None:
    if plays and len(set(plays[-1][1])) != count:
        name, hosts = plays[-1]
        raise EvidenceError(f"ansible-playbook --list-hosts: {len(hosts)} of {count} hosts of play {name!r}", file=file)
