"""A check run over a whole site, and what is known of what it found. One JSON document on stdout.

    python -m surefoot.provision.check '{"nonce": …, "ansible": {…}, "limit_s": …}'

Runs ``ansible-inventory --list``, ``ansible-playbook --list-hosts``, ``ansible-playbook --check --diff``,
and then a playbook that asks the hosts who changed what would be changed, and for the versions of the
packages that the site names. Changes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot.errors import EvidenceError
from surefoot.provision import commands
from surefoot.provision.events import Playbook, playbook_of
from surefoot.provision.look import ask_hosts
from surefoot.provision.running import Running, printed, running


def questions_of(run: Playbook) -> dict[str, dict[str, Any]]:
    """Host → paths that would change there and packages that the site names there; without hosts that cannot answer."""
    found: dict[str, dict[str, Any]] = {}
    for host, total in run.totals.items():
        if total.unreachable or host == "localhost":
            continue
        mine = [told.result for told in run.results if told.result.host == host]
        paths = [r.path for r in mine if r.status == "changed" and r.path.startswith("/")]
        packages = [name for r in mine for name in r.packages]
        found[host] = {"paths": sorted(set(paths)), "packages": sorted(set(packages))}
    return found


def roles_with_packages(run: Playbook, site: Path) -> list[str]:
    """Roles of the run that have a variable ROLE_packages among their defaults."""
    found = []
    for role in sorted({told.result.role for told in run.results if told.result.role}):
        place = site / "roles" / role / "defaults" / "main.yml"
        if place.is_file() and re.search(rf"(?m)^{re.escape(role)}_packages:", place.read_text(errors="replace")):
            found.append(role)
    return found


def history_playbook(roles: Sequence[str]) -> list[dict[str, Any]]:
    """The playbook that asks hosts about what a check run found. Changes nothing.

    Roles are listed for their variables alone: their tasks are tagged ``never``. A role whose packages
    cannot be worked out without running it is passed over.
    """
    source = "{{ lookup('ansible.builtin.file', surefoot_asked.source) }}"
    interpreter = "{{ ansible_python_interpreter | default('/usr/bin/python3') }}"
    question = "{{ surefoot_asked.hosts[inventory_hostname] | default(surefoot_asked.default) }}"
    plain = "map('regex_replace', '[=*/].*$', '') | select | unique | list"
    names = [
        {
            "name": f"Packages of {role}",
            "ansible.builtin.set_fact": {
                "surefoot_named": "{{ surefoot_named | combine({'"
                + role
                + "': "
                + f"{role}_packages | flatten | {plain}"
                + "}) }}"
            },
            "ignore_errors": True,
        }
        for role in roles
    ]
    return [
        {
            "name": "What is known of it",
            "hosts": "all",
            "gather_facts": bool(roles),
            "become": True,
            "roles": [{"role": role, "tags": ["never"]} for role in roles],
            "post_tasks": [
                {"name": "Ping", "ansible.builtin.ping": {}},
                {"name": "No names yet", "ansible.builtin.set_fact": {"surefoot_named": {}}},
                *names,
                {"name": "Named", "ansible.builtin.debug": {"msg": "{{ surefoot_named | to_json | b64encode }}"}},
                {
                    "name": "Asked",
                    "ansible.builtin.command": {
                        "cmd": f"{interpreter} - {question} {{{{ surefoot_named.values() | flatten | unique | join(' ') }}}}",
                        "stdin": source,
                    },
                    "register": "surefoot_said",
                    "check_mode": False,
                    "changed_when": False,
                },
                {"name": "Answered", "ansible.builtin.debug": {"msg": "{{ surefoot_said.stdout }}"}},
            ],
        }
    ]


def _history(run: Running, rows: Sequence[str]) -> dict[str, Any] | None:
    """What the hosts know of it; None where the check run has told nothing to ask for."""
    try:
        found = playbook_of(rows, file="check")
    except EvidenceError:
        return None  # judging will name it
    questions = questions_of(found)
    if not questions:
        return None
    roles = roles_with_packages(found, Path(run.asked.site))
    playbook = run.written("history.yml", history_playbook(roles))
    hosts = run.written("hosts", "\n".join(sorted(questions)) + "\n")
    return ask_hosts(run, variables=[], questions=questions, become=True, hosts=hosts, playbook=playbook)


def main() -> None:
    """Print what was found."""
    asked = json.loads(sys.argv[1])
    with running(asked) as run:
        playbook = run.tool("ansible-playbook")
        inventory = run.run(commands.list_inventory(run.tool("ansible-inventory"), run.asked))
        plays = run.run(commands.list_plays(playbook, run.asked))
        check = run.run(commands.check_run(playbook, run.asked))
        history = _history(run, check["stdout"])
        printed({"nonce": asked["nonce"], "inventory": inventory, "plays": plays, "check": check, "history": history})


if __name__ == "__main__":
    main()
