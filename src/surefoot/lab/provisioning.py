"""A lab's bare hosts become a cluster: by the roles in ``ansible/``, as any other site's would."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from surefoot.errors import EvidenceError, MachineryError, RequestError
from surefoot.lab.commands import ALONE
from surefoot.lab.configuration import DEFAULT_RELEASE, GPU_TYPE, Release
from surefoot.lab.host_files import Secrets
from surefoot.lab.places import LabPaths
from surefoot.lab.spec import HEAD, LabSpec, address
from surefoot.provision.commands import environment, named
from surefoot.provision.events import ResultEvent, TaskEvent, event_of
from surefoot.provision.running import control_sockets
from surefoot.provision.tools import NOT_FOUND_ACTION, find_tool

SITE = Path(__file__).resolve().parents[3] / "ansible"
"""The site lies in the project, beside ``src``."""
_SHOWN = 5
LIMIT_S = 900.0
"""Longest that ``site.yml`` may take."""


def require() -> str:
    """Path of ``ansible-playbook``. Raises RequestError where there is none, or no site."""
    tool = find_tool("ansible-playbook")
    if tool is None:
        raise RequestError(
            "the lab's hosts are provisioned by Ansible, which is not here",
            next_action=f"{NOT_FOUND_ACTION}; or surefoot lab up --plain, without Ansible",
        )
    if not (SITE / "site.yml").is_file():
        raise RequestError(
            f"the lab's hosts are provisioned by the roles in {SITE}, which is not there",
            next_action="run surefoot from a clone of its repository (pip install -e .)",
        )
    return tool


def inventories(paths: LabPaths) -> tuple[str, ...]:
    """What ``-i`` names, in order: every site's groups, every lab's settings, this lab's hosts."""
    return str(SITE / "inventory/common"), str(SITE / "inventory/lab"), str(paths.inventory)


def cluster_section(paths: LabPaths) -> str:
    """The section ``ansible`` of the lab's cluster file: what the rungs inventory and drift compare its hosts with."""
    listed = "".join(f"    - {json.dumps(path)}\n" for path in inventories(paths))
    return f"ansible:\n  site: {json.dumps(str(SITE))}\n  inventory:\n{listed}"


def inventory(spec: LabSpec, slot: int, paths: LabPaths, release: Release = DEFAULT_RELEASE) -> str:
    """This lab's own inventory, as YAML. Secrets stay in files that root alone may read. `release`: of its Slurm."""

    def host(name: str) -> dict[str, Any]:
        # By the alias that no other lab has: Ansible keeps connections by that name.
        return {name: {"ansible_host": f"{spec.name}-{name}", "common_address": address(slot, name)}}

    def secret(name: str) -> str:
        return f"{{{{ lookup('ansible.builtin.file', '{paths.secrets / name}') }}}}"

    head: dict[str, Any] = {"hosts": {HEAD: None}}
    nodes = {key: value for name in spec.node_names for key, value in host(name).items()}
    tree = {
        "all": {
            "vars": {
                "ansible_user": "root",
                "ansible_ssh_common_args": f"-F {paths.ssh_config}",
                "slurm_cluster_name": spec.name,
                "slurm_release": f"{release[0]}.{release[1]:02d}",
                "slurm_node_cpus": spec.cpus_per_node,
                "slurm_node_memory_mib": spec.memory_mib,
                "gres_gpus_per_node": spec.gpus_per_node,
                "gres_gpu_type": GPU_TYPE,
                "storage_root": str(paths.shared),
                "munge_key_base64": secret("munge.base64"),
                "slurm_jwt_key_base64": secret("jwt.base64"),
                "slurm_database_password": secret("database"),
            },
            "children": {
                "slurm_controller": {"hosts": host(HEAD)},
                "slurm_database": head,
                "slurm_rest": head,
                "slurm_node": {"hosts": nodes},
            },
        }
    }
    text = json.dumps(tree, indent=1)  # JSON is YAML, and quotes whatever must be quoted
    return f"# Written by surefoot lab up --name {spec.name}\n{text}\n"


def secret_files(secrets: Secrets) -> dict[str, str]:
    """File name → content of what the inventory looks up."""
    return {
        "munge.base64": base64.b64encode(secrets.munge_key).decode(),
        "jwt.base64": base64.b64encode(secrets.jwt_key).decode(),
        "database": secrets.database_password,
    }


def provision(tool: str, paths: LabPaths, *, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
    """Run ``site.yml`` on the lab's hosts. Raises MachineryError naming host, role, task and what was said.

    Also where it is not done after `limit_s`: it is ended then.
    """
    command = [*ALONE, tool, *named(inventories(paths)), str(SITE / "site.yml")]
    started = time.monotonic()
    with paths.provisioning.open("w") as log, control_sockets() as sockets:
        env = environment(str(SITE), os.environ, sockets=str(sockets)) | {"ANSIBLE_HOME": str(paths.ansible)}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=env, cwd=SITE
        ) as process:
            limit = threading.Timer(limit_s, process.kill)
            limit.start()
            try:
                assert process.stdout is not None
                problems = _follow(process.stdout, log.write, say, started)
                code = process.wait()
            finally:
                limit.cancel()
                process.kill()
    if time.monotonic() - started >= limit_s:
        problems.append(f"not done after {limit_s:.0f} s: ended")
    if code != 0 or problems:
        said = problems[:_SHOWN] or paths.provisioning.read_text(errors="replace").splitlines()[-_SHOWN:]
        more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
        raise MachineryError(
            f"provisioning the lab's hosts: exit {code}" + "".join(f"\n  {line}" for line in said) + more,
            next_action=f"all of it stands in {paths.provisioning}",
        )


def _follow(lines: Iterable[str], keep: Callable[[str], Any], say: Callable[[str], None], started: float) -> list[str]:
    """Tell each role as it begins; what failed, a line each."""
    problems, role = [], ""
    for number, line in enumerate(lines, 1):
        keep(line)
        try:
            event = event_of(line, file="ansible-playbook", line=number)
        except EvidenceError:  # not of the callback: it stands in the log
            continue
        if isinstance(event, TaskEvent) and event.role not in ("", role):
            role = event.role
            say(f"{time.monotonic() - started:5.1f} s  role {role}")
        elif isinstance(event, ResultEvent) and _failed(event):
            problems.append(f"{event.host}: {event.where}: {event.message or event.status}")
    return problems


def _failed(result: ResultEvent) -> bool:
    """Of a loop the task as a whole says so."""
    return result.status in ("failed", "unreachable") and not result.ignored and result.item is None
