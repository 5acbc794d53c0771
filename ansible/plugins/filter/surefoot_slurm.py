"""What Slurm's configuration files say, from data. Nothing here looks at a host.

Filters:

- ``surefoot_slurm_settings``: a dictionary as lines ``Key=Value``
- ``surefoot_slurm_line``: a dictionary as one line ``Key=Value Key=Value``
- ``surefoot_slurm_merged``: settings over others, whatever the case of their names
- ``surefoot_declared_files``: files of a host with the digest that each should have
- ``surefoot_prolog_files``: files of a written prolog, and where they go
- ``surefoot_files_to_write``: those of them that a host does not have, or not so
- ``surefoot_units_to_act_on``: services that do not run, or run with other files than are declared
- ``surefoot_device_list``: device files as gres.conf names them
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCUMENTATION = """
name: surefoot_slurm
short_description: Slurm's configuration files, from data
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
    """Each file with ``sha256`` of its content, or of what lies at its ``source`` here. Raises OSError where nothing does."""
    return [
        {**file, "sha256": hashlib.sha256(Path(file["source"]).read_bytes()).hexdigest()}
        if "source" in file
        else {**file, "sha256": _digest(str(file["content"]))}
        for file in files
    ]


def prolog_files(folder: str, place: str) -> list[dict[str, Any]]:
    """Files below `folder` here that go to `place` on nodes, by the record of ``surefoot preflight --write-prolog``."""
    record = json.loads((Path(folder) / "written.json").read_text())
    names = sorted([*record["sha256"], "written.json"])
    return [
        {"path": f"{place}/{name}", "source": f"{folder}/{name}", "mode": "0755" if name.endswith(".sh") else "0644", "owner": "root"}
        for name in names
    ]  # fmt: skip


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
            "surefoot_prolog_files": prolog_files,
            "surefoot_files_to_write": files_to_write,
            "surefoot_units_to_act_on": units_to_act_on,
            "surefoot_device_list": device_list,
        }
