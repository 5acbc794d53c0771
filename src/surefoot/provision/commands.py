"""Ansible's command lines and their environment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from surefoot.model.cluster import Ansible

CALLBACK = "surefoot_events"
CALLBACKS = Path(__file__).parent / "callback"
"""Folder of that callback, whatever the site's own ``ansible.cfg`` names."""
KEPT = frozenset(
    {
        "ANSIBLE_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_IDENTITY", "ANSIBLE_VAULT_IDENTITY_LIST",
        "ANSIBLE_BECOME_PASSWORD_FILE", "ANSIBLE_CONNECTION_PASSWORD_FILE",
        "ANSIBLE_PRIVATE_KEY_FILE", "ANSIBLE_REMOTE_USER", "ANSIBLE_HOME", "ANSIBLE_LOCAL_TEMP", "ANSIBLE_REMOTE_TEMP",
    }
)  # fmt: skip
"""What a user's own environment may say of Ansible: who they are, not what a site does."""


def environment(site: str, own: Mapping[str, str], *, sockets: str = "", forks: int | None = None) -> dict[str, str]:
    """The environment of Ansible's commands: the site's configuration, no user's; events as JSON lines.

    `own`: this process's environment. `sockets`: folder of ssh's control sockets.
    """
    kept = {name: value for name, value in own.items() if not name.startswith("ANSIBLE_") or name in KEPT}
    encoding = f"{own.get('LC_ALL') or own.get('LC_CTYPE') or own.get('LANG') or ''}".lower().replace("-", "")
    locale = {} if encoding.endswith("utf8") else {"LC_ALL": "C.UTF-8"}
    return {
        **kept,
        **locale,
        "ANSIBLE_CONFIG": str(Path(site) / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        **({"ANSIBLE_SSH_CONTROL_PATH_DIR": sockets} if sockets else {}),
        **({"ANSIBLE_FORKS": str(forks)} if forks else {}),
    }


def named(paths: Iterable[str]) -> list[str]:
    """``-i PATH -i PATH``: inventories, each over the one before."""
    return [word for path in paths for word in ("-i", path)]


def inventories(asked: Ansible) -> list[str]:
    """``-i PATH -i PATH --limit PATTERN``."""
    return [*named(asked.inventory), *(["--limit", asked.limit] if asked.limit else [])]


def list_inventory(tool: str, asked: Ansible) -> list[str]:
    """Hosts, groups and variables as JSON."""
    return [tool, *inventories(asked), "--list"]


def list_plays(tool: str, asked: Ansible) -> list[str]:
    """The plays of the site, each with its hosts."""
    return [tool, *inventories(asked), asked.playbook, "--list-hosts"]


def check_run(tool: str, asked: Ansible) -> list[str]:
    """The whole site, as a run that changes nothing and tells what it would."""
    return [tool, *inventories(asked), asked.playbook, "--check", "--diff"]


def own_playbook(tool: str, asked: Ansible, playbook: str, variables: str, *, hosts: str = "") -> list[str]:
    """A playbook of Surefoot's, on this site's hosts, or on those that the file `hosts` lists.

    A check run: it may list a site's roles for their variables, and a task tagged ``always`` is not held back by tags.
    """
    limit = f"@{hosts}" if hosts else asked.limit
    limited = ["--limit", limit] if limit else []
    return [tool, *named(asked.inventory), *limited, playbook, "--check", "--extra-vars", f"@{variables}"]
