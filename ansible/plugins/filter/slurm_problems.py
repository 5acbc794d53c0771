"""What an inventory says of Slurm and cannot hold: nodes, partitions, QOS. Used by validate.yml, before any host is touched."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

DOCUMENTATION = """
name: slurm_problems
short_description: What an inventory says of Slurm and cannot hold
"""

Variables = Mapping[str, Any]
Groups = Mapping[str, Sequence[str]]

_SHARED = (
    "slurm_cluster_name", "slurm_config", "slurm_partitions", "slurm_conf_lines", "slurm_release", "slurm_state_folder",
    "slurm_uid", "slurm_qos", "slurm_accounts",
)  # fmt: skip
"""What slurm.conf and accounting are made of: there is one of each, whatever a host says."""
_OF_NODES = {"slurm_node_cpus": "CPUs", "slurm_node_memory_mib": "RealMemory"}
_NAMES_QOS = (
    ("slurm_partitions", "partition", ("qos", "allowqos", "denyqos")),
    ("slurm_accounts", "account", ("qos", "defaultqos")),
    ("slurm_qos", "QOS", ("preempt",)),
)
_PARTITION = re.compile(r"\s*(PartitionName\s*=|Include\s)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*Include\s", re.IGNORECASE)
_NODES = re.compile(r"\s*Node(?:Set|Name)\s*=\s*(\S+)", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9]\d*")
_MOST = 65_536


def slurm_problems(hostvars: Mapping[str, Variables], groups: Groups, folder: str) -> list[str]:
    """Everything about Slurm that must be changed first; empty where there is none. `folder` is that of the playbooks."""
    hosts = {host: hostvars[host] for host in groups.get("slurm", [])}
    if not hosts:
        return []
    file = Path(folder) / "roles/slurm/defaults/main.yml"
    said = {**(yaml.safe_load(file.read_text()) if file.is_file() else {})}
    of = hosts[next(iter(hosts))]
    said.update({name: of[name] for name in said if name in of})
    return [
        *_nodes(hosts, groups),
        *_one_text(hosts),
        *_partitions(said, groups.get("slurm_node", [])),
        *_qos(said, groups),
        *_backup(said, groups),
    ]


def _nodes(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    for name, word in _OF_NODES.items():
        values = {host: hosts.get(host, {}).get(name) for host in groups.get("slurm_node", [])}
        if without := [host for host, value in values.items() if value in (None, "")]:
            yield (
                f"{name} is not set for {_few(without)}: set it for the host or its group, to what `slurmd -C` prints"
                f" there as {word} or less"
            )
        odd = [host for host, value in values.items() if value not in (None, "") and not _NUMBER.fullmatch(str(value))]
        if odd:
            yield (
                f"{name} of {_few(odd)} is {str(values[odd[0]])!r}: write a number, as `slurmd -C` prints it there as {word}"
            )


def _one_text(hosts: Mapping[str, Variables]) -> Iterator[str]:
    first = next(iter(hosts))
    for name in _SHARED:
        wanted = hosts[first].get(name)
        if others := [host for host in hosts if hosts[host].get(name) != wanted]:
            yield (
                f"{name} is another for {_few(others)} than for {first}, and there is one slurm.conf and one accounting"
                " for all: set it once, in group_vars/all"
            )


def _partitions(said: Variables, nodes: Sequence[str]) -> Iterator[str]:
    lines = [str(each) for each in said.get("slurm_conf_lines") or []]
    partitions = _rows(said, "slurm_partitions")
    if not said.get("slurm_partitions") and not any(_PARTITION.match(each) for each in lines):
        yield "slurm_partitions is empty: no job could be submitted; name one, or leave the variable out for the role's own"
    names = [str(one.get("name") or "") for one in partitions]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"slurm_partitions has {name} {names.count(name)} times: leave one"
    if len(default := [name for name, one in zip(names, partitions, strict=True) if _true(one.get("default"))]) > 1:
        yield f"slurm_partitions has {len(default)} defaults ({', '.join(default)}): leave `default: true` at one"
    if not any(_INCLUDE.match(each) for each in lines):  # nodes and sets of nodes may stand there
        known = {*nodes, *(match[1] for each in lines if (match := _NODES.match(each)))}
        for name, one in zip(names, partitions, strict=True):
            yield from _nodes_of_partition(name, one.get("nodes"), known, nodes)


def _nodes_of_partition(name: str, value: object, known: set[str], nodes: Sequence[str]) -> Iterator[str]:
    for text in _listed(value):
        try:
            named = hosts_of(text)
        except ValueError as error:
            yield f"slurm_partitions: nodes of {name} are {text!r}: {error}; write n1,n2 or n[1-4,7]"
            continue
        if lost := [host for host in named if host not in known and host.upper() != "ALL"]:
            near = difflib.get_close_matches(lost[0], nodes, 1) if len(lost) == 1 else []
            hint = f"; is {near[0]} meant?" if near else ""
            yield (
                f"slurm_partitions: {name} names {_few(lost)}, and the group slurm_node has no such host: correct"
                f" nodes, or put the host there{hint}"
            )


def _qos(said: Variables, groups: Groups) -> Iterator[str]:
    named = _named_qos(said)
    if not groups.get("slurm_database"):
        # Accounting that another site keeps (slurm_config) has QOS that nothing is known of here.
        if named and not any(
            str(key).lower().startswith("accountingstorage") for key in said.get("slurm_config") or {}
        ):
            yield (
                f"{next(iter(named.values()))[0]} names the QOS {next(iter(named))}, and slurm_database is empty: QOS are"
                " kept by accounting; put a host into slurm_database, or name no QOS"
            )
        return
    defined = {str(one.get("name") or "").lower() for one in _rows(said, "slurm_qos")} | {"normal"}
    for qos, where in named.items():
        if qos not in defined:
            near = difflib.get_close_matches(qos, defined, 1)
            hint = f"is {near[0]} meant?" if near else f"add it to slurm_qos, which has {', '.join(sorted(defined))}"
            yield f"{', '.join(where)} names the QOS {qos}, which slurm_qos does not define: {hint}"


def _named_qos(said: Variables) -> dict[str, list[str]]:
    """Every QOS that something names, in small letters as Slurm has them, with what names it."""
    named: dict[str, list[str]] = {}
    for variable, word, keys in _NAMES_QOS:
        for one in _rows(said, variable):
            for key, value in (one.get("options") or {}).items():
                for qos in _listed(value) if str(key).lower() in keys else []:
                    named.setdefault(qos.lstrip("+-=").lower(), []).append(f"{word} {one.get('name')} ({key})")
    named.pop("all", None)
    named.pop("", None)
    return named


def _rows(said: Variables, name: str) -> list[Variables]:
    rows = said.get(name) or []
    return [one for one in rows if isinstance(one, Mapping)] if isinstance(rows, (list, tuple)) else []


def _backup(said: Variables, groups: Groups) -> Iterator[str]:
    backup = groups.get("slurm_backup_controller", [])
    if backup and str(said.get("slurm_state_folder")) == "/var/lib/slurm/slurmctld":
        yield (
            f"slurm_backup_controller has {_few(backup)}, and slurm_state_folder is {said['slurm_state_folder']}, which no"
            " two hosts share: name a folder on storage that all controllers share"
        )


def hosts_of(text: str) -> list[str]:
    """Hosts of one of Slurm's lists, such as ``gpu[01-03,7],login``. Raises ValueError with the reason."""
    found: list[str] = []
    for item in re.split(r",(?![^\[]*\])", text):
        pieces = re.split(r"\[([^\[\]]*)\]", item.strip())
        if not item.strip() or any(mark in piece for piece in pieces[::2] for mark in "[] \t"):
            raise ValueError(
                "a bracket is not closed" if "[" in item or "]" in item else "a name is empty or has blanks"
            )
        ways = [[piece] if place % 2 == 0 else list(_numbers(piece)) for place, piece in enumerate(pieces)]
        for names in itertools.product(*ways):
            found.append("".join(names))
            if len(found) > _MOST:
                raise ValueError(f"more than {_MOST} hosts")
    return found


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())):
            raise ValueError(f"{part!r} is no range of numbers")
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) <= _MOST:
            raise ValueError(f"{part!r} is no range of numbers")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def _listed(value: object) -> list[str]:
    """Words of a list, or of a text with commas outside brackets."""
    if value is None:
        return []
    parts: Iterable[object] = value if isinstance(value, (list, tuple)) else re.split(r",(?![^\[]*\])", str(value))
    return [str(part).strip() for part in parts]


def _true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def _few(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_problems": slurm_problems}
