"""What in an inventory cannot be applied, each with what to change. Used by validate.yml, before any host is touched."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import yaml

Variables = Mapping[str, Any]

_WORDS = run_path(str(Path(__file__).parents[1] / "words.py"))
_few = _WORDS["few"]
Groups = Mapping[str, Sequence[str]]

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TAKEN = ("all", "default", "none", "localhost")
_LOOPBACK = re.compile(r"127\.|::1$|localhost$")
_AT_MOST_ONE = ("slurm_controller", "slurm_database")


def inventory_problems(
    hostvars: Mapping[str, Variables],
    groups: Groups,
    folder: str,
    sources: Sequence[str] = (),
) -> list[str]:
    """Everything that must be changed first; empty where the inventory can be applied.

    `folder` is that of the playbooks; in `sources`, the inventories, the line is looked for that a wrong
    variable stands in. Slurm has slurm_problems; what is missing is told by needed_problems.
    """
    hosts = {host: hostvars[host] for host in groups.get("all", [])}
    return [
        *_empty(groups),
        *_homeless(groups, Path(folder)),
        *_names(hosts, groups),
        *_addresses(hosts),
        *_gpus(hosts, groups),
        *_users(hosts),
        *_storage(hosts, groups),
        *_unknown(hosts, Path(folder), sources),
    ]


def _empty(groups: Groups) -> Iterator[str]:
    if not groups.get("all"):
        yield "the inventory has no hosts: name the site's own with -i, after -i inventory/common"
        return
    if "slurm" not in groups or "common" not in groups:
        yield "the groups slurm and common are unknown: name -i inventory/common first; it says which role runs where"
    if any(groups.get(name) for name in groups if name.startswith("slurm_")) and not groups.get("slurm_controller"):
        yield "the group slurm_controller is empty: put the one host there that runs slurmctld"
    for name in _AT_MOST_ONE:
        if len(found := groups.get(name, [])) > 1:
            more = "; a second controller belongs into slurm_backup_controller" if name == "slurm_controller" else ""
            yield f"the group {name} has {len(found)} hosts ({', '.join(found)}): leave one there{more}"
    if groups.get("slurm_controller") and not groups.get("slurm_node"):
        yield "the group slurm_node is empty: put the hosts there that run jobs"
    if groups.get("slurm_rest") and not groups.get("slurm_database"):
        yield (
            f"slurm_rest has {', '.join(groups['slurm_rest'])}, and slurm_database is empty: put a host into"
            " slurm_database, or empty slurm_rest; slurmrestd asks for accounting at every turn"
        )


def _homeless(groups: Groups, folder: Path) -> Iterator[str]:
    """Hosts that no play of site.yml is for, as in a group ``slurm_nodes``."""
    file = folder / "inventory/common/groups.yml"
    if not file.is_file():
        return
    known = set(_group_names(yaml.safe_load(file.read_text())["all"])) - {"all"}
    placed = {host for name in known for host in groups.get(name, [])}
    for host in groups.get("all", []):
        if host in placed:
            continue
        own = [name for name in groups if name not in ("all", "ungrouped") and host in groups[name]]
        near = [match for name in own for match in difflib.get_close_matches(name, known, 1)]
        hint = f": is {own[0]} meant to be {near[0]}?" if near else f"; groups of roles are {', '.join(sorted(known))}"
        yield f"{host} is in no group that a role runs on ({', '.join(own) or 'in none at all'}){hint}"


def _group_names(group: Mapping[str, Any] | None) -> Iterator[str]:
    for name, below in ((group or {}).get("children") or {}).items():
        yield name
        yield from _group_names(below)


def _names(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    seen: dict[str, str] = {}
    in_slurm = set(groups.get("slurm", []))
    for host in hosts:
        labels = host.split(".")
        if not all(_LABEL.fullmatch(label) for label in labels):
            yield (
                f"{host!r} is no host name that DNS takes: rename it with letters, digits and - alone, not at an end,"
                " and at most 63 of them"
            )
        elif host in in_slurm and (len(labels) > 1 or host.lower() in _TAKEN or host.isdigit()):
            yield (
                f"Slurm cannot call a node {host!r} (a name with dots, a number, or a word of its own): give it a short"
                f" name in the inventory, and ansible_host: {host}"
            )
        short = labels[0].lower()
        if short in seen:
            yield f"{seen[short]} and {host} have the same short name {short}: rename one"
        seen.setdefault(short, host)
    for name in sorted({str(of["slurm_cluster_name"]) for of in hosts.values() if "slurm_cluster_name" in of}):
        if not _CLUSTER.fullmatch(name):
            yield f"slurm_cluster_name {name!r}: accounting takes small letters, digits, _ and -, at most 40 of them"


def _addresses(hosts: Mapping[str, Variables]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for host, of in hosts.items():
        address = str(of.get("common_address") or of.get("ansible_host") or host)
        if address in seen:
            yield (
                f"{seen[address]} and {host} have the same address {address}: correct common_address or ansible_host of one"
            )
        seen.setdefault(address, host)
        if len(hosts) > 1 and _LOOPBACK.match(address):
            yield f"{host} has the address {address}, where every other host finds itself: set common_address"


def _gpus(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    counted, typed = [], []
    for host in groups.get("gres", groups.get("slurm_node", [])):
        of = hosts.get(host, {})
        count, kind = of.get("gres_gpus_per_node"), of.get("gres_gpu_type")
        if count is not None and not re.fullmatch(r"\d+", str(count)):
            yield f"gres_gpus_per_node of {host} is {count!r}: write the number of its GPUs, or 0"
        elif count is not None and int(count) > 0 and not kind:
            counted.append(host)
        elif kind and count is None:
            typed.append(host)
    if counted:
        yield (
            f"gres_gpus_per_node is set for {_few(counted)}, and gres_gpu_type is not: name the GPU (h100, gb10 …), as"
            " jobs ask for gpu:TYPE:COUNT"
        )
    if typed:
        yield f"gres_gpu_type is set for {_few(typed)}, and gres_gpus_per_node is not: write how many GPUs a node has"


def _users(hosts: Mapping[str, Variables]) -> Iterator[str]:
    numbers: dict[str, tuple[str, str]] = {}
    owners: dict[str, tuple[str, str]] = {}
    told = set()
    for host, of in hosts.items():
        names = set()
        for user in of.get("common_users") or []:
            name, number = str(user.get("name", "")), str(user.get("uid", ""))
            problem = None
            if not name or not re.fullmatch(r"\d+", number):
                problem = f"common_users has {name or 'a user without name'} with uid {number or 'missing'!s}: write name and uid"
            elif name in names:
                problem = f"common_users has {name} twice: leave one"
            elif numbers.setdefault(name, (number, host))[0] != number:
                problem = (
                    f"common_users gives {name} uid {numbers[name][0]} on {numbers[name][1]} and uid {number} on {host}:"
                    " write one number for all hosts, as files on shared storage belong to numbers"
                )
            elif owners.setdefault(number, (name, host))[0] != name:
                problem = (
                    f"common_users gives uid {number} to {owners[number][0]} and to {name}: give one of them another"
                )
            names.add(name)
            if problem and problem not in told:
                told.add(problem)
                yield problem


def _storage(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    told = set()
    servers = set(groups.get("storage_server", []))
    for host, of in hosts.items():
        problems = []
        if of.get("storage_exports") and not servers:
            problems.append("storage_exports is set, and the group storage_server is empty: put the NFS server there")
        paths: list[str] = []
        for mount in of.get("storage_mounts") or []:
            path, source = str(mount.get("path", "")), str(mount.get("src", ""))
            if not re.fullmatch(r"/[^\s/]\S*", path):
                problems.append(f"storage_mounts has the path {path!r}: write an absolute one without blanks")
            if path.rstrip("/") in paths:
                problems.append(f"storage_mounts has {path} twice: leave one")
            paths.append(path.rstrip("/"))
            if str(mount.get("fstype", "nfs")) in ("nfs", "nfs4") and not re.match(r"[^\s/]+:/", source):
                problems.append(f"storage_mounts has the source {source!r} for {path}: NFS wants SERVER:/PATH")
        for problem in problems:
            if problem not in told:
                told.add(problem)
                yield f"{problem} (seen for {host})"


def allowed_variables(folder: Path) -> dict[str, set[str]]:
    """What each role can be told: its defaults, and what its argument specs name."""
    allowed = {}
    for role in sorted((folder / "roles").iterdir()) if (folder / "roles").is_dir() else []:
        names: set[str] = set()
        defaults, specs = role / "defaults/main.yml", role / "meta/argument_specs.yml"
        if defaults.is_file():
            names |= set(yaml.safe_load(defaults.read_text()) or {})
        if specs.is_file():
            for entry in (yaml.safe_load(specs.read_text()) or {}).get("argument_specs", {}).values():
                names |= set(entry.get("options") or {})
        if names:
            allowed[role.name] = names
    return allowed


def _unknown(hosts: Mapping[str, Variables], folder: Path, sources: Sequence[str]) -> Iterator[str]:
    allowed = allowed_variables(folder)
    known = set().union(*allowed.values()) if allowed else set()
    found: dict[str, list[str]] = {}
    misspelt: dict[str, list[str]] = {}
    for host, of in hosts.items():
        for name in of:
            if name not in known and any(name.startswith(f"{role}_") for role in allowed):
                found.setdefault(name, []).append(host)
            elif name not in known and (meant := _prefix_meant(name, allowed)):
                misspelt.setdefault(f"{name}{_line(name, sources)} is read by no role: is {meant} meant?", []).append(
                    host
                )
    for text, where in sorted(misspelt.items()):
        yield f"{text} (seen for {_few(where)})"
    for name, where in sorted(found.items()):
        role = max((role for role in allowed if name.startswith(f"{role}_")), key=len)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"is {near[0]} meant?" if near else f"the role's variables stand in roles/{role}/defaults/main.yml"
        yield f"{name}{_line(name, sources)} of {_few(where)} is no variable of the role {role}: {hint}"


def _prefix_meant(name: str, allowed: Mapping[str, set[str]]) -> str | None:
    """The variable that `name` is with another role in front, nearly: ``slrum_partitions``. A site's own names are its own."""
    for role, names in allowed.items():
        for known in names:
            rest = known.removeprefix(role)
            if name.endswith(rest) and difflib.get_close_matches(name.removesuffix(rest), [role], 1, 0.75):
                return known
    return None


def _line(name: str, sources: Sequence[str]) -> str:
    """`` (FILE:LINE)`` of the inventories where a variable is set; empty where that is not seen."""
    row = re.compile(rf"(?:^|[\s{{,\"']){re.escape(name)}[\"']?\s*[:=]")
    for source in sources:
        top = Path(source)
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if not file.is_file() or file.stat().st_size > 2_000_000:
                continue
            for number, text in enumerate(file.read_text(errors="replace").splitlines(), 1):
                if row.search(text) and not text.lstrip().startswith("#"):
                    return f" ({file}:{number})"
    return ""


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"inventory_problems": inventory_problems}
