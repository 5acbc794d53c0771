"""The last lines of a run name the hosts that were not finished. By a real Ansible, on hosts that are this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from surefoot.provision.commands import environment

pytestmark = pytest.mark.slow

ANSIBLE = Path(__file__).parents[2] / "ansible"
PLAY = {
    "hosts": "all",
    "gather_facts": False,
    "tasks": [
        {"name": "Some fail", "ansible.builtin.fail": {"msg": "disk\nis full"}, "when": "inventory_hostname in bad"},
        {
            "name": "A command",
            "ansible.builtin.command": "sh -c 'echo no such export password=hunter22 >&2; exit 5'",
            "when": "inventory_hostname in commands | default([])",
        },
        {"name": "Ignored", "ansible.builtin.fail": {"msg": "no matter"}, "ignore_errors": True},
        {"name": "The others go on", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} is finished"}},
    ],
}


def played(folder: Path, *bad: str, events: bool = False, commands: tuple[str, ...] = ()) -> tuple[int, list[str]]:
    hosts = {name: {"ansible_connection": "local"} for name in ("n1", "n2", "n3")}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(yaml.safe_dump([PLAY]))
    own = environment(str(ANSIBLE), os.environ)
    if not events:
        own = {key: value for key, value in own.items() if key not in ("ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_CALLBACK_PLUGINS")}  # fmt: skip
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", folder / "hosts.yml", folder / "play.yml",
         "--extra-vars", json.dumps({"bad": list(bad), "commands": list(commands)})],
        cwd=ANSIBLE, env=own | {"ANSIBLE_HOME": str(folder)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_a_host_that_failed_is_named_last_with_its_task_and_the_others_are_finished(tmp_path: Path) -> None:
    code, lines = played(tmp_path, "n2")
    assert code == 2
    assert [name for name in ("n1", "n2", "n3") if f"{name} is finished" in "\n".join(lines)] == ["n1", "n3"]
    title, told, advice = [line for line in lines if line][-3:]
    assert title == "NOT FINISHED: 1 of 3 hosts. The others are."
    assert told.startswith('n2: failed at "Some fail" (play.yml:')
    assert told.endswith("): disk is full")
    assert advice == "Mend it and run the same again; for these alone: --limit n2"


def test_where_all_fail_all_are_named(tmp_path: Path) -> None:
    code, lines = played(tmp_path, "n1", "n2", "n3")
    assert code == 2
    assert "NOT FINISHED: 3 of 3 hosts." in lines
    assert lines[-1].endswith("--limit n1,n2,n3")


def test_where_none_fails_nothing_is_added_nor_to_what_programs_read(tmp_path: Path) -> None:
    code, lines = played(tmp_path)
    assert code == 0
    assert "NOT FINISHED" not in "\n".join(lines)
    code, lines = played(tmp_path, "n2", events=True)
    assert code == 2
    assert [line for line in lines if not line.startswith("{")] == []


def test_of_a_command_that_failed_its_own_last_words_are_told(tmp_path: Path) -> None:
    _, lines = played(tmp_path, commands=("n3",))
    assert lines[-2].split("): ", 1)[1].startswith("ended 5: no such export")
    _, events = played(tmp_path, commands=("n3",), events=True)
    (failed,) = (
        row for row in map(json.loads, events) if row.get("status") == "failed" and row.get("task") == "A command"
    )
    assert failed["message"].startswith("ended 5: no such export")
    assert "hunter22" not in "".join(events)
