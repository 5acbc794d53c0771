"""What a playbook does, as one JSON document a line: for `surefoot`'s drift rung, and for whoever reads logs by program.

Events, in the order in which they happen; keys that have nothing to say are left out:

    {"event": "run", "ansible": "2.19.1", "playbook": "site.yml", "check": true, "diff": true, "limit": "rack1",
     "only": "--tags slurm"}
    {"event": "play", "number": 7, "play": "Slurm", "at": "site.yml:58", "hosts": ["head", "n1"]}
    {"event": "task", "task": "Write slurm.conf", "role": "slurm", "at": "roles/slurm/tasks/main.yml:12"}
    {"event": "result", "host": "n1", "task": …, "role": …, "at": …, "module": "ansible.builtin.template",
     "status": "ok" | "changed" | "failed" | "unreachable" | "skipped", "ignored": true, "item": "gres.conf",
     "message": "…", "path": "/etc/slurm/slurm.conf", "diff": [{"before": …, "after": …} | {"prepared": …}],
     "packages": ["slurmd"], "once": true, "for_real": true, "forgiven": "…",
     "left_out": true}
    {"event": "included", "hosts": ["n1"]}
    {"event": "stats", "hosts": {"n1": {"ok": 9, "changed": 1, "unreachable": 0, "failures": 0, …}}}

A run that was cut off has no ``stats``. A play is numbered from 1 as the site has them; each batch of a rolling one
begins it again under its number. Of a loop each item has a result and the task has one without ``item``.
``once``: for one host instead of all (``run_once``); ``for_real``: not held back by a check run (``check_mode:
false``); ``forgiven``: what failed, and the task says that it did not (``failed_when``);
``left_out``: skipped by its own ``when``, as this is a check run. ``limit`` and ``only``:
what leaves hosts or tasks out. What looks like a secret is masked, also in differences; what a task hides
(``no_log``) stays hidden.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
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

_DIFF_KEYS = ("before", "after", "prepared", "before_header", "after_header")


def _masks() -> Callable[[str], str]:
    """`surefoot.provision.masks.masked`, by its path: this Ansible's Python may be another than Surefoot's."""
    spec = importlib.util.spec_from_file_location("surefoot_masks", Path(__file__).parents[1] / "masks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str], str] = module.masked
    return found


masked = _masks()
_SAID = 500
"""Characters of the end of what a command that failed had said."""


class CallbackModule(CallbackBase):
    """One line an event on standard output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "surefoot_events"

    def __init__(self) -> None:
        super().__init__()
        self._plays: list[str] = []
        self._check = False

    def _tell(self, event: str, **data: Any) -> None:
        line = {"event": event, **{key: value for key, value in data.items() if value not in (None, "", [])}}
        sys.stdout.write(json.dumps(line, default=str) + "\n")
        sys.stdout.flush()

    def v2_playbook_on_start(self, playbook: Any) -> None:
        from ansible import context  # only known once the command line has been read

        said = context.CLIARGS
        self._check = bool(said.get("check"))
        self._tell(
            "run",
            ansible=__version__,
            playbook=Path(playbook._file_name).name,
            check=self._check,
            diff=bool(said.get("diff")),
            limit=said.get("subset"),
            only=_left_out(said),
        )

    def v2_playbook_on_play_start(self, play: Any) -> None:
        hosts = play.get_variable_manager().get_vars(play=play).get("ansible_play_hosts_all", [])
        if play._uuid not in self._plays:  # of a rolling play each batch is a copy
            self._plays.append(play._uuid)
        number = self._plays.index(play._uuid) + 1
        self._tell("play", number=number, play=play.get_name().strip(), at=_short(play.get_path()), hosts=list(hosts))

    def v2_playbook_on_include(self, included_file: Any) -> None:
        self._tell("included", hosts=[host.get_name() for host in included_file._hosts])

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
        self._result(result, "unreachable", ignored=result.task.ignore_unreachable or None)

    def v2_runner_on_skipped(self, result: Any) -> None:
        if result.task.action.rsplit(".", 1)[-1] == "meta":
            return  # a `when` of a meta task: Ansible tells it and does not count it
        self._result(result, "skipped")

    def v2_runner_item_on_ok(self, result: Any) -> None:
        self._result(result, "changed" if result.result.get("changed") else "ok", item=True)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._result(result, "failed", item=True, ignored=result.task.ignore_errors is True or None)

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
        elif message == "non-zero return code":
            end = str(said.get("stderr") or said.get("stdout") or "").strip()[-_SAID:]
            message = f"ended {said.get('rc')}: {end or 'it said nothing'}"
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
            once=bool(result.task.run_once) or None,
            for_real=(self._check and result.task.check_mode is not True) or None,
            forgiven=_forgiven(said) or None,
            left_out="ansible_check_mode" in str(said.get("false_condition", "")) or None,
        )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})


def _left_out(said: Any) -> str:
    """Words of the command line, or of the configuration, that leave tasks out; empty where none does."""
    tags, skipped = sorted(said.get("tags") or ()), sorted(said.get("skip_tags") or ())
    words = [f"--tags {','.join(tags)}"] if tags not in ([], ["all"]) else []
    words += [f"--skip-tags {','.join(skipped)}"] if skipped else []
    words += [f"--start-at-task {said['start_at_task']}"] if said.get("start_at_task") else []
    return " ".join(words)


def _forgiven(said: Any) -> str:
    """Why a task failed that says of itself that it did not; empty where it did not."""
    found = said.get("failed_when_suppressed_exception")
    return masked(str(said.get("msg") or found).strip())[:300] if found else ""


def _packages(module: str, invocation: Any) -> list[str]:
    """Names of the packages that a task asks for, without versions."""
    if module.rsplit(".", 1)[-1] not in ("apt", "package"):
        return []
    asked = invocation.get("module_args") if isinstance(invocation, dict) else None
    asked = asked if isinstance(asked, dict) else {}
    named: Any = next((asked[key] for key in ("name", "package", "pkg") if asked.get(key)), [])
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
