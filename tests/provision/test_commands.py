"""Ansible's environment: the site's configuration, and of the user's own only who they are."""

from __future__ import annotations

from pathlib import Path

from surefoot.model.cluster import Ansible
from surefoot.provision import commands

SITE = Ansible(site="/s", inventory=("/s/a", "/s/b"), limit="rack1")


def test_a_users_own_settings_do_not_hold_but_who_they_are() -> None:
    own = {
        "PATH": "/bin", "ANSIBLE_STDOUT_CALLBACK": "yaml", "ANSIBLE_CONFIG": "/home/me/ansible.cfg",
        "ANSIBLE_VAULT_PASSWORD_FILE": "/v", "ANSIBLE_CHECK_MODE_MARKERS": "1", "LANG": "C",
    }  # fmt: skip
    found = commands.environment("/s", own, sockets="/run/x")
    assert found["ANSIBLE_CONFIG"] == "/s/ansible.cfg"
    assert found["ANSIBLE_STDOUT_CALLBACK"] == "surefoot_events"
    assert (Path(found["ANSIBLE_CALLBACK_PLUGINS"]) / "surefoot_events.py").is_file()
    assert (found["ANSIBLE_VAULT_PASSWORD_FILE"], found["PATH"]) == ("/v", "/bin")
    assert found["LC_ALL"] == "C.UTF-8"
    assert "ANSIBLE_CHECK_MODE_MARKERS" not in found
    assert "LC_ALL" not in commands.environment("/s", {"LANG": "de_DE.UTF-8"})


def test_commands_name_every_inventory_and_the_limit() -> None:
    words = ["-i", "/s/a", "-i", "/s/b", "--limit", "rack1"]
    assert commands.list_inventory("t", SITE) == ["t", *words, "--list"]
    assert commands.check_run("t", SITE) == ["t", *words, "site.yml", "--check", "--diff"]
    assert commands.list_plays("t", SITE) == ["t", *words, "site.yml", "--list-hosts"]
    assert commands.own_playbook("t", SITE, "p", "v", hosts="h") == [
        "t", "-i", "/s/a", "-i", "/s/b", "--limit", "@h", "p", "--check", "--extra-vars", "@v",
    ]  # fmt: skip
