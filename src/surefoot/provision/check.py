"""A check run over a whole site, and what is known of what it found. One JSON document on stdout.

    python -m surefoot.provision.check '{"nonce": …, "ansible": {…}, "limit_s": …}'

Runs ``ansible-inventory --list``, ``ansible-playbook --list-hosts``, ``ansible-playbook --check --diff``,
and then a playbook that asks the hosts who changed what would be changed, and for the versions of the
packages that the site names. Changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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


def _history(run: Running, rows: Sequence[str]) -> dict[str, Any] | None:
    """What the hosts know of it; None where the check run has told nothing to ask for."""
    try:
        questions = questions_of(playbook_of(rows, file="check"))
    except EvidenceError:
        return None  # judging will name it
    if not questions:
        return None
    hosts = run.written("hosts", "\n".join(sorted(questions)) + "\n")
    return ask_hosts(run, variables=[], questions=questions, become=True, hosts=hosts)


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
