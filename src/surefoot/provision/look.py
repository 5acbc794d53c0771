"""What an inventory declares, and whether its hosts answer as who they are. One JSON document on stdout.

    python -m surefoot.provision.look '{"nonce": …, "ansible": {…}, "variables": [NAME, …], "limit_s": …}'

Runs ``ansible-inventory --list``, and a playbook that pings every host and asks who it is. Changes nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from surefoot.provision import commands
from surefoot.provision.running import AT_HOST, PLAYBOOKS, Running, packed, printed, running


def ask_hosts(
    run: Running,
    *,
    variables: list[str],
    questions: dict[str, dict[str, Any]],
    become: bool,
    hosts: str = "",
    playbook: str = "",
) -> dict[str, Any]:
    """The answer of the playbook that asks hosts what `surefoot.provision.at_host` tells.

    `questions`: host → what it is asked; others are asked who they are. `hosts`: a file that lists those to ask.
    `playbook`: another one than ``hosts.yml``, with the same variables.
    """
    asked = {
        "variables": variables,
        "source": str(AT_HOST),
        "hosts": {host: packed(question) for host, question in questions.items()},
        "default": packed({}),
        "become": become,
    }
    file = run.written("asked.json", {"surefoot_asked": asked})
    book = playbook or str(PLAYBOOKS / "hosts.yml")
    return run.run(commands.own_playbook(run.tool("ansible-playbook"), run.asked, book, file, hosts=hosts))


def main() -> None:
    """Print what was found."""
    asked = json.loads(sys.argv[1])
    with running(asked) as run:
        inventory = run.inventory()
        hosts = ask_hosts(run, variables=asked["variables"], questions={}, become=False)
        printed({"nonce": asked["nonce"], "inventory": inventory, "hosts": hosts})


if __name__ == "__main__":
    main()
