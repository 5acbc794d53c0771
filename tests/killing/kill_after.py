"""Kills Ansible with all that it started, when a named host is done with a named task: between a file and what follows it."""

from __future__ import annotations

import os
import signal
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_after
type: aggregate
short_description: dies after a task
description:
  - Kills its own process group when KILL_AFTER_HOST is done with KILL_AFTER_TASK.
"""


class CallbackModule(CallbackBase):
    """The next task has not begun then: a task begins when every host is done with the one before."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_after"

    def v2_runner_on_ok(self, result: Any) -> None:
        task = result.task.get_name().rpartition(" : ")[2]
        if (result.host.get_name(), task) == (os.environ["KILL_AFTER_HOST"], os.environ["KILL_AFTER_TASK"]):
            os.killpg(0, signal.SIGKILL)
