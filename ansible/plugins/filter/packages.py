"""Packages as dpkg knows them, held against those that a role declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any


def packages_to_change(declared: Iterable[str], dpkg: Iterable[str]) -> list[dict[str, str]]:
    r"""Which packages are not as declared: rows of ``entry`` (for apt), ``name``, ``found`` and ``declared``.

    An entry is ``name`` (any version will do) or ``name=version``, where ``*`` stands for anything.
    `dpkg` is what ``dpkg-query --show --showformat '${db:Status-Status} ${Package}=${Version}\n'`` prints.
    """
    installed = dict(row.removeprefix("installed ").split("=", 1) for row in dpkg if row.startswith("installed "))
    rows = []
    for entry in declared:
        name, _, version = str(entry).partition("=")
        found = installed.get(name)
        wanted = re.escape(version).replace(r"\*", ".*") if version else ".*"
        if found is None or not re.fullmatch(wanted, found):
            rows.append(
                {
                    "entry": str(entry),
                    "name": name,
                    "found": "not installed" if found is None else found,
                    "declared": version or "any version",
                }
            )
    return rows


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"packages_to_change": packages_to_change}
