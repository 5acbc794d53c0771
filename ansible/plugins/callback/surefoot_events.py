"""What a playbook does, as one JSON document a line: for `surefoot`'s drift rung, and for whoever reads logs by program.

Events, in the order in which they happen; keys that have nothing to say are left out:

    {"event": "run", "ansible": "2.19.1", "playbook": "site.yml", "check": true, "diff": true}
    {"event": "play", "play": "Slurm", "hosts": ["head", "n1"]}
    {"event": "task", "task": "Write slurm.conf", "role": "slurm", "at": "roles/slurm/tasks/main.yml:12"}
    {"event": "result", "host": "n1", "task": …, "role": …, "at": …, "module": "ansible.builtin.template",
     "status": "ok" | "changed" | "failed" | "unreachable" | "skipped", "ignored": true, "item": "gres.conf",
     "message": "…", "path": "/etc/slurm/slurm.conf", "diff": [{"before": …, "after": …} | {"prepared": …}],
     "packages": ["slurmd"]}
    {"event": "stats", "hosts": {"n1": {"ok": 9, "changed": 1, "unreachable": 0, "failures": 0, …}}}

A run that was cut off has no ``stats``. Of a loop each item has a result and the task has one without
``item``. What looks like a secret is masked, also in differences; what a task hides (``no_log``) stays hidden.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.release import __version__

DOCUMENTATION = """
name: surefoot_events
type: stdout
short_description: one JSON document a line
description:
  - Writes what a playbook does to standard output, one JSON document a line.
"""

MASK = "********"
_SECRET = re.compile(
    r"(?i)((?:pass(?:word|wd)?|storagepass|secret|token|api[_-]?key|private[_-]?key)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;]+)"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_DIFF_KEYS = ("before", "after", "prepared", "before_header", "after_header")


def masked(text: str) -> str:
    """The text without values that stand behind a word for a secret, and without private keys."""
    return _PEM.sub(MASK, _SECRET.sub(rf"\1{MASK}", text))


class CallbackModule(CallbackBase):
    """One line an event on standard output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "surefoot_events"

    def _tell(self, event: str, **data: Any) -> None:
        line = {"event": event, **{key: value for key, value in data.items() if value not in (None, "", [])}}
        sys.stdout.write(json.dumps(line, default=str) + "\n")
        sys.stdout.flush()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        from ansible import context  # only known once the command line has been read

        self._tell(
            "run",
            ansible=__version__,
            playbook=Path(playbook._file_name).name,
            check=bool(context.CLIARGS.get("check")),
            diff=bool(context.CLIARGS.get("diff")),
        )

    def v2_playbook_on_play_start(self, play: Any) -> None:
        hosts = play.get_variable_manager().get_vars(play=play).get("ansible_play_hosts_all", [])
        self._tell("play", play=play.get_name().strip(), hosts=list(hosts))

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002 - Ansible's signature
        self._begin(task)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._begin(task)

    def v2_playbook_on_cleanup_task_start(self, task: Any) -> None:
        self._begin(task)

    def _begin(self, task: Any) -> None:
        self._tell("task", **self._named(task))

    def _named(self, task: Any) -> dict[str, str]:
        role = task._role.get_name() if task._role else ""
        where = task.get_path() or ""
        return {"task": task.get_name().removeprefix(f"{role} : "), "role": role, "at": _short(where)}

    def v2_runner_on_ok(self, result: Any) -> None:
        self._result(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._result(result, "failed", ignored=ignore_errors or None)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._result(result, "unreachable")

    def v2_runner_on_skipped(self, result: Any) -> None:
        if result.task.action.rsplit(".", 1)[-1] == "meta":
            return  # a `when` of a meta task: Ansible tells it and does not count it
        self._result(result, "skipped")

    def v2_runner_item_on_ok(self, result: Any) -> None:
        self._result(result, "changed" if result.result.get("changed") else "ok", item=True)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._result(result, "failed", item=True)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        self._result(result, "skipped", item=True)

    def _result(self, result: Any, status: str, *, item: bool = False, ignored: bool | None = None) -> None:
        said = result.result
        loop = "results" in said and not item
        label = said.get("_ansible_item_label", said.get("item")) if item else None
        message = (
            said.get("msg", "")
            if status in ("failed", "unreachable", "skipped") or said.get("_ansible_verbose_always")
            else ""
        )
        if status == "failed" and not message:
            message = said.get("stderr") or said.get("censored") or ""
        self._tell(
            "result",
            host=result.host.get_name(),
            **self._named(result.task),
            module=result.task.action,
            status=status,
            ignored=ignored,
            item=None if label is None else masked(str(label)),
            message=masked(str(message)) if message else None,
            path=None if loop else said.get("dest") or said.get("path") or _headed(said.get("diff")),
            diff=[] if loop else list(_differences(said.get("diff"))),
            packages=[] if loop else _packages(result.task.action, said.get("invocation")),
        )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})


def _packages(module: str, invocation: Any) -> list[str]:
    """Names of the packages that a task asks for, without versions."""
    if module.rsplit(".", 1)[-1] not in ("apt", "package"):
        return []
    asked = invocation.get("module_args") if isinstance(invocation, dict) else None
    asked = asked if isinstance(asked, dict) else {}
    named = next((asked[key] for key in ("name", "package", "pkg") if asked.get(key)), [])
    names = named if isinstance(named, list) else str(named).split(",")
    return sorted({str(name).split("=")[0].split("/")[0].strip() for name in names if not str(name).endswith("*")})


def _headed(found: Any) -> str | None:
    """The file that a difference is about, where the module says it nowhere else."""
    for one in found if isinstance(found, list) else [found]:
        if isinstance(one, dict):
            for key in ("before_header", "after_header"):
                if str(one.get(key, "")).startswith("/"):
                    return str(one[key]).removesuffix(" (content)")
    return None


def _differences(found: Any) -> Iterator[dict[str, str]]:
    """Each difference with its texts, masked."""
    for one in found if isinstance(found, list) else [found]:
        if isinstance(one, dict):
            kept = {key: masked(_text(one[key])) for key in _DIFF_KEYS if one.get(key)}
            if kept:
                yield kept


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, default=str)


def _short(where: str) -> str:
    """``roles/slurm/tasks/main.yml:12`` of a task's absolute path."""
    text = str(where)
    at = text.find("/roles/")
    return text[at + 1 :] if at >= 0 else text.rsplit("/", 1)[-1]
