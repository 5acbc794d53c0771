"""Which daemons run with other files than lie there, from data. Pure: nothing here looks at a host.

Filters, over what roles/common/files/daemons.sh prints:

- ``daemons_to_act_on``: daemons that run with other files, each with what systemd must do and why
- ``daemons_unread``: units whose own files changed after systemd had read them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

DOCUMENTATION = """
name: daemons
short_description: which daemons run with other files than lie there
"""


def daemons_to_act_on(daemons: Iterable[Mapping[str, Any]], found: Mapping[str, Any]) -> list[dict[str, str]]:
    """``{"unit": …, "state": "restarted" | "reloaded", "because": …}`` of each running daemon that needs it.

    `daemons`: ``unit``, ``files`` that it reads, and those of them that it reads again on ``reload``. A daemon
    that does not run reads them when it is started, and one that systemd does not know is not there yet.
    """
    act = []
    for daemon in daemons:
        seen = found["units"][daemon["unit"]]
        if seen["ActiveState"] not in ("active", "reloading", "activating"):
            continue
        noted = seen["started_with"]
        files = daemon.get("files", [])
        other = [path for path in files if noted.get(path) != found["files"].get(path)]
        if not other:
            continue
        reload = not set(other) - set(daemon.get("reload", []))
        what = f"it read {', '.join(other)} otherwise than now" if noted else "what it was started with is not known"
        act.append({"unit": daemon["unit"], "state": "reloaded" if reload else "restarted", "because": what})
    return act


def daemons_unread(found: Mapping[str, Any]) -> list[str]:
    """Units whose files on disk are other than those that systemd has read."""
    return [unit for unit, seen in found["units"].items() if seen["NeedDaemonReload"] == "yes"]


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        return {"daemons_to_act_on": daemons_to_act_on, "daemons_unread": daemons_unread}
