"""What roles cannot do without and an inventory leaves empty: secrets, addresses, sources. Used by validate.yml."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

DOCUMENTATION = """
name: needed_problems
short_description: What roles cannot do without and an inventory leaves empty
"""

Variables = Mapping[str, Any]

_WORDS = run_path(str(Path(__file__).parents[1] / "words.py"))
_few = _WORDS["few"]
_true = _WORDS["true"]
Groups = Mapping[str, Sequence[str]]


class _Secret(NamedTuple):
    name: str
    groups: tuple[str, ...]
    variable: str
    make: str
    wrong: Callable[[str], str]


def needed_problems(hostvars: Mapping[str, Variables], groups: Groups, environment: Mapping[str, str]) -> list[str]:
    """Each with what to set and where; no value of a secret is in it. `environment` has the secrets that it gives."""
    hosts = {host: hostvars[host] for host in groups.get("all", [])}
    return [*_secrets(hosts, groups, environment), *_runner(hosts, groups), *_others(hosts, groups)]


def _bytes(text: str) -> str:
    try:
        length = len(base64.b64decode("".join(text.split()), validate=True))
    except (ValueError, binascii.Error):
        return "is no base64"
    return "" if length >= 32 else f"has {length} bytes, and 32 are the fewest that will do"


def _password(text: str) -> str:
    fits = re.fullmatch(r"[A-Za-z0-9._~+/=@%-]+", text)
    return "" if fits else "has characters that slurmdbd.conf does not take: letters, digits and . _ ~ + / = @ % - only"


_SECRETS = (
    _Secret("munge_key_base64", ("munge",), "SUREFOOT_MUNGE_KEY_BASE64",
            "a new one: dd if=/dev/urandom bs=1 count=128 | base64 -w0", _bytes),
    _Secret("slurm_jwt_key_base64", ("slurm_controller", "slurm_backup_controller", "slurm_database"),
            "SUREFOOT_SLURM_JWT_KEY_BASE64", "a new one: openssl rand -base64 32", _bytes),
    _Secret("slurm_database_password", ("slurm_database",), "SUREFOOT_SLURM_DATABASE_PASSWORD",
            "a new one: openssl rand -hex 24", _password),
    _Secret("runner_token", ("runner",), "SUREFOOT_RUNNER_TOKEN",
            "GitLab shows it once, when the runner is made there", lambda _: ""),
)  # fmt: skip


def _secrets(hosts: Mapping[str, Variables], groups: Groups, environment: Mapping[str, str]) -> Iterator[str]:
    jwt = bool(groups.get("slurm_rest"))
    for name, of_groups, variable, make, wrong in _SECRETS:
        values: dict[str, str] = {}
        for host in dict.fromkeys(host for group in of_groups for host in groups.get(group, [])):
            if name == "slurm_jwt_key_base64" and not _true(hosts[host].get("slurm_jwt", jwt)):
                continue
            values[host] = str(hosts[host].get(name, environment.get(variable, "")) or "").strip()
        where = f"set {variable} in the environment, or {name} in a file that ansible-vault encrypts"
        if without := [host for host, value in values.items() if not value]:
            yield f"{name} is empty for {_few(without)}: {where} ({make})"
        given = {host: value for host, value in values.items() if value}
        for reason in dict.fromkeys(wrong(value) for value in given.values()):
            if reason:
                bad = [host for host, value in given.items() if wrong(value) == reason]
                yield f"{name} of {_few(bad)} {reason}: {where} ({make})"
        if name != "runner_token" and len(set(given.values())) > 1:
            first = next(iter(given))
            other = [host for host, value in given.items() if value != given[first]]
            yield f"{name} is another for {_few(other)} than for {first}: all hosts must have the same; set it once, for all"


class _Need(NamedTuple):
    group: str
    holds: Callable[[Variables], Any]
    otherwise: str


_NEEDS = (
    _Need(
        "storage_server",
        lambda of: of.get("storage_exports"),
        "storage_exports is empty for {}, in the group storage_server: name what is exported, [{{path: /srv/cluster}}]",
    ),
    _Need(
        "rdma",
        lambda of: of.get("rdma_rails"),
        "rdma_rails is empty for {}, in the group rdma: name each rail as in the cluster file, or take the host out",
    ),
    _Need(
        "nccl_tests",
        lambda of: of.get("nccl_tests_archive"),
        "nccl_tests_archive is empty for {}: name a .tar.gz of nccl-tests, here or https://…, or empty the group nccl_tests",
    ),
    _Need(
        "nccl_tests",
        lambda of: re.fullmatch("[0-9A-Fa-f]{64}", str(of.get("nccl_tests_sha256") or "")),
        "nccl_tests_sha256 of {} is not 64 hex digits: write what `sha256sum FILE` says of the archive",
    ),
    _Need(
        "nvidia",
        lambda of: not _true(of.get("nvidia_manage_driver")) or of.get("nvidia_driver_packages"),
        "nvidia_manage_driver is true and nvidia_driver_packages is empty for {}: name them with their versions, or leave nvidia_manage_driver out",
    ),
    _Need(
        "python_runtime",
        lambda of: not of.get("python_runtime_cluster") or of.get("python_runtime_owner"),
        "python_runtime_cluster is set and python_runtime_owner is empty for {}: name the user who climbs",
    ),
    _Need(
        "python_runtime",
        lambda of: not of.get("python_runtime_cluster") or of.get("python_runtime_root", of.get("storage_root")),
        "python_runtime_cluster is set and there is no shared root for {}: set storage_root to `root` of the cluster file",
    ),
)


def _runner(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    for host in groups.get("runner", []):
        of = hosts[host]
        if not re.match(r"https?://[^/\s]", url := str(of.get("runner_gitlab_url") or "")):
            yield f"runner_gitlab_url of {host} is {url!r}: write the GitLab server's address, https://…"
        login = of.get("runner_login_host", next(iter(groups.get("slurm_login", [])), ""))
        if login not in hosts:
            yield (
                f"the runner {host} has no login host ({str(login)!r}): put one into the group slurm_login, or name a host"
                " of the inventory in runner_login_host"
            )
        for name in ("runner_user", "runner_login_user"):
            if of.get(name) in ("root", ""):
                yield f"{name} of {host} is {of[name]!r}: name an ordinary user who is nobody else's"


def _others(hosts: Mapping[str, Variables], groups: Groups) -> Iterator[str]:
    if groups.get("monitoring_server") and not groups.get("monitoring_exporter"):
        yield (
            f"monitoring_server has {_few(groups['monitoring_server'])}, and monitoring_exporter is empty: nothing would be"
            " watched; add monitoring_exporter: {children: {slurm: {}}}"
        )
    for group, holds, otherwise in _NEEDS:
        without = [host for host in groups.get(group, []) if not holds(hosts[host])]
        if without:
            yield otherwise.format(_few(without))


class FilterModule:
    """What Ansible asks a file of filters for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"needed_problems": needed_problems}
