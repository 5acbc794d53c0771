"""What a file must obey beyond its types: rules that need two keys, a folder or the environment.

Each rule looks at plain data (and may complete it), and returns problems with their places, so
that they are told together with the type errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.config.explain import Problem, nearest
from surefoot.config.places import absolute
from surefoot.config.yaml_source import At
from surefoot.errors import RequestError
from surefoot.hostlist import expand, folded

_VARIABLE = re.compile(r"\$\{([^}]*)\}?")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_WORD = re.compile(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]*\Z")
_SOURCES: tuple[At, ...] = (("base",), ("train", "source"), ("evaluate", "source"))


def ladder_problems(data: Mapping[str, Any]) -> list[Problem]:
    """A need names a rung that stands before it; no rung stands twice."""
    rungs = data.get("rungs")
    if not isinstance(rungs, list):
        return []
    names = [item.get("rung") if isinstance(item, dict) else None for item in rungs]
    problems: list[Problem] = []
    for index, item in enumerate(rungs):
        name, before = names[index], [n for n in names[:index] if isinstance(n, str)]
        if isinstance(name, str) and name in before:
            problems.append(Problem(("rungs", index, "rung"), f"{name!r} stands twice in the ladder; keep one"))
        needs = item.get("needs") if isinstance(item, dict) else None
        for position, need in enumerate(needs if isinstance(needs, list) else []):
            if isinstance(need, str) and need not in before:
                what = _need_problem(need, name, before, names[index + 1 :])
                problems.append(Problem(("rungs", index, "needs", position), what))
    return problems


def _need_problem(need: str, name: Any, before: list[str], after: list[Any]) -> str:
    if need == name:
        return f"{need!r} is this rung itself; allowed: {', '.join(before) or 'nothing'}"
    if need in after:
        return f"{need!r} stands after this rung; move it up, so that no rung waits for itself"
    return f"no rung {need!r} stands before this one; allowed: {', '.join(before) or 'nothing'}{nearest(need, before)}"


def cluster_problems(data: Mapping[str, Any]) -> list[Problem]:
    """Hosts that are no list or stand in two groups, GPUDirect expected of nodes that nobody names, and what only a
    local cluster may leave to be found out here.
    """
    return [*_hosts_problems(data), *_gpudirect_problems(data), *_away_problems(data)]


def _groups(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """``node_groups``; one that is no mapping, which the types tell of, as an empty one."""
    groups = data.get("node_groups")
    return [group if isinstance(group, dict) else {} for group in (groups if isinstance(groups, list) else [])]


def _hosts_problems(data: Mapping[str, Any]) -> list[Problem]:
    """`hosts` of each node group can be read, and no host is of two groups."""
    problems: list[Problem] = []
    group_of: dict[str, str] = {}
    for index, group in enumerate(_groups(data)):
        text = group.get("hosts")
        if not isinstance(text, str) or not text:
            continue
        try:
            hosts = set(expand(text))
        except RequestError as error:
            what = f"{error.message}; allowed: Slurm's notation, like gpu[01-32]"
            problems.append(Problem(("node_groups", index, "hosts"), what))
            continue
        twice = sorted(hosts & set(group_of))
        if twice:
            where = group_of[twice[0]]
            what = f"{folded(twice)} stands in the group {where} too; a node is of one group: take it out of one"
            problems.append(Problem(("node_groups", index, "hosts"), what))
        group_of |= dict.fromkeys(hosts, str(group.get("name", index)))
    return problems


def _gpudirect_problems(data: Mapping[str, Any]) -> list[Problem]:
    """Where only some groups expect GPUDirect, NCCL's log can be held to it on the hosts that these name alone."""
    groups = _groups(data)
    if all(group.get("gpudirect") == "expected" for group in groups):
        return []
    what = "expected here and not of every group, so nothing could be held to it; write the group's hosts: gpu[01-32]"
    return [
        Problem(("node_groups", index, "gpudirect"), what)
        for index, group in enumerate(groups)
        if group.get("gpudirect") == "expected" and not group.get("hosts")
    ]


def _away_problems(data: Mapping[str, Any]) -> list[Problem]:
    """What only a local cluster may leave to be found out on this machine."""
    kinds = {key: _kind(data.get(key)) for key in ("connection", "scheduler")}
    away = [f"{key}: {kind}" for key, kind in kinds.items() if kind != "local"]
    if not away:
        return []
    problems: list[Problem] = []
    scheduler = data.get("scheduler", {"kind": "local"})
    if kinds["connection"] == "ssh" and isinstance(scheduler, dict) and scheduler.get("kind") == "local":
        what = "'local' starts processes on this machine; over ssh write `kind: slurm`"
        problems.append(Problem(("scheduler",), what))
    problems += _root_problems(data.get("root"), away)
    problems += _word_problems(data)
    for index, group in enumerate(_groups(data)):
        if group.get("gpus_per_node") == "detect":
            what = f"'detect' looks at this machine; with {away[0]} write the number of GPUs of a node"
            problems.append(Problem(("node_groups", index, "gpus_per_node"), what))
    return problems


def _root_problems(root: Any, away: list[str]) -> list[Problem]:
    if not isinstance(root, str) or not root:
        return []
    if not root.startswith("/"):
        return [Problem(("root",), f"'{root}' is relative; with {away[0]} it must be absolute")]
    if not root.isprintable():
        return [Problem(("root",), f"{root!r} holds a line break or a control character, which no log could show")]
    if ".." in root.split("/"):
        return [Problem(("root",), f"'{root}' holds '..', so one folder would have two names; write where it leads")]
    found = next((sign for sign in "%\\" if sign in root), "")
    if found:  # jobs elsewhere are Slurm's
        return [Problem(("root",), f"'{root}' holds '{found}', which Slurm expands in output paths; name another")]
    return []


def _word_problems(data: Mapping[str, Any]) -> list[Problem]:
    """Names that travel on command lines: ssh and sbatch would take anything else for something else."""
    problems = []
    for key, words in (("connection", ("host",)), ("scheduler", ("partition", "account", "qos"))):
        for word in words:
            holder = data.get(key)
            name = holder.get(word) if isinstance(holder, dict) else None
            if isinstance(name, str) and name and not _WORD.match(name):
                allowed = "a name without blanks that does not begin with '-'"
                problems.append(Problem((key, word), f"is {name!r}; allowed: {allowed}"))
    return problems


def absolute_ssh_config(data: dict[str, Any], folder: Path) -> None:
    """Make ``connection.config`` absolute; it is relative to `folder`, the cluster file's own."""
    connection = data.get("connection")
    if isinstance(connection, dict) and isinstance(connection.get("config"), str) and connection["config"]:
        connection["config"] = str(absolute(connection["config"], folder))


def _kind(choice: Any) -> Any:
    return choice.get("kind", "local") if isinstance(choice, dict) else "local"


def expand_sources(data: dict[str, Any], folder: Path, env: Mapping[str, str]) -> list[Problem]:
    """Put the environment's values for ``${VAR}`` into a recipe's sources, and make ``path:`` absolute.

    A relative path is relative to `folder`, the recipe's own. Changes `data` in place.
    """
    problems: list[Problem] = []
    for at in _SOURCES:
        holder: Any = data
        for key in at[:-1]:
            holder = holder.get(key) if isinstance(holder, dict) else None
        source = holder.get(at[-1]) if isinstance(holder, dict) else None
        if not isinstance(source, str):
            continue
        wrong = _variable_problem(source, env)
        if wrong:
            problems.append(Problem(at, wrong))
            continue
        source = _VARIABLE.sub(lambda match: env[match.group(1)], source)
        if source.startswith("path:"):
            source = f"path:{absolute(source.removeprefix('path:'), folder)}" if source != "path:" else source
        holder[at[-1]] = source
    return problems


def _variable_problem(source: str, env: Mapping[str, str]) -> str:
    for match in _VARIABLE.finditer(source):
        name = match.group(1)
        if not match.group(0).endswith("}") or not _NAME.match(name):
            return f"'{match.group(0)}' is no variable; allowed: ${{NAME}} of letters, digits and `_`"
        if not env.get(name):
            state = "empty" if name in env else "not set"
            return f"the environment variable {name} is {state}; set it: export {name}=…{nearest(name, env)}"
    return ""
