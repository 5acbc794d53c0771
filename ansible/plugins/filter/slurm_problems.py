"""What an inventory says of Slurm and cannot hold: nodes, partitions, a backup. Used by validate.yml, before any host is touched."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from runpy import run_path
from typing import Any

import yaml

DOCUMENTATION = """
name: slurm_problems
short_description: What an inventory says of Slurm and cannot hold
"""

Variables = Mapping[str, Any]

_WORDS = run_path(str(Path(__file__).parents[1] / "words.py"))
few = _WORDS["few"]
true = _WORDS["true"]
Groups = Mapping[str, Sequence[str]]

_SHARED = (
    "slurm_cluster_name", "slurm_config", "slurm_partitions", "slurm_conf_lines", "slurm_release", "slurm_state_folder",
    "slurm_uid", "slurm_qos", "slurm_accounts", "slurm_prolog_folder", "slurm_prolog_place", "slurm_prolog_timeout_s",
)  # fmt: skip
"""What slurm.conf and accounting are made of: there is one of each, whatever a host says."""
_OF_NODES = {"slurm_node_cpus": "CPUs", "slurm_node_memory_mib": "RealMemory"}
_PARTITION = re.compile(r"\s*(PartitionName\s*=|Include\s)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*Include\s", re.IGNORECASE)
_NODES = re.compile(r"\s*Node(?:Set|Name)\s*=\s*(\S+)", re.IGNORECASE)
_NUMBER = re.compile(r"[1-9]\d*")
_MOST = 65_536
_OWN_KINDS = ("tmpfs", "ext4", "xfs", "btrfs", "zfs", "overlay", "swap")
"""File systems that one host has for itself."""


def slurm_problems(hostvars: Mapping[str, Variables], groups: Groups, folder: str) -> list[str]:
    """Everything about Slurm that must be changed first; empty where there is none. `folder` is that of the playbooks."""
    hosts = {host: hostvars[host] for host in groups.get("slurm", [])}
    if not hosts:
        return []
    said = said_of(hosts[next(iter(hosts))], folder)
    return [
        *_nodes(hosts, groups),
        *_one_text(hosts),
        *_partitions(said, groups.get("slurm_node", [])),
        *_backup(said, hostvars, groups),
        *_prolog(said, groups.get("slurm_node", []), folder),
    ]


def said_of(variables: Variables, folder: str) -> dict[str, Any]:
    """What one host says of Slurm, over the role's own defaults. `folder` is that of the playbooks."""
    file = Path(folder) / "roles/slurm/defaults/main.yml"
    said = {**(yaml.safe_load(file.read_text()) if file.is_file() else {})}
    said.update({name: variables[name] for name in said if name in variables})
    return said


def _nodes(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    for name, word in _OF_NODES.items():
        values = {host: hosts.get(host, {}).get(name) for host in groups.get("slurm_node", [])}
        if without := [host for host, value in values.items() if value in (None, "")]:
            yield (
                f"{name} is not set for {few(without)}: set it for the host or its group, to what `slurmd -C` prints"
                f" there as {word} or less"
            )
        odd = [host for host, value in values.items() if value not in (None, "") and not _NUMBER.fullmatch(str(value))]
        if odd:
            yield (
                f"{name} of {few(odd)} is {str(values[odd[0]])!r}: write a number, as `slurmd -C` prints it there as {word}"
            )


def _one_text(hosts: Mapping[str, Variables]) -> Iterator[str]:
    first = next(iter(hosts))
    for name in _SHARED:
        wanted = hosts[first].get(name)
        if others := [host for host in hosts if hosts[host].get(name) != wanted]:
            yield (
                f"{name} is another for {few(others)} than for {first}, and there is one slurm.conf and one accounting"
                " for all: set it once, in group_vars/all"
            )


def _partitions(said: Variables, nodes: Sequence[str]) -> Iterator[str]:
    lines = [str(each) for each in said.get("slurm_conf_lines") or []]
    partitions = rows(said, "slurm_partitions")
    if not said.get("slurm_partitions") and not any(_PARTITION.match(each) for each in lines):
        yield "slurm_partitions is empty: no job could be submitted; name one, or leave the variable out for the role's own"
    names = [str(one.get("name") or "") for one in partitions]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"slurm_partitions has {name} {names.count(name)} times: leave one"
    if len(default := [name for name, one in zip(names, partitions, strict=True) if true(one.get("default"))]) > 1:
        yield f"slurm_partitions has {len(default)} defaults ({', '.join(default)}): leave `default: true` at one"
    if not any(_INCLUDE.match(each) for each in lines):  # nodes and sets of nodes may stand there
        known = {*nodes, *(match[1] for each in lines if (match := _NODES.match(each)))}
        for name, one in zip(names, partitions, strict=True):
            yield from _nodes_of_partition(name, one.get("nodes"), known, nodes)


def _nodes_of_partition(name: str, value: object, known: set[str], nodes: Sequence[str]) -> Iterator[str]:
    for text in listed(value):
        try:
            named = hosts_of(text)
        except ValueError as error:
            yield f"slurm_partitions: nodes of {name} are {text!r}: {error}; write n1,n2 or n[1-4,7]"
            continue
        if lost := [host for host in named if host not in known and host.upper() != "ALL"]:
            near = difflib.get_close_matches(lost[0], nodes, 1) if len(lost) == 1 else []
            hint = f"; is {near[0]} meant?" if near else ""
            yield (
                f"slurm_partitions: {name} names {few(lost)}, and the group slurm_node has no such host: correct"
                f" nodes, or put the host there{hint}"
            )


def rows(said: Variables, name: str) -> list[Variables]:
    """Entries of a variable that are mappings; the others are named by `spec_problems`."""
    found = said.get(name) or []
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, (list, tuple)) else []


def _backup(said: Variables, hostvars: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    backup = groups.get("slurm_backup_controller", [])
    folder = PurePosixPath(str(said.get("slurm_state_folder")))
    alone = [
        host
        for host in [*groups.get("slurm_controller", []), *backup]
        if not any(folder.is_relative_to(place) for place in _shared_places(host, hostvars, groups))
    ]
    if backup and alone:
        yield (
            f"slurm_backup_controller has {few(backup)}, and slurm_state_folder is {folder}, which is not known to be shared"
            f" storage on {few(alone)}: name a folder below storage_root, or below a path of storage_mounts or"
            " storage_external_mounts; a takeover without the state would end every job"
        )


def _shared_places(host: str, hostvars: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    """Folders of a host that others have as well, by what the inventory says of its storage."""
    said = hostvars.get(host, {})
    if said.get("storage_root"):
        yield str(said["storage_root"])
    names = ["storage_mounts", "storage_external_mounts"]
    for name in names + (["storage_exports"] if host in groups.get("storage_server", []) else []):
        for one in rows(said, name):
            if str(one.get("fstype") or "") not in _OWN_KINDS and one.get("path"):
                yield str(one["path"])


def _prolog(said: Variables, nodes: Sequence[str], folder: str) -> Iterator[str]:
    named = str(said.get("slurm_prolog_folder") or "")
    if not named:
        return
    write = "surefoot preflight --cluster FILE --write-prolog DIR"
    here = Path(folder) / named
    try:
        record = json.loads((here / "written.json").read_text())
        lacking = [name for name in record["sha256"] if not (here / name).is_file()]
        known = {host for one in record["groups"].values() for host in hosts_of(one["hosts"])}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        yield f"slurm_prolog_folder is {named}, and no prolog lies in {here} ({error}): {write} writes one"
        return
    if lacking:
        yield f"slurm_prolog_folder is {named}, and {few(lacking)} is gone from it: {write} writes it again"
    if without := [host for host in nodes if host not in known]:
        yield (
            f"slurm_prolog_folder is {named}, and no group there has {few(without)}: its prolog would prove nothing on them."
            f" Put them into hosts of the cluster file, then: {write}"
        )
    own = [str(key) for key in said.get("slurm_config") or {} if str(key).lower() == "prolog"]
    if own:
        yield (
            f"slurm_prolog_folder is {named}, and slurm_config has {own[0]} as well: leave one; a prolog of your own may"
            " call the other"
        )
    place = str(said.get("slurm_prolog_place") or "")
    if not re.fullmatch(r"/[A-Za-z0-9._/-]*[A-Za-z0-9]", place):
        yield f"slurm_prolog_place is {place!r}: write an absolute path without blanks"


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


def listed(value: object) -> list[str]:
    """Words of a list, or of a text with commas outside brackets."""
    if value is None:
        return []
    parts: Iterable[object] = value if isinstance(value, (list, tuple)) else re.split(r",(?![^\[]*\])", str(value))
    return [str(part).strip() for part in parts]


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_problems": slurm_problems}
