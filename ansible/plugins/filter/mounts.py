"""Mounts as the kernel has them, held against those that the role storage declares.

The kernel shows options in its own words: defaults are left out, sizes are in KiB, and what only
mount(8) or systemd understand (``_netdev``, ``nofail``, ``x-systemd.…``) is not shown at all. So
only options are compared that it can be asked about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

NFS = ("nfs", "nfs4")
_ONE_OF = (
    *(("rw", "ro"), ("suid", "nosuid"), ("dev", "nodev"), ("exec", "noexec"), ("async", "sync")),
    ("relatime", "noatime", "strictatime"),
)
"""Of each of these one holds; the first where none is said."""
_HARD = ("hard", "soft", "softerr")
_ALWAYS_SHOWN_BY_NFS = ("vers", "proto", "rsize", "wsize", "timeo", "retrans", "nconnect", "sec")
_ALIASES = {"nfsvers": "vers"}
_SIZE = re.compile(r"(\d+)([kmg])", re.IGNORECASE)
_FACTORS = {"k": 1024, "m": 1024**2, "g": 1024**3}


def mount_unit(path: str) -> str:
    """Name of systemd's unit of a mount point, as ``systemd-escape --path --suffix=mount`` has it."""
    trimmed = re.sub(r"/+", "/", path).strip("/")
    if not trimmed:
        return "-.mount"

    def escaped(index: int, byte: int) -> str:
        character = chr(byte)
        if character == "/":
            return "-"
        plain = byte < 128 and (character.isalnum() or character in ":_" or (character == "." and index > 0))
        return character if plain else f"\\x{byte:02x}"

    return "".join(escaped(index, byte) for index, byte in enumerate(trimmed.encode())) + ".mount"


def mounts_completed(declared: Iterable[Mapping[str, Any]], nfs_options: str) -> list[dict[str, str]]:
    """Each mount with ``src``, ``path``, ``fstype``, ``options`` and the name of its ``unit``."""
    rows = []
    for each in declared:
        fstype = str(each.get("fstype", "nfs"))
        options = str(each.get("options") or (nfs_options if fstype in NFS else "defaults"))
        path = "/" + str(each["path"]).strip("/")
        rows.append(
            {"src": str(each["src"]), "path": path, "fstype": fstype, "options": options, "unit": mount_unit(path)}
        )
    return rows


def option_drift(live: str, declared: str, fstype: str = "") -> list[dict[str, str]]:
    """Options that do not hold as declared: rows of ``found`` and ``declared``; ``found`` is empty where nothing is shown."""
    has, wants = _options(live), _options(declared)
    rows = [
        {"found": now, "declared": then}
        for words in (*_ONE_OF, *((_HARD,) if fstype in NFS else ()))
        if (now := _holds(words, has)) != (then := _holds(words, wants))
    ]
    for name, value in wants.items():
        if value is None:
            continue
        if name in has:
            if _plain(name, has[name]) != _plain(name, value):
                rows.append({"found": f"{name}={has[name]}", "declared": f"{name}={value}"})
        elif fstype in NFS and name in _ALWAYS_SHOWN_BY_NFS:
            rows.append({"found": "", "declared": f"{name}={value}"})
    return rows


def _holds(words: Iterable[str], options: Mapping[str, str | None]) -> str:
    """Which of several words that exclude each other holds: the first where none is said."""
    usual, *_ = words = tuple(words)
    return next((word for word in words if word in options), usual)


def mount_drift(declared: Iterable[Mapping[str, str]], mounts: str) -> list[dict[str, Any]]:
    """Mounts that stand, but not as declared. `declared` is completed; `mounts` is the text of /proc/self/mounts.

    Rows are the declared mount with ``line`` (how its line in /proc/self/mounts would read), ``says`` (the
    difference in words) and ``elsewhere`` (another source or kind of file system: no remount helps).
    """
    rows = []
    for each in declared:
        live = _on_top(each["path"], mounts)
        if live is None:
            continue
        source, path, fstype, options, *rest = live
        differing = option_drift(options, each["options"], fstype)
        bind = "bind" in _options(each["options"]) or "rbind" in _options(each["options"])
        elsewhere = not bind and (source != each["src"] or not _same_kind(fstype, each["fstype"]))
        if not differing and not elsewhere:
            continue
        says = [f"{row['found'] or 'nothing'} instead of {row['declared']}" for row in differing]
        if elsewhere:
            says.insert(0, f"{fstype} of {source} instead of {each['fstype']} of {each['src']}")
            source, fstype = each["src"], each["fstype"]
        line = " ".join([source, path, fstype, _mended(options, differing), *rest])
        rows.append({**each, "line": line, "says": ", ".join(says), "elsewhere": elsewhere})
    return rows


def mounts_missing(declared: Iterable[Mapping[str, Any]], mounts: str) -> list[dict[str, Any]]:
    """Declared mounts that do not stand."""
    return [dict(each) for each in declared if _on_top(str(each["path"]), mounts) is None]


def _on_top(path: str, mounts: str) -> list[str] | None:
    """Fields of the mount that is seen at a path: the last one there."""
    escaped = path.replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011")
    found = [fields for line in mounts.splitlines() if len(fields := line.split(" ")) >= 4 and fields[1] == escaped]
    return found[-1] if found else None


def _same_kind(live: str, declared: str) -> bool:
    return live == declared or (live in NFS and declared in NFS)


def _options(text: str) -> dict[str, str | None]:
    options: dict[str, str | None] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        options[_ALIASES.get(name, name)] = value if equals else None
    return options


def _plain(name: str, value: str | None) -> str:
    """A value as it can be compared: sizes in bytes, modes without leading zeros."""
    text = value or ""
    if size := _SIZE.fullmatch(text):
        return str(int(size[1]) * _FACTORS[size[2].lower()])
    return text.lstrip("0") if name == "mode" else text


def _mended(options: str, differing: Iterable[Mapping[str, str]]) -> str:
    words = options.split(",")
    for row in differing:
        if row["found"] in words:
            words[words.index(row["found"])] = row["declared"]
        else:
            words.append(row["declared"])
    return ",".join(words)


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "mount_drift": mount_drift,
            "mounts_completed": mounts_completed,
            "mounts_missing": mounts_missing,
            "option_drift": option_drift,
        }
