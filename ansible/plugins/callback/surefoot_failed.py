"""The last lines of a run: which hosts were not finished, where each stopped, and why. Silent where all were.

    NOT FINISHED: 1 of 9 hosts. The others are.
    n2: unreachable at "Gathering Facts" (site.yml:12): Failed to connect to the host via ssh: …
    Mend it and run the same again; for these alone: --limit n2

A recap of a thousand hosts names it too, a line among a thousand. For people: where the output is
``surefoot_events``, which says all of it to programs, nothing is added.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback import CallbackBase

from ansible import constants

DOCUMENTATION = """
name: surefoot_failed
type: aggregate
short_description: lists failed hosts at the end
description:
  - Lists the hosts that were not finished as the last lines of a run, each with its task and its message.
"""
_SHOWN = 300
"""Characters of a message."""


def _why(said: dict[str, Any]) -> str:
    """What a module says, and where that is only that a command failed, the end of what the command said."""
    message = str(said.get("msg") or said.get("censored") or "")
    if message == "non-zero return code":
        end = str(said.get("stderr") or said.get("stdout") or "").strip()[-_SHOWN // 2 :]
        return f"ended {said.get('rc')}: {end or 'it said nothing'}"
    return message


class CallbackModule(CallbackBase):
    """Remembers the last failure of each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "surefoot_failed"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, str] = {}

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._keep(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._keep(result, "unreachable")

    def _keep(self, result: Any, how: str) -> None:
        said = result.result
        lines = [_why(row) for row in said.get("results", []) if row.get("failed")]
        message = " ".join("; ".join(lines or [_why(said)]).split())
        path, _, line = (result.task.get_path() or "").rpartition(":")
        short = path[path.find("/roles/") + 1 :] if "/roles/" in path else path.rsplit("/", 1)[-1]
        cut = f"{message[:_SHOWN]}…" if len(message) > _SHOWN else message
        self._last[result.host.get_name()] = f'{how} at "{result.task.get_name()}" ({short}:{line}): {cut}'

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if constants.config.get_config_value("DEFAULT_STDOUT_CALLBACK") == "surefoot_events":
            return
        # What a rescue made good is counted as rescued, and no failure.
        failed = sorted({*stats.failures, *stats.dark})
        if not failed:
            return
        everybody = {*stats.processed, *failed} - {"localhost"}
        others = "The others are." if len(everybody) > len(failed) else ""
        self._display.display(f"NOT FINISHED: {len(failed)} of {len(everybody)} hosts. {others}".rstrip())
        for host in failed:
            self._display.display(f"{host}: {self._last.get(host, 'failed')}")
        self._display.display(f"Mend it and run the same again; for these alone: --limit {','.join(failed)}")
