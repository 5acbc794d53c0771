"""What Slurm's configuration files and accounting say, from data. Pure: nothing here looks at a host.

Filters:

- ``surefoot_slurm_settings``: a dictionary as lines ``Key=Value``
- ``surefoot_slurm_line``: a dictionary as one line ``Key=Value Key=Value``
- ``surefoot_slurm_merged``: settings over others, whatever the case of their names
- ``surefoot_declared_files``: files of a host with the digest that each should have
- ``surefoot_files_to_write``: those of them that a host does not have, or not so
- ``surefoot_units_to_act_on``: services that do not run, or run with other files than are declared
- ``surefoot_accounting_commands``: what sacctmgr must be told so that accounting is as declared
- ``surefoot_device_list``: device files as gres.conf names them
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DOCUMENTATION = """
name: surefoot_slurm
short_description: Slurm's configuration files and accounting, from data
"""


def _value(key: str, value: Any) -> str:
    """A value as Slurm writes it. YAML reads ``off`` and ``no`` as false; PreemptMode wants OFF, all others NO."""
    if value is True:
        return "YES"
    if value is False:
        return "OFF" if key.lower() == "preemptmode" else "NO"
    if isinstance(value, list | tuple):
        return ",".join(_value(key, each) for each in value)
    if isinstance(value, Mapping):
        raise TypeError(f"{key} is a dictionary; Slurm takes a word, a number or a list")
    return str(value)


def merged(base: Mapping[str, Any], *over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `base` with those of `over` in their place, whatever the case of their names; null leaves one out."""
    result: dict[str, Any] = dict(base)
    for settings in over:
        for key, value in settings.items():
            same = [name for name in result if name.lower() == str(key).lower()]
            for name in same:
                if name != key or value is None:
                    # The place of the one that it stands for is kept where the name is the same.
                    del result[name]
            if value is not None:
                result[str(key)] = value
    return {key: value for key, value in result.items() if value is not None}


def settings(values: Mapping[str, Any]) -> str:
    """One line a setting."""
    return "".join(f"{key}={_value(key, value)}\n" for key, value in values.items() if value is not None)


def line(values: Mapping[str, Any]) -> str:
    """All on one line: of a node or a partition. A value with blanks is quoted."""
    words = []
    for key, value in values.items():
        if value is None or value == "":
            continue
        text = _value(key, value)
        words.append(f'{key}="{text}"' if re.search(r"\s", text) else f"{key}={text}")
    return " ".join(words)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()


def declared_files(files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each file with ``sha256`` of its content, and without the content of one that is secret in anything shown."""
    return [{**file, "sha256": _digest(str(file["content"]))} for file in files]


def files_to_write(files: Iterable[Mapping[str, Any]], found: Mapping[str, Sequence[str]]) -> list[str]:
    """Paths of declared files whose digest, mode or owner on the host is another, or that are not there."""
    wanted = {
        file["path"]: [file["sha256"], str(file["mode"]).lstrip("0"), f"{file['owner']}:{file['owner']}"]
        for file in files
    }
    return [path for path, facts in wanted.items() if list(found.get(path, [])) != facts]


def units_to_act_on(
    units: Iterable[Mapping[str, Any]],
    files: Iterable[Mapping[str, Any]],
    found: Mapping[str, Any],
) -> dict[str, str]:
    """Of each service that is not as it should be, the state that systemd must bring it to: started or restarted.

    A service is restarted when the files that it was started with (it writes their digests down at
    each start) are not those that are declared, or that lie there where another role writes them.
    """
    declared = {file["path"]: file["sha256"] for file in files}
    act: dict[str, str] = {}
    for unit in units:
        name = unit["name"]
        seen = found["units"].get(name, {})
        on_disk = {path: found["files"][path][0] for path in unit["files"] if path in found["files"]}
        wanted = {path: declared.get(path, on_disk.get(path)) for path in unit["files"]}
        started_with = {path: seen.get("started_with", {}).get(path) for path in unit["files"]}
        if seen.get("active") == "active" and started_with != wanted:
            act[name] = "restarted"
        elif seen.get("active") != "active" or seen.get("enabled") != "enabled":
            act[name] = "started"
    return act


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def _seconds(text: str) -> int | None:
    """Seconds of Slurm's ways to write a time: minutes, minutes:seconds, hours:minutes:seconds, with days- before them."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, *parts = found.groups()
    given = [int(part) for part in parts if part is not None]
    if days is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*given, 0, 0][:3]
    elif len(given) == 1:
        hours, minutes, seconds = 0, given[0], 0
    elif len(given) == 2:
        hours, minutes, seconds = 0, given[0], given[1]
    else:
        hours, minutes, seconds = given
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def _same(key: str, declared: str, shown: str) -> bool:
    """Whether two ways to write a value of accounting mean the same."""
    if declared.lower() == shown.lower():
        return True
    if re.search(r"wall|time", key, re.IGNORECASE):
        seconds = _seconds(declared)
        return seconds is not None and seconds == _seconds(shown)
    try:
        return float(declared) == float(shown)
    except ValueError:
        pass
    return sorted(declared.lower().split(",")) == sorted(shown.lower().split(","))


def _rows(text: str) -> list[dict[str, str]]:
    """Rows of ``sacctmgr -P list …`` with its header."""
    lines = [each for each in text.splitlines() if each]
    if not lines:
        return []
    head = [name.strip() for name in lines[0].split("|")]
    rows = []
    for number, each in enumerate(lines[1:], start=2):
        cells = each.split("|")
        if len(cells) != len(head):
            raise ValueError(f"sacctmgr, line {number}: {len(cells)} cells under {len(head)} titles: {each!r}")
        rows.append(dict(zip(head, cells, strict=True)))
    return rows


def _other(options: Mapping[str, Any], row: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """``Key=Value`` of each option that the row has otherwise. `keys`: what the columns of the row stand for, in order."""
    shown = dict(zip(keys, row.values(), strict=True))
    wanted = {key: _value(key, value) for key, value in options.items()}
    return [f"{key}={value}" for key, value in wanted.items() if not _same(key, value, shown.get(key, ""))]


def accounting_commands(shown: Mapping[str, str], declared: Mapping[str, Any]) -> list[list[str]]:
    """Arguments of the sacctmgr commands that are still missing, in the order in which they must run.

    `shown`: what sacctmgr lists under ``cluster``, ``qos``, ``account`` and ``assoc``, with headers.
    `declared`: ``cluster``, ``qos``, ``accounts``, and what was asked for: the columns of ``qos`` are Name
    and ``qos_keys``, those of ``assoc`` Account, User and ``account_keys``.
    What accounting has beyond what is declared stays.
    """
    commands: list[list[str]] = []
    cluster = declared["cluster"]
    if cluster not in [row["Cluster"] for row in _rows(shown["cluster"])]:
        commands.append(["add", "cluster", cluster])
    commands += _qos_commands(_rows(shown["qos"]), declared["qos"], declared["qos_keys"])
    known = {row["Account"] for row in _rows(shown["account"])}
    rows = {(row["Account"], row["User"]): row for row in _rows(shown["assoc"])}
    for account in declared["accounts"]:
        commands += _account_commands(account, known, rows, cluster, declared["account_keys"])
    return commands


def _qos_commands(
    found: Sequence[Mapping[str, str]], qos: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[list[str]]:
    rows = {row["Name"]: row for row in found}
    commands = []
    for one in qos:
        name, options = one["name"], one.get("options") or {}
        row = rows.get(name, {"Name": name, **dict.fromkeys(keys, "")})
        other = _other(options, row, ["Name", *keys])
        if name not in rows:
            commands.append(["add", "qos", name, *(["set", *other] if other else [])])
        elif other:
            commands.append(["modify", "qos", name, "set", *other])
    return commands


def _account_commands(
    account: Mapping[str, Any],
    known: set[str],
    rows: Mapping[tuple[str, str], Mapping[str, str]],
    cluster: str,
    keys: Sequence[str],
) -> list[list[str]]:
    name, options = account["name"], account.get("options") or {}
    commands = []
    if name not in known or (name, "") not in rows:
        words = ["add", "account", name, f"Cluster={cluster}"]
        words += [f"Description={account.get('description', name)}"]
        words += [f"Organization={account.get('organization', name)}"]
        commands.append([*words, *([f"Parent={account['parent']}"] if account.get("parent") else [])])
    row = dict(rows.get((name, ""), {"Account": name, "User": "", **dict.fromkeys(keys, "")}))
    other = _other(options, row, ["Account", "User", *keys])
    if other:
        commands.append(["modify", "account", "where", f"Account={name}", f"Cluster={cluster}", "set", *other])
    missing = [user for user in account.get("users") or [] if (name, user) not in rows]
    if missing:
        commands.append(["add", "user", ",".join(missing), f"Account={name}", f"Cluster={cluster}"])
    return commands


def device_list(paths: Sequence[str]) -> list[str]:
    """Device files by their number, not their spelling: nvidia10 after nvidia9."""

    def by_number(path: str) -> tuple[str, int]:
        found = re.fullmatch(r"(.*?)(\d+)", path)
        return (found.group(1), int(found.group(2))) if found else (path, -1)

    return sorted(paths, key=by_number)


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        return {
            "surefoot_slurm_settings": settings,
            "surefoot_slurm_line": line,
            "surefoot_slurm_merged": merged,
            "surefoot_declared_files": declared_files,
            "surefoot_files_to_write": files_to_write,
            "surefoot_units_to_act_on": units_to_act_on,
            "surefoot_accounting_commands": accounting_commands,
            "surefoot_device_list": device_list,
        }
