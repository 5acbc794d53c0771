"""A check run over a whole site, and what is known of what it found. One JSON document on stdout.

    python -m surefoot.provision.check '{"nonce": …, "ansible": {…}, "limit_s": …}'

Runs ``ansible-inventory --list`` (without the limit too, where there is one), ``ansible-playbook --list-hosts``,
``ansible-playbook --check --diff``, and then a playbook that asks the hosts who changed what would be changed,
and for the versions of the packages that the site names. Changes nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
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


def roles_of(run: Playbook) -> list[str]:
    """Roles that told something, sorted."""
    return sorted({told.result.role for told in run.results if told.result.role})


def packages_in(site: Path, role: str) -> dict[str, Any]:
    """What a role says of packages: ``variables`` that name some, and whether it ``installs`` any.

    Variables are those among its defaults that are named ``ROLE_packages`` or ``ROLE_…_packages``. A role that
    installs packages and has no such variable keeps its names to itself.
    """
    folder = next((path for path in _role_folders(site, role) if path.is_dir()), site / "roles" / role)
    text = "".join(file.read_text(errors="replace") for file in _yaml(folder / "defaults"))
    variables = sorted(set(re.findall(rf"(?m)^({re.escape(role)}_(?:\w+_)?packages):", text)))
    installs = any(_INSTALLS.search(file.read_text(errors="replace")) for file in _yaml(folder / "tasks"))
    return {"variables": variables, "installs": installs, "there": folder.is_dir()}


_INSTALLS = re.compile(r"(?m)^\s*(?:-\s+)?(?:(?:ansible\.builtin\.)?(?:apt|package|dnf5?|yum)|common_install):")


def _role_folders(site: Path, role: str) -> list[Path]:
    """Where a role of this site may lie: beside its playbook, or where ``ansible.cfg`` says."""
    configured = ConfigParser(interpolation=None, strict=False)
    configured.read(site / "ansible.cfg")
    places = configured.get("defaults", "roles_path", fallback="").split(":")
    return [site / "roles" / role, *(site / Path(place).expanduser() / role for place in places if place)]


def _yaml(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in (".yml", ".yaml"))


def history_playbook(packages: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The playbook that asks hosts about what a check run found. Changes nothing.

    Roles are listed for their variables alone: their tasks are tagged ``never``. A variable that cannot be worked
    out without running its role is told as a failure, and judging names it.
    """
    source = "{{ lookup('ansible.builtin.file', surefoot_asked.source) }}"
    interpreter = "{{ ansible_python_interpreter | default('/usr/bin/python3') }}"
    question = "{{ surefoot_asked.hosts[inventory_hostname] | default(surefoot_asked.default) }}"
    plain = "map('regex_replace', '[=*/].*$', '') | select | unique | list"
    roles = [role for role, told in packages.items() if told["variables"]]
    names = [
        {
            "name": f"Packages of {variable}",
            "ansible.builtin.set_fact": {
                "surefoot_named": "{{ surefoot_named | combine({'"
                + variable
                + "': "
                + f"{variable} | flatten | {plain}"
                + "}) }}"
            },
            "ignore_errors": True,
        }
        for role in roles
        for variable in packages[role]["variables"]
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


def _history(run: Running, rows: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(what roles say of packages, what the hosts know); None where the check run has told nothing to ask for."""
    try:
        found = playbook_of(rows, file="check")
    except EvidenceError:
        return {}, None  # judging will name it
    packages = {role: packages_in(Path(run.asked.site), role) for role in roles_of(found)}
    questions = questions_of(found)
    if not questions:
        return packages, None
    playbook = run.written("history.yml", history_playbook(packages))
    hosts = run.written("hosts", "\n".join(sorted(questions)) + "\n")
    asked = ask_hosts(run, variables=[], questions=questions, become=True, hosts=hosts, playbook=playbook)
    return packages, asked


def main() -> None:
    """Print what was found."""
    asked = json.loads(sys.argv[1])
    with running(asked) as run:
        playbook = run.tool("ansible-playbook")
        inventory = run.inventory()
        whole = run.inventory(limited=False) if run.asked.limit else None
        plays = run.run(commands.list_plays(playbook, run.asked))
        check = run.run(commands.check_run(playbook, run.asked))
        packages, history = _history(run, check["stdout"])
        found = {"inventory": inventory, "whole": whole, "plays": plays, "check": check}
        printed({"nonce": asked["nonce"], **found, "packages": packages, "history": history})


if __name__ == "__main__":
    main()
